"""Shells complete commands, options and names by click's scripts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    (programs / "penstock").chmod(0o755)
    script = """
    set -e
    penstock context set production --url http://127.0.0.1:1 > /dev/null
    eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"
    function tab {
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        _penstock_completion penstock
        echo "${COMPREPLY[*]}"
    }
    tab penstock topi
    tab penstock --url http://127.0.0.1:1 topics cr
    tab penstock topics list --tok
    tab penstock topics list --context pr
    tab penstock -o ta
    complete -p penstock
    """
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    *found, registered = done.stdout.splitlines()
    assert found == ["topics", "create", "--token --token-file", "production", "table"]
    assert "_penstock_completion penstock" in registered

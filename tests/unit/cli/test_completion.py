"""What the shells complete: what each asks and is answered, and bash by its own function, installed where it looks for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli.main import group
from penstock.cli.shells import SHELLS, VARIABLE

PENSTOCK = f'"{sys.executable}" -m penstock'


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "penstock").write_text(f'#!/bin/sh\nexec {PENSTOCK} "$@"\n')
    (programs / "penstock").chmod(0o755)
    script = """
    set -e
    penstock context set production --url http://127.0.0.1:1 > /dev/null
    file=$(penstock -o template={file} completion bash --install)
    source "$file"
    function tab { COMP_LINE=$1 COMP_POINT=${#1}; _penstock_completion penstock "${1##*[ :=]}" ""; echo "${COMPREPLY[*]}"; }
    tab 'penstock topi'
    tab 'penstock --url http://127.0.0.1:1 topics cr'
    tab 'penstock topics list --tok'
    tab 'penstock topics list --context pr'
    tab 'penstock -o ta'
    tab 'penstock topics list --output=ta'
    tab "penstock topics 'cre"
    complete -p penstock
    """
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    done = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    *found, registered = done.stdout.splitlines()
    assert found == ["topics", "create", "--token --token-file", "production", "table", "table", "create"]
    assert "_penstock_completion penstock" in registered
    assert (tmp_path / "data" / "bash-completion" / "completions" / "penstock").is_file()


def answer(monkeypatch: pytest.MonkeyPatch, shell: str, line: str) -> list[list[str]]:
    """What a shell is answered of a line, up to the cursor: types, values and helps."""
    monkeypatch.setenv("COMP_LINE", line)
    found = SHELLS[shell](group, {}, "penstock", VARIABLE).complete()
    return [one.split("\t") for one in found.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_an_answer_is_type_value_and_help(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "penstock.cli.connection.answered", lambda ctx, path: ["persistent://public/default/a"]
    )

    def tab(line: str) -> list[list[str]]:
        return answer(monkeypatch, shell, line)

    described = "List, create, describe and delete topics; their messages and properties."
    assert tab("penstock topi") == [["plain", "topics", described]]
    assert tab("penstock topics cre") == [["plain", "create", "Create TOPIC."]]
    assert ["plain", "list"] in [one[:2] for one in tab("penstock topics ")]
    assert tab("penstock topics list --output=ta") == [["plain", "--output=table", ""]]
    assert tab("penstock topics list -o te") == [["plain", "template=", ""]]
    assert tab("penstock topics describe ") == [["plain", "a", ""]]
    assert tab("penstock topics describe persist") == []  # it is the short name of no topic
    for word in ("persistent://pub", "'persistent://pub", '"persistent://pub'):
        assert tab(f"penstock topics describe {word}") == [["plain", "persistent://public/default/a", ""]]
    assert tab("penstock topics list --tls-ca-file x/") == [["file", "x/", ""]]
    assert tab("penstock serve --data=x/") == [["dir", "x/", ""]]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_asks_as_its_script_says(shell: str) -> None:
    script = SHELLS[shell](group, {}, "penstock", VARIABLE).source()
    assert f" {VARIABLE}={shell}_complete " in script
    assert script.count("COMP_LINE=") == 1
    environment = {**os.environ, VARIABLE: f"{shell}_complete", "COMP_LINE": "penstock topi"}
    done = subprocess.run(
        [sys.executable, "-m", "penstock"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.startswith("plain\ttopics\tList, ")

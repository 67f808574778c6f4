"""The commands of docs/cli.md work as printed, in this order, in a home of their own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
PRINTED = "http://127.0.0.1:8080"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_every_command_of_the_page_works_as_printed(tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 8
    program = tmp_path / "penstock"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment |= {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "SOME_TOKEN": "secret",
    }
    with running() as server:
        # No address in the environment: contexts would be left out. The first block has none in use yet.
        first = f"export PENSTOCK_URL={server.url}\n{blocks[0]}\nunset PENSTOCK_URL\n"
        script = first + "\n".join(blocks[1:]).replace(PRINTED, server.url)
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "persistent://public/default/orders   2        20\n" in done.stdout
    assert "they differ" in done.stdout
    assert '{"policy":"message-ttl","value":259200}' in done.stdout
    assert "no field" not in done.stderr

"""The examples of docs/schemas.md work as they are printed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running

DOCUMENT = Path(__file__).parents[2] / "docs" / "schemas.md"

pytestmark = pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None, reason="needs curl and bash"
)


def test_the_examples(tmp_path: Path) -> None:
    examples = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(examples) == 2
    with running() as server:
        script = "set -euo pipefail\n" + "".join(examples).replace("http://127.0.0.1:8080", server.url)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
            env={**os.environ, "PATH": path, "PENSTOCK_URL": server.url},
        )
    assert done.returncode == 0, done.stderr
    assert '"schema_version":0' in done.stdout
    assert "field 'to': it is not in what was written and has no default" in done.stdout
    assert '"error_code":4' not in done.stdout

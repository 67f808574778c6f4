"""The README's commands work as printed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing.server import running

ROOT = Path(__file__).parents[2]
PRINTED = "http://127.0.0.1:8080"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


def examples(page: Path) -> list[str]:
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", page.read_text(), re.DOTALL)
    return [block for block in blocks if PRINTED in block or "penstock produce" in block]


def run(script: str, url: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(PRINTED, url)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path, "PENSTOCK_URL": url},
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return done.stdout


def test_every_example_of_the_readme_works_as_printed() -> None:
    with running() as server:
        said = [run(script, server.url) for script in examples(ROOT / "README.md")]
    assert len(said) >= 8
    for answer in said:
        assert '"error"' not in answer.replace('"error":null', "")
        assert "error_code" not in answer.replace('"error_code":null', "")
    published, first_two, third, lines, _, reading = said[:6]
    assert len(json.loads(published)["messageIds"]) == 3
    assert [message["value"] for message in json.loads(first_two)["messages"]] == ["tea", "coffee"]
    assert [message["value"] for message in json.loads(third)["messages"]] == ["cake"]
    assert len(lines.splitlines()) == 3
    assert json.loads(reading)["messages"][0]["value"] == {"sensor": "roof", "celsius": 21.5}
    assert '"value":"tea"' in said[7]
    assert [json.loads(line)["value"] for line in said[9].splitlines()[-3:]] == ["1", "2", "3"]


def test_the_examples_of_the_administrator_s_page_work_as_printed() -> None:
    with running() as server:
        for script in examples(ROOT / "docs" / "admin.md"):
            answer = run(script, server.url)
            assert "error_code" not in answer, answer

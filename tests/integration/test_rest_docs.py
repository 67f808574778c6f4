"""The examples of docs/rest.md work as they are printed."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.server import launch

DOCUMENT = Path(__file__).parents[2] / "docs" / "rest.md"
EXAMPLES = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with launch(tmp_path_factory.mktemp("data")) as server:
        yield server.url


def test_the_examples(url: str, tmp_path: Path) -> None:
    assert len(EXAMPLES) >= 6
    for example in EXAMPLES:
        script = "set -euo pipefail\n" + example.replace("http://127.0.0.1:8080", url)
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert '"error_code":4' not in done.stdout, f"{example}\n{done.stdout}"
        assert '"error":"' not in done.stdout, f"{example}\n{done.stdout}"
        print(done.stdout)
    assert (tmp_path / "entries.bin").stat().st_size > 0

"""Every block of README and of the documentation works as printed, or says why it cannot be tried here."""

import shutil
from pathlib import Path

import pytest
from tests.support.page_runs import PageRun, name_of, tried
from tests.support.pages import blocks, pages

from penstock.testing.server import running

pytestmark = [
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
    pytest.mark.timeout(600),  # some pages have many commands, each a process
]


@pytest.mark.parametrize("page", tried(), ids=name_of)
def test_the_blocks_of_a_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running() as server, PageRun(tmp_path, server) as run:
        run.run_all(page)


def test_most_blocks_run() -> None:
    found = [block for page in pages() for block in blocks(page)]
    skipped = [f"{block.name}: {block.skipped}" for block in found if block.skipped]
    print("\n".join(skipped))
    assert len(skipped) < len(found) / 3

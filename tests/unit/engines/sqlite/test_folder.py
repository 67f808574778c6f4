"""Who has the data folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.folder import LOCK_NAME, FolderLock
from penstock.model.errors import ErrorKind, PenstockError

HOLD = """
import sys
from pathlib import Path
from penstock.engines.sqlite.folder import FolderLock
lock = FolderLock.claim(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def refusal(folder: Path) -> str:
    with pytest.raises(PenstockError) as caught:
        FolderLock.claim(folder)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    return caught.value.message


def test_a_folder_is_made_and_belongs_to_one(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    lock = FolderLock.claim(folder)

    assert refusal(folder) == f"data folder {folder} is in use by process {os.getpid()}"
    lock.release()
    FolderLock.claim(folder).release()


def test_a_killed_process_leaves_the_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert f"in use by process {process.pid}" in refusal(tmp_path)
        process.kill()
        process.wait()

    FolderLock.claim(tmp_path).release()


def test_an_owner_that_left_no_name_is_another_process(tmp_path: Path) -> None:
    lock = FolderLock.claim(tmp_path)
    (tmp_path / LOCK_NAME).write_text("")

    assert "in use by another process" in refusal(tmp_path)
    lock.release()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "cannot be used: " in refusal(tmp_path / "file" / "data")
    assert "cannot be used: " in refusal(tmp_path / "file")


async def test_two_stores_cannot_share_a_folder(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path)
    await first.start()
    second = SqliteStore(tmp_path)
    with pytest.raises(PenstockError, match="in use by process"):
        await second.start()
    await second.close()
    await first.close()
    await second.start()
    await second.close()


async def test_a_start_that_fails_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "penstock.db").mkdir()
    with pytest.raises(PenstockError, match="cannot be opened"):
        await SqliteStore(tmp_path).start()

    FolderLock.claim(tmp_path).release()

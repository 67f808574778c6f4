"""The copy of a checkpoint: what is copied when, and which copy counts. A folder stands for the store."""

import itertools
import shutil
from pathlib import Path

import pytest

from penstock.pipeline.lake.store import Location, StoreError
from penstock.pipeline.run.checkpoint import CheckpointCopy, counting, in_order, placed


@pytest.fixture
def store(tmp_path: Path) -> Location:
    return Location.of(tmp_path / "store")


def write(folder: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def read(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_offsets_come_last() -> None:
    names = ["offsets/10", "metadata", "state/0/0/9.zip", "offsets/9", "commits/9", "state/0/0/SSTs/1.sst"]
    assert in_order(names) == [
        ["metadata", "state/0/0/SSTs/1.sst"],
        ["state/0/0/9.zip"],
        ["commits/9"],
        ["offsets/9"],
        ["offsets/10"],
    ]


def test_the_latest_runs_copy_counts() -> None:
    copies = ["offsets/7.9", "offsets/7.10", "metadata.2", "state/0/1.delta.3"]
    assert counting(copies) == {
        "offsets/7": "offsets/7.10",
        "metadata": "metadata.2",
        "state/0/1.delta": "state/0/1.delta.3",
    }


def test_a_checkpoint_goes_on_elsewhere(tmp_path: Path, store: Location) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    copy = CheckpointCopy(first, store, "0/checkpoint", 1)
    copy.restore()
    write(first, metadata="id", offsets__0="a", commits__0="", state__0__1="s")
    (first / ".metadata.crc").write_text("crc")
    copy.save()
    write(first, offsets__1="b")
    (first / "offsets" / "0").unlink()
    copy.save()
    assert "0/checkpoint/offsets/0.1" in store.files(), "it is not known yet whether this run counts"
    copy.tidy()
    again = CheckpointCopy(second, store, "0/checkpoint", 2)
    again.restore()
    assert read(second) == {"metadata": "id", "offsets/1": "b", "commits/0": "", "state/0/1": "s"}
    assert sorted(store.files()) == [
        f"0/checkpoint/{name}.1" for name in ("commits/0", "metadata", "offsets/1", "state/0/1")
    ]


def test_what_a_run_copies_that_was_overtaken_replaces_nothing(tmp_path: Path, store: Location) -> None:
    old, new, last = (tmp_path / name for name in ("old", "new", "last"))
    late = CheckpointCopy(old, store, "c", 1)
    late.restore()
    write(old, metadata="of the first", offsets__0="1")
    now = CheckpointCopy(new, store, "c", 2)
    now.restore()
    write(new, metadata="of the second", offsets__0="2", state__v="2")
    now.save()
    late.save()
    end = CheckpointCopy(last, store, "c", 3)
    end.restore()
    assert read(last) == {"metadata": "of the second", "offsets/0": "2", "state/v": "2"}


def test_a_file_that_is_written_again_has_one_copy(tmp_path: Path, store: Location) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    copy = CheckpointCopy(first, store, "c", 1)
    copy.restore()
    write(first, state__v="1")
    copy.save()
    again = CheckpointCopy(second, store, "c", 2)
    again.restore()
    write(second, state__v="again")
    again.save()
    assert sorted(store.files()) == ["c/state/v.1", "c/state/v.2"]
    again.tidy()
    assert store.files() == ["c/state/v.2"]
    assert store.read("c/state/v.2") == b"again"


def test_local_files_that_are_gone_are_kept_in_the_store(tmp_path: Path, store: Location) -> None:
    local, later = tmp_path / "local", tmp_path / "later"
    copy = CheckpointCopy(local, store, "c", 1)
    copy.restore()
    write(local, metadata="id", offsets__0="a")
    copy.save()
    shutil.rmtree(local)
    for _ in range(2):
        with pytest.raises(StoreError, match="are gone"):
            copy.save()
        copy.tidy()
    CheckpointCopy(later, store, "c", 2).restore()
    assert read(later) == {"metadata": "id", "offsets/0": "a"}


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_a_batch_that_ends_while_files_are_listed(
    tmp_path: Path, store: Location, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    local, later = tmp_path / "local", tmp_path / "later"
    copy = CheckpointCopy(local, store, "c", 1)
    copy.restore()
    write(local, metadata="id", offsets__0="0")
    batch = iter(["state/0/0/SSTs/1.sst", "state/0/0/1.zip", "commits/0", "offsets/1"])
    listed = Path.glob

    def glob(self: Path, pattern: str) -> list[Path]:
        found = list(listed(self, pattern))
        write(local, **{name.replace("/", "__"): "1" for name in itertools.islice(batch, at_once)})
        return found

    monkeypatch.setattr(Path, "glob", glob)
    copy.save()
    monkeypatch.undo()
    CheckpointCopy(later, store, "c", 2).restore()
    there = read(later)
    needs = {
        "offsets/1": "commits/0",
        "commits/0": "state/0/0/1.zip",
        "state/0/0/1.zip": "state/0/0/SSTs/1.sst",
    }
    assert all(needed in there for name, needed in needs.items() if name in there), there


def test_what_spark_writes_again_stays(tmp_path: Path, store: Location) -> None:
    local = tmp_path / "local"
    copy = CheckpointCopy(local, store, "c", 1)
    copy.restore()
    write(local, metadata="id", state__v="1")
    copy.save()
    (local / "state" / "v").unlink()
    copy.save()
    write(local, state__v="2")
    copy.save()
    copy.tidy()
    assert store.read("c/state/v.1") == b"2"


def test_a_copy_that_goes_while_all_are_fetched(tmp_path: Path) -> None:
    class Slow(Location, frozen=True):
        def read(self, path: str) -> bytes:
            self.remove("c/offsets/0.1")  # as the run before does
            return super().read(path)

    store = Slow.of(tmp_path / "store")
    for name in ("metadata", "offsets/0", "offsets/1"):
        store.write(f"c/{name}.1", b"x")
    CheckpointCopy(tmp_path / "here", store, "c", 2).restore()
    assert read(tmp_path / "here") == {"metadata": "x", "offsets/1": "x"}


def test_paths_within_the_checkpoint_are_those_of_this_machine() -> None:
    there = b'{"a":["file:/tmp/x/checkpoint/y/3/checkpoint/state/0/_stateSchema/s","file:/other"]}'
    here = b'{"a":["file:/mine/state/0/_stateSchema/s","file:/other"]}'
    assert placed(Path("/mine"), "state/0/_metadata/v2/0", there) == here
    assert placed(Path("/mine"), "offsets/0", there) == there

"""The state folder: owned by a name, used by one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import VERSION, Folder, Lock, SinkWriter
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec, fingerprint, goes_on


def spec(folder: Path, name: str = "p", topics: str = '["a", "b"]') -> Spec:
    text = f'name = "{name}"\nstate = "{folder}"\n[sources.s]\ntopics = {topics}\n[sinks.k]\ninput = "s"\npath = "x"'
    return parse_spec(tomllib.loads(text), f"{name}.toml", folder)


def test_the_same_sources_have_the_same_fingerprint(tmp_path: Path) -> None:
    first = fingerprint(spec(tmp_path))
    assert first == fingerprint(spec(tmp_path, topics='["persistent://public/default/b", "a"]'))
    assert first != fingerprint(spec(tmp_path, topics='["a"]'))


def test_a_folder_is_its_owners(tmp_path: Path) -> None:
    mine = spec(tmp_path)
    folder = Folder(mine.home)
    assert folder.check_owner(mine) is None
    folder.own(mine)
    owner = folder.check_owner(mine)
    assert owner is not None
    assert owner.start is None
    with pytest.raises(PipelineError, match="belongs to pipeline 'p', not to 'q'"):
        folder.check_owner(spec(tmp_path, "q"))
    assert folder.check_owner(spec(tmp_path, topics='["c"]')) == owner, "no offsets are kept yet"
    folder.checkpoint.mkdir()
    (folder.checkpoint / "metadata").write_text("{}")
    with pytest.raises(PipelineError, match=r"was made for s \(.*/a,.*/b\), but p.toml now reads s \(.*/c\)"):
        folder.check_owner(spec(tmp_path, topics='["c"]'))


def test_a_checkpoint_says_its_version(tmp_path: Path) -> None:
    mine = spec(tmp_path)
    folder = Folder(mine.home)
    writer = SinkWriter(suffix="-k", target="table /x")
    folder.own(mine, sinks={"k": writer})
    owner = folder.owner()
    assert owner is not None
    assert (owner.version, owner.sinks) == (VERSION, {"k": writer})

    found = msgspec.json.decode((tmp_path / "p" / "owner.json").read_bytes())
    first = {name: found[name] for name in ("pipeline", "fingerprint", "sources", "start")}
    folder.replace("owner.json", msgspec.json.encode(first))
    owner = folder.check_owner(mine)
    assert owner is not None
    assert (owner.version, owner.sinks) == (1, {})

    later = {"version": VERSION + 1, "pipelines": ["p"]}
    folder.replace("owner.json", msgspec.json.encode(later))
    with pytest.raises(
        PipelineError,
        match=rf"has version {VERSION + 1}, written by a newer Penstock; this one knows {VERSION}",
    ):
        folder.check_owner(mine)
    folder.replace("owner.json", b'{"pipeline": 7}')
    with pytest.raises(PipelineError, match=r"owner\.json cannot be read"):
        folder.check_owner(mine)


def test_topics_may_join_a_checkpoint_and_none_may_leave_it() -> None:
    a, b = "persistent://public/default/a", "persistent://public/default/b"
    assert goes_on({"s": a}, {"s": f"{a},{b}"})
    assert not goes_on({"s": f"{a},{b}"}, {"s": a})
    assert not goes_on({"s": a}, {"s": a, "t": b})
    assert not goes_on({"s": a}, {"s": "pattern a|b"})
    assert not goes_on({"s": "pattern a"}, {"s": "pattern a,b"})


def test_a_checkpoint_of_nobody_is_nobodys(tmp_path: Path) -> None:
    mine = spec(tmp_path)
    folder = Folder(mine.home)
    (folder.checkpoint / "offsets").mkdir(parents=True)
    with pytest.raises(PipelineError, match="holds a checkpoint that is not this pipeline's"):
        folder.check_owner(mine)


def test_what_is_forgotten_begins_anew(tmp_path: Path) -> None:
    mine = spec(tmp_path)
    folder = Folder(mine.home)
    folder.own(mine, 17)
    (folder.checkpoint / "offsets").mkdir(parents=True)
    folder.forget()
    assert not folder.checkpoint.exists()
    assert folder.check_owner(mine) is None


def test_a_folder_is_used_by_one(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    assert not folder.in_use()
    assert not folder.home.exists(), "to look changes nothing"
    with Lock(folder):
        assert folder.in_use()
        with (
            pytest.raises(PipelineError, match=r"p is in use by process \d+: the pipeline is running"),
            Lock(folder),
        ):
            pass
    assert not folder.in_use()
    with Lock(folder):
        pass


def test_a_child_that_has_the_lock_keeps_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    with Lock(folder) as lock:
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=lock.files)
    assert folder.in_use()
    child.communicate(timeout=60)
    assert not folder.in_use()


def test_status_and_control(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    assert folder.status() is None
    folder.write_status({"state": "running"})
    assert folder.status() == {"state": "running"}
    assert not folder.asked_to_stop()
    folder.ask_to_stop()
    assert folder.asked_to_stop()
    folder.clear_control()
    assert not folder.asked_to_stop()


def test_where_nothing_has_run_nothing_is_left(tmp_path: Path) -> None:
    mine = msgspec.structs.replace(spec(tmp_path), state=tmp_path / "deep" / "state")
    folder = Folder(mine.home)
    with Lock(folder):
        folder.write_status({"state": "failed"})
        folder.clean_scratch().mkdir()
        folder.vacate()
    assert list(tmp_path.iterdir()) == []

    (tmp_path / "mine").mkdir()  # a folder that was there before stays
    kept = Folder(tmp_path / "mine" / "p")
    with Lock(kept):
        kept.vacate()
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]

    with Lock(folder):
        folder.own(mine)
        folder.write_status({"state": "failed"})
        folder.vacate()
    assert folder.status() == {"state": "failed"}


def test_a_lock_on_a_file_that_is_gone_is_none(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    first = Lock(folder)
    with first:
        folder.vacate()
        # Another one may have opened the file before; it must not take the one that is gone for the lock.
        with Lock(Folder(tmp_path / "p")), pytest.raises(PipelineError, match="is in use"), Lock(folder):
            pass


def test_scratch_is_emptied_at_the_next_start(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "p")
    folder.scratch.mkdir(parents=True)
    (folder.scratch / "blockmgr").mkdir()
    assert not folder.clean_scratch().exists()

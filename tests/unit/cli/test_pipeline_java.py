"""`penstock pipeline prepare-java`, with a Java that is a script, and a run of Spark that is none."""

import fcntl
import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import Result
from tests.support.commands import runner

from penstock.cli import pipeline_java
from penstock.pipeline import class_data as class_data_module
from penstock.pipeline.class_data import class_data, folder
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.java import Java


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    """One that takes an archive of its class path. As Java does, it goes on without, unless it is told not to."""
    script = tmp_path / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in\n'
        '-XX:AOTCache=*) grep -q "whole, of $jars" "${word#-XX:AOTCache=}" && taken=1;;\n'
        '-XX:AOTMode=on) [ "$taken" ] || exit 1;;\n'
        "-XX:AOTCacheOutput=*) exit 1;;\n"
        'esac; [ "$before" = -cp ] && jars="$word"; before="$word"; done\n'
        f'echo "    java.specification.version = 25\n    java.home = {tmp_path}/java" >&2\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = Java(25, tmp_path / "java", "25.0.1")
    monkeypatch.setattr(pipeline_java, "chosen_java", lambda: found)
    return found


def prepare(monkeypatch: pytest.MonkeyPatch, written: bytes, *words: str) -> Result:
    def run(folder: Path, options: list[str]) -> None:
        (option, _) = options
        Path(option.removeprefix("-XX:AOTCacheOutput=")).write_bytes(written)
        (folder / pipeline_java.STARTED).write_text(json.dumps(["-cp", "jars", *options]))

    monkeypatch.setattr(pipeline_java, "_run", run)
    return runner().invoke(pipeline_java.prepare_java, list(words))


def test_what_java_wrote_takes_its_place_and_is_removed(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    archive = class_data(java)
    older = class_data(Java(25, java.home, "25.0.0")).file_of(0)
    older.parent.mkdir(parents=True)
    older.touch()
    damaged = archive.file_of(8)
    damaged.touch()
    other = class_data(Java(25, java.home / "other", "25.0.0")).file_of(0)
    other.touch()
    done = prepare(monkeypatch, b"whole, of jars")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"file": str(archive.file), "bytes": 14}
    assert {*folder().iterdir()} == {archive.file, other}
    removed = prepare(monkeypatch, b"", "--remove")
    assert sorted(json.loads(removed.stdout)["removed"]) == sorted(map(str, (archive.file_of(14), other)))
    assert list(folder().iterdir()) == []


def test_no_other_user_may_write_to_it_whatever_the_umask(
    monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    before = os.umask(0)
    try:
        folder().mkdir(parents=True)
        assert prepare(monkeypatch, b"whole, of jars").exit_code == 0
    finally:
        os.umask(before)
    file = class_data(java).file
    assert file
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder(), file)] == [0o755, 0o644]


def test_it_does_not_write_to_a_folder_of_another_user(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    monkeypatch.setattr(class_data_module, "is_safe", lambda path: path != folder())
    failed = prepare(monkeypatch, b"whole, of jars")
    assert isinstance(failed.exception, PipelineError)
    assert "belongs to another user" in failed.exception.message
    assert list(folder().iterdir()) == []


def test_what_a_killed_run_left_is_removed(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    assert json.loads(prepare(monkeypatch, b"", "--remove").stdout) == {"removed": []}
    left = folder() / "new-killed"
    for words in ((), ("--remove",)):
        left.mkdir(parents=True)
        (left / "classes").touch()
        assert prepare(monkeypatch, b"whole, of jars", *words).exit_code == 0
        assert not left.exists()


@pytest.mark.parametrize("words", [(), ("--remove",)])
def test_what_another_run_is_writing_is_left_alone(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    theirs = folder() / "new-theirs"
    theirs.mkdir(parents=True)
    file = os.open(folder(), os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        failed = prepare(monkeypatch, b"whole, of jars", *words)
    finally:
        os.close(file)
    assert isinstance(failed.exception, PipelineError)
    assert "another prepare-java" in failed.exception.message
    assert list(folder().iterdir()) == [theirs]


@pytest.mark.parametrize("written", [b"cut off", b"whole, of other jars"])
def test_what_java_does_not_take_is_not_kept(
    written: bytes, monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    failed = prepare(monkeypatch, written)
    assert isinstance(failed.exception, PipelineError)
    assert "does not take the classes" in failed.exception.message
    assert list(folder().iterdir()) == []


def test_the_file_is_on_the_disk_before_it_has_its_name(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    found: list[tuple[bool, bool]] = []

    def fsync(file: int) -> None:
        found.append((stat.S_ISDIR(os.fstat(file).st_mode), class_data(java).file is not None))

    monkeypatch.setattr(os, "fsync", fsync)
    assert prepare(monkeypatch, b"whole, of jars").exit_code == 0
    assert found == [(False, False), (True, True)]

"""`penstock pipeline prepare-java`, with a Java that is a script, and a run of Spark that is none."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from tests.support.commands import runner

from penstock.cli import pipeline_java
from penstock.pipeline.class_data import class_data
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.java import Java


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
    """One that starts unless what it is to use is broken."""
    script = tmp_path / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        'case "$1" in -XX:AOTCache=*) grep -q whole "${1#-XX:AOTCache=}" || exit 1;; esac\n'
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

    monkeypatch.setattr(pipeline_java, "_run", run)
    return runner().invoke(pipeline_java.prepare_java, list(words))


def test_what_java_wrote_takes_its_place_and_is_removed(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    archive = class_data(java)
    older = class_data(Java(25, java.home, "25.0.0")).file
    older.parent.mkdir(parents=True)
    older.touch()
    other = class_data(Java(25, java.home / "other", "25.0.0")).file
    other.touch()
    done = prepare(monkeypatch, b"whole")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"file": str(archive.file), "bytes": 5}
    assert {*archive.file.parent.iterdir()} == {archive.file, other}
    removed = prepare(monkeypatch, b"", "--remove")
    assert sorted(json.loads(removed.stdout)["removed"]) == sorted(map(str, (archive.file, other)))
    assert list(archive.file.parent.iterdir()) == []


def test_what_java_cannot_start_with_is_not_kept(monkeypatch: pytest.MonkeyPatch, java: Java) -> None:
    failed = prepare(monkeypatch, b"cut off")
    assert isinstance(failed.exception, PipelineError)
    assert "has not written its classes whole" in failed.exception.message
    assert list(class_data(java).file.parent.iterdir()) == []

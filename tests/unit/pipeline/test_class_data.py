"""Where the archive of Spark's classes is, and when Java is told of it."""

import os
import stat
from pathlib import Path

import pytest

from penstock.pipeline.class_data import ClassData, class_data
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.java import Java
from penstock.pipeline.session import java_options, with_java_options


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(java: Java) -> ClassData:
    archive = class_data(java)
    archive.stem.parent.mkdir(parents=True, exist_ok=True)
    archive.stem.parent.chmod(0o755)
    archive.file_of(7).write_bytes(b"classes")
    archive.file_of(7).chmod(0o444)
    return archive


def test_each_java_has_a_file_in_the_folder_for_caches(cache: Path, tmp_path: Path) -> None:
    one = written(Java(17, tmp_path / "a", "17.0.1"))
    assert one.file
    assert one.file.is_relative_to(cache / "penstock" / "java")
    other = written(Java(17, tmp_path / "b", "17.0.1"))
    upgraded = written(Java(17, tmp_path / "a", "17.0.2"))
    assert len({one.file, other.file, upgraded.file}) == 3
    assert upgraded.older() == [one.file]
    assert other.older() == []


@pytest.mark.parametrize(("version", "option"), [(17, "-XX:SharedArchiveFile="), (25, "-XX:AOTCache=")])
def test_java_is_told_of_a_file_that_is_there(version: int, option: str, tmp_path: Path) -> None:
    java = Java(version, tmp_path / "a", "1")
    assert class_data(java).using() == []
    archive = written(java)
    used, log = archive.using()
    assert used == f"{option}{archive.file}"
    assert log.startswith("-Xlog:cds*=off")


@pytest.mark.parametrize("damage", [b"class", b"", b"classes and more"])
def test_a_file_of_another_size_than_it_had_is_not_used(damage: bytes, tmp_path: Path) -> None:
    archive = written(Java(17, tmp_path / "a", "1"))
    file = archive.file_of(7)
    file.chmod(0o644)
    file.write_bytes(damage)
    assert archive.file is None
    assert archive.using() == []
    assert archive.older() == [file]


@pytest.mark.parametrize(("folder", "file"), [(0o775, 0o444), (0o757, 0o444), (0o755, 0o464), (0o755, 0o446)])
def test_what_others_may_write_is_not_used(folder: int, file: int, tmp_path: Path) -> None:
    archive = written(Java(17, tmp_path / "a", "1"))
    assert archive.file
    archive.file.chmod(file)
    archive.stem.parent.chmod(folder)
    assert archive.using() == []


def test_what_another_user_wrote_is_not_used_unless_root_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = written(Java(17, tmp_path / "a", "1"))
    mine = archive.stem.parent.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert bool(archive.using()) == (mine == 0)
    whole = Path.stat

    def of_another(path: Path, **options: bool) -> os.stat_result:
        about = list(whole(path, **options))
        about[stat.ST_UID] = mine + 2
        return os.stat_result(about)

    monkeypatch.setattr(Path, "stat", of_another)
    assert archive.using() == []


def test_one_without_an_archive_of_its_own_classes_cannot_write(tmp_path: Path) -> None:
    archive = class_data(Java(21, tmp_path, "21.0.1"))
    with pytest.raises(PipelineError, match=r"has no archive of its own classes.*Java 25 or later"):
        archive.writing(tmp_path / "new")
    (tmp_path / "lib" / "server").mkdir(parents=True)
    (tmp_path / "lib" / "server" / "classes.jsa").touch()
    assert archive.writing(tmp_path / "new")[0] == f"-XX:ArchiveClassesAtExit={tmp_path}/new"
    later = class_data(Java(25, tmp_path / "other", "25.0.1"))
    assert later.writing(tmp_path / "new")[0] == f"-XX:AOTCacheOutput={tmp_path}/new"


def test_options_are_quoted_and_follow_the_others() -> None:
    key = "spark.driver.extraJavaOptions"
    own = java_options({})
    assert with_java_options({key: own}, ["-Da=b c"]) == {key: f'{own} "-Da=b c"'}
    assert with_java_options({}, ["-Da"]) == {key: '"-Da"'}

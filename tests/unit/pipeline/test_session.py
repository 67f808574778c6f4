import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError
from tests.support.waiting import until

from penstock.pipeline import session as module
from penstock.pipeline.class_data import class_data
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.java import Java
from penstock.pipeline.session import Starting, java_options, settings_for, threads


@pytest.mark.parametrize(
    ("master", "count"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[*]", os.cpu_count())]
)
def test_threads(master: str, count: int) -> None:
    assert threads(master) == count


def test_only_a_local_session_is_bound_to_loopback() -> None:
    assert settings_for("local[2]", {})["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in settings_for("spark://somewhere:7077", {})


def test_only_a_local_session_takes_its_checkpoints_for_local_files() -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    assert name in settings_for("local[2]", {})
    assert name not in settings_for("spark://somewhere:7077", {})


def test_what_is_given_wins() -> None:
    assert settings_for("local[2]", {"spark.driver.memory": "4g"})["spark.driver.memory"] == "4g"


def test_sparks_ui_is_off_unless_it_is_asked_for() -> None:
    assert settings_for("local[2]", {})["spark.ui.enabled"] == "false"
    assert settings_for("local[2]", {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


def test_a_cluster_does_not_get_sparks_200_partitions() -> None:
    assert settings_for("spark://somewhere:7077", {})["spark.sql.shuffle.partitions"] == "16"
    given = {"spark.sql.shuffle.partitions": "64"}
    assert settings_for("spark://somewhere:7077", given)["spark.sql.shuffle.partitions"] == "64"


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which nothing is said of Java; where Spark's own settings are."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return tmp_path


def test_a_short_run_is_compiled_quickly(two_processors: Path) -> None:
    assert "-XX:TieredStopAtLevel=1" in java_options({}, short=True)
    assert "-XX:TieredStopAtLevel=1" not in java_options({})
    assert "Tier4" not in java_options({}, short=True)


def test_few_processors_and_sparks_own_heap_take_the_serial_collector(
    two_processors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "-XX:+UseSerialGC" in java_options({})
    assert "GC" not in java_options({"spark.driver.memory": "8g"})
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert "GC" not in java_options({})


def test_java_gets_no_second_collector(two_processors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "-Da=b -XX:+UseZGC"
    assert "GC" not in java_options({"spark.driver.defaultJavaOptions": chosen})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseStringDeduplication")
    assert "GC" in java_options({})
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", chosen)
    assert "GC" not in java_options({})
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    (two_processors / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {chosen}\n")
    assert "GC" not in java_options({})


def spark_home(folder: Path, says: str) -> Path:
    """A Spark whose `spark-submit` is a script."""
    script = folder / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\n{says}\n")
    script.chmod(0o700)
    return folder / "spark"


def test_a_java_that_does_not_start_with_kept_classes_says_how_to_remove_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path, "exit 1")))
    settings: Any = {"spark.python.use.daemon": "false"}
    java = Java(17, tmp_path, "17.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "find_java", lambda: tmp_path)
    monkeypatch.setattr(module, "chosen_java", lambda: java)
    with pytest.raises(PySparkRuntimeError):
        module.session(**settings)
    file = class_data(java).file_of(7)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"damaged")
    with pytest.raises(PipelineError, match=rf"{file}.* penstock pipeline prepare-java --remove"):
        module.session(**settings)


def test_a_session_that_nobody_waits_for_leaves_no_java(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path, f"echo $$ > {tmp_path}/pid; read order")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "find_java", lambda: tmp_path)
    monkeypatch.setattr(module, "chosen_java", lambda: Java(17, tmp_path, "17.0.1"))
    settings: Any = {"spark.python.use.daemon": "false"}
    starting = Starting(**settings)
    assert "JAVA_HOME" not in os.environ or os.environ["JAVA_HOME"] != str(tmp_path)
    until(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().endswith("\n"))
    starting.cancel()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pid", "spark"]

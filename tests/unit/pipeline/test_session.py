import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.pipeline import session as module
from penstock.pipeline.session import java_options, settings_for, short_run, spark_python, threads


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
    key = "spark.driver.extraJavaOptions"
    assert "-XX:TieredStopAtLevel=1" in settings_for("local[2]", short_run({}))[key]
    assert short_run({key: "-Da=b"}) == {key: "-Da=b"}


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


# PySpark leaves its pipe to the JVM that did not start to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_java_that_does_not_start_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(spark_home(tmp_path, "echo $JAVA_HOME > java; exit 1")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "find_java", lambda: tmp_path)
    before = dict(os.environ)
    with pytest.raises(PySparkRuntimeError):
        module.session()
    assert dict(os.environ) == before
    assert (tmp_path / "java").read_text() == f"{tmp_path}\n"


def test_sparks_python_has_no_archives_of_pyspark_on_its_path() -> None:
    archives = Path(pyspark.__file__).parent / "python" / "lib"
    kept = ["/some where", str(archives.parent)]
    path = os.pathsep.join([f"{archives}/pyspark.zip", kept[0], f"{archives}/py4j-src.zip", kept[1]])
    said = subprocess.run(
        [spark_python(), "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == os.pathsep.join(kept)


def test_the_interpreter_itself_runs_if_no_script_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert spark_python.__wrapped__() == sys.executable

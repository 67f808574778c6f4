import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.pipeline import session as module
from penstock.pipeline.class_data import class_data
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.java import Java
from penstock.pipeline.session import settings_for, threads


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


def test_a_java_that_does_not_start_with_kept_classes_says_how_to_remove_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(*_: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    settings: Any = {"spark.python.use.daemon": "false"}
    java = Java(17, tmp_path, "17.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "find_java", lambda: tmp_path)
    monkeypatch.setattr(module, "chosen_java", lambda: java)
    monkeypatch.setattr(module, "launch_gateway", crash)
    with pytest.raises(PySparkRuntimeError):
        module.session(**settings)
    file = class_data(java).file_of(7)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"damaged")
    with pytest.raises(PipelineError, match=rf"{file}.* penstock pipeline prepare-java --remove"):
        module.session(**settings)

"""Checkpoints of every version are gone on with: the state of steps, offsets, and a batch that the sinks have already."""

import re
import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import Bench
from tests.vectors.checkpoints.make import FILE

from penstock.pipeline.run.folder import VERSION, Folder
from penstock.testing.server import running

VECTORS = Path(__file__).parents[1] / "vectors" / "checkpoints"
VERSIONS = sorted(int(path.name.split("-")[1].split(".")[0]) for path in VECTORS.glob("version-*.tar.gz"))

# Spark notes the full path of an operator's state.
STATE = re.compile(rb'"file:/[^"]*/checkpoint/state/')


def test_there_is_one_of_each_version() -> None:
    assert list(range(1, VERSION + 1)) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pipeline_goes_on_from_it(spark: SparkSession, tmp_path: Path, version: int) -> None:
    with tarfile.open(VECTORS / f"version-{version}.tar.gz") as tar:
        tar.extractall(tmp_path, filter="data")
    folder = Folder(tmp_path / "state" / "kept")
    owner = folder.owner()
    assert owner is not None
    assert owner.version == version
    for path in folder.checkpoint.rglob("_metadata/*"):
        if path.is_file() and not path.name.startswith("."):
            path.write_bytes(STATE.sub(f'"file:{folder.checkpoint}/state/'.encode(), path.read_bytes()))
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    with running(tmp_path / "data") as server:
        bench = Bench(tmp_path, server.url, spark)
        bench.publish("in", ["3", "z", "5", "0"])
        bench.run_once(FILE)
        for found in (
            [m["value"] for m in bench.messages("out")],
            [row["n"] for row in bench.table("table")],
        ):
            assert sorted(found) == ["0", "1", "2", "3", "4", "5"]
        assert sorted(m["value"] for m in bench.messages("dead")) == ["x", "y", "z"]
    owner = folder.owner()
    assert owner is not None
    assert owner.version == VERSION
    assert [one.suffix for one in owner.sinks.values()] == ["-out", "-table"]

"""Batches whose numbers come again, as from a checkpoint that was rolled back: nothing is lost in silence."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.checkpoints import publish, roll_back, run, source

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


class Case(NamedTuple):
    """A sink of one kind: its targets are topics or tables."""

    spark: SparkSession
    server: Address
    folder: Path
    format: str

    @property
    def input(self) -> str:
        return f"{self.folder.name}-in"

    def publish(self, first: int, until: int) -> None:
        publish(self.server.url, self.input, first, until)

    def options(self, target: str) -> dict[str, str]:
        if self.format == "penstock":
            return {"url": self.server.url, "topic": f"{self.folder.name}-{target}"}
        return {"path": str(self.folder / target)}

    def stream(
        self, rows_max: int, checkpoint: str = "checkpoint", target: str = "out", **start: str
    ) -> None:
        frame = source(self.spark, self.server.url, self.input, rows_max, **start)
        run(frame, self.format, self.folder / checkpoint, **self.options(target))

    def write(self, frame: DataFrame, target: str, **options: Any) -> None:
        options |= self.options(target)
        frame.write.format(self.format).options(**options).mode("append").save()

    def numbers(self, target: str) -> list[int]:
        """What has arrived."""
        reader = self.spark.read.format(self.format)
        if self.format == "penstock":
            reader = reader.options(url=self.server.url, subscribe=self.options(target)["topic"])
        else:
            reader = reader.options(**self.options(target))
        return sorted(int(bytes(row.value)) for row in reader.load().select("value").collect())


@pytest.fixture(params=["penstock", "penstock_lake"])
def case(request: pytest.FixtureRequest, spark: SparkSession, server: Address, tmp_path: Path) -> Case:
    return Case(spark, server, tmp_path, request.param)


def numbers(spark: SparkSession, first: int, until: int) -> DataFrame:
    return spark.range(first, until).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value")


def test_a_checkpoint_that_lost_two_batches_fails_the_query_when_new_rows_came(case: Case) -> None:
    case.publish(0, 300)
    case.stream(100)
    assert roll_back(case.folder / "checkpoint", 2) == [1, 2]
    case.publish(300, 1100)
    for _ in range(2):  # a restart does not help, and harms nothing
        with pytest.raises(PySparkException, match=r"batch 2 .*'Batches that come again' in docs/spark.md"):
            case.stream(1000)
        assert case.numbers("out") == list(range(300)), "what was committed is there, and nothing else"
    # The recipe: a new checkpoint, from where the committed rows end.
    case.stream(1000, "new", startingOffsets=f'{{"{case.input}": {{"0": 300}}}}')
    assert case.numbers("out") == list(range(1100))


def test_a_checkpoint_that_lost_one_batch_fails_the_query_when_it_has_other_rows(case: Case) -> None:
    case.publish(0, 300)
    case.stream(100)
    assert roll_back(case.folder / "checkpoint", 1) == [2]
    case.publish(300, 500)
    with pytest.raises(PySparkException, match="Batches that come again"):
        case.stream(1000)
    assert case.numbers("out") == list(range(300))


def test_a_checkpoint_that_lost_one_batch_goes_on_with_the_same_rows(
    case: Case, capfd: pytest.CaptureFixture[str]
) -> None:
    case.publish(0, 300)
    case.stream(100)
    assert roll_back(case.folder / "checkpoint", 1) == [2]
    case.publish(300, 500)
    capfd.readouterr()
    case.stream(100)
    assert case.numbers("out") == list(range(500)), "each once"
    said = capfd.readouterr().err
    assert "a repeat and " in said
    assert "100 " in said


def test_a_copied_checkpoint_writes_to_another_target_as_if_it_were_the_first(case: Case) -> None:
    case.publish(0, 300)
    case.stream(100)
    shutil.copytree(case.folder / "checkpoint", case.folder / "copied")
    assert roll_back(case.folder / "copied", 2) == [1, 2]
    case.publish(300, 400)
    case.stream(1000, "copied", "other")
    assert case.numbers("other") == list(range(100, 400))
    case.stream(1000)
    assert case.numbers("out") == list(range(400))


def test_a_batch_of_a_lower_number_is_a_conflict_and_needs_another_writer(case: Case) -> None:
    case.write(numbers(case.spark, 0, 10), "out", writer="nightly", batch=20261122)
    with pytest.raises(PySparkException, match=r"batch 20261122 .*batch.*20261121"):
        case.write(numbers(case.spark, 10, 20), "out", writer="nightly", batch=20261121)
    with pytest.raises(PySparkException, match="Batches that come again"):
        case.write(numbers(case.spark, 0, 0), "out", writer="nightly", batch=20261121)
    assert case.numbers("out") == list(range(10))
    for _ in range(2):
        case.write(numbers(case.spark, 10, 20), "out", writer="nightly-backfill-20261121", batch=0)
    case.write(numbers(case.spark, 20, 30), "out", writer="nightly", batch=20261123)
    assert case.numbers("out") == list(range(30))


def test_one_writer_and_batch_in_two_targets_are_two_commits(case: Case) -> None:
    case.publish(0, 300)

    def both(rows: DataFrame, batch: int) -> None:
        for target in ("first", "second"):
            case.write(rows, target, writer=case.folder.name, batch=batch)

    frame = source(case.spark, case.server.url, case.input, 100)
    query = frame.writeStream.foreachBatch(both).option("checkpointLocation", str(case.folder / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    for target in ("first", "second"):
        assert case.numbers(target) == list(range(300))


def test_an_empty_batch_is_a_batch_too(case: Case) -> None:
    case.write(numbers(case.spark, 0, 10), "out", writer="w", batch=3)
    case.write(numbers(case.spark, 0, 0), "out", writer="w", batch=4)
    case.write(numbers(case.spark, 0, 0), "out", writer="w", batch=4)
    for batch in (3, 2):
        with pytest.raises(PySparkException, match="Batches that come again"):
            case.write(numbers(case.spark, 0, 0), "out", writer="w", batch=batch)
    case.write(numbers(case.spark, 10, 20), "out", writer="w", batch=5)
    assert case.numbers("out") == list(range(20))


def test_the_recipes_of_the_docs_work_as_printed(
    spark: SparkSession, server: Address, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    blocks = [
        found for found in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "\ndef " in f"\n{found}"
    ]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("http://127.0.0.1:8080", server.url), names)
    case = Case(spark, server, tmp_path, "penstock")

    def numbers_in(topic: str) -> list[int]:
        reader = spark.read.format("penstock").options(url=server.url, subscribe=topic)
        return sorted(int(bytes(row.value)) for row in reader.load().collect())

    case.write(numbers(spark, 0, 10), "unused", writer="nightly", batch=20261122)
    for _ in range(2):  # one that was broken off
        names["backfill"](numbers(spark, 10, 20), 20261121)
    assert numbers_in("daily") == list(range(10, 20))

    rows = spark.range(0, 20_000, 1000).selectExpr("CAST(CAST(id AS STRING) AS BINARY) AS value", "id AS ms")
    for batch in (0, 1, 1):
        names["write_batch"](rows, batch)
    every = list(range(0, 20_000, 1000))
    assert numbers_in("served") == sorted(2 * every), "two writes to one topic, each once a batch"
    assert numbers_in("alarms") == sorted(2 * [n for n in every if n >= 10_000])


def test_numbered_rows_are_no_repeat_where_the_topic_has_later_ones(
    spark: SparkSession, server: Address, tmp_path: Path
) -> None:
    case = Case(spark, server, tmp_path, "penstock")
    case.publish(0, 300)
    frame = source(spark, server.url, case.input, 100)
    options = case.options("out") | {"delivery": "sequence", "ordered": "true"}
    run(frame, "penstock", tmp_path / "checkpoint", **options)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copied")
    assert roll_back(tmp_path / "checkpoint", 1) == [2]
    run(frame, "penstock", tmp_path / "checkpoint", **options)
    assert case.numbers("out") == list(range(300)), "the same rows are a repeat"
    assert roll_back(tmp_path / "copied", 2) == [1, 2]
    case.publish(300, 1100)
    more = source(spark, server.url, case.input, 1000)
    with pytest.raises(
        PySparkException, match=r"up to message 99 of batch 2 already, .*ends at message \d+ of batch 1"
    ):
        run(more, "penstock", tmp_path / "copied", **options)
    assert case.numbers("out") == list(range(300))


def test_a_topic_is_deleted_and_its_job_run_again(spark: SparkSession, server: Address) -> None:
    topic = TopicName.parse("deleted-again")

    def write() -> None:
        options = {"url": server.url, "topic": "deleted-again", "writer": "deleted-again", "batch": "5"}
        numbers(spark, 0, 10).write.format("penstock").options(**options).mode("append").save()

    write()
    with HttpClient(server.url) as http:
        http.call("DELETE", "/admin/v2/persistent/public/default/deleted-again")
        said = r"deleted-again was deleted and created again.*penstock writers forget.*came has 10 messages"
        with pytest.raises(PySparkException, match=said):
            write()
        assert http.offsets(topic, 0).latest == 0
        http.call("DELETE", "/stages/deleted-again", params={"topics": ["deleted-again"]})
        write()
        assert http.offsets(topic, 0).latest == 10

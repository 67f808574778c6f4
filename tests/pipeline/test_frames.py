"""Functions on DataFrames, as a notebook uses them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.declared import WAIT_S, Bench

from penstock.pipeline import Expectation, dead_letters, decode_column, expect, passed, write_batch
from penstock.pipeline.errors import PipelineError
from penstock.testing.server import running

READABLE = Expectation(name="readable", predicate="k IS NOT NULL", action="dead_letter")
POSITIVE = Expectation(name="positive", predicate="n > 0", action="drop")
PARSED = "from_json(CAST(value AS STRING), 'k STRING, n INT') AS f"
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


def test_rows_of_a_frame_are_judged_and_taken_apart(spark: SparkSession) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('a', 1), ('b', -1), (NULL, 2) AS t(k, n)")
    judged = expect(frame, READABLE, POSITIVE, name="orders")
    assert [row.asDict() for row in passed(judged).collect()] == [{"k": "a", "n": 1}]
    (letter,) = dead_letters(judged).collect()
    assert letter["_error"] == "orders: expectation readable: k IS NOT NULL"
    assert bytes(letter["_raw"]) == b'{"n":2}'
    assert [row.asDict() for row in expect(frame, POSITIVE).collect()] == [
        {"k": "a", "n": 1},
        {"k": None, "n": 2},
    ]
    sure = Expectation(name="sure", predicate="n > 0", action="fail")
    with pytest.raises(Exception, match="expectation 'sure' of rows does not hold: n > 0"):
        expect(frame, sure).collect()


def test_bytes_of_a_column_are_decoded_and_broken_ones_are_judged(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1 AS id, X'0A' AS value UNION ALL SELECT 2, X'FFFFFFFFFFFFFFFFFFFFFF'")
    typed = decode_column(frame, "value", SCHEMA, flat=True, on_bad_value="dead_letter")
    judged = expect(typed, on_bad_value="dead_letter")
    assert [(row["id"], row["n"]) for row in passed(judged).collect()] == [(1, 5)]
    (letter,) = dead_letters(judged).collect()
    assert bytes(letter["_raw"]) == b"\xff" * 11
    with pytest.raises(PipelineError, match="there is no type 'avro2' of schemas"):
        decode_column(frame, "value", SCHEMA, schema_type="avro2")


def test_a_batch_is_written_once_with_its_dead_letters(bench: Bench) -> None:
    bench.create("in")
    bench.publish("in", [{"k": "a", "n": 1}, {"k": "b", "n": -1}, "nonsense"])
    source = {"url": bench.url, "subscribe": "in", "startingOffsets": "earliest", "include": "properties"}
    rows = bench.spark.readStream.format("penstock").options(**source).load()
    parsed = rows.selectExpr("*", PARSED).selectExpr("f.*", "value", "key", "properties", "topic", "offset")
    judged = expect(parsed, READABLE, POSITIVE)

    def write(batch: DataFrame, number: int) -> None:
        for _ in range(2):  # the second time as after a failure
            write_batch(
                batch, number, "notebook", key="k", dead_letter_topic="dead", url=bench.url, topic="out"
            )
            good = passed(batch).select("k", "n")
            write_batch(good, number, "notebook", path=str(bench.folder / "table"))

    query = judged.writeStream.foreachBatch(write).option("checkpointLocation", str(bench.folder / "c"))
    started = query.trigger(availableNow=True).start()
    assert started.awaitTermination(WAIT_S)
    assert started.lastProgress is not None
    assert started.lastProgress["observedMetrics"]["rules rows"]["rows"] == 3
    assert [(m["key"], m["value"]) for m in bench.messages("out")] == [("a", '{"k": "a", "n": 1}')]
    (letter,) = bench.messages("dead")
    assert (letter["key"], letter["value"]) == ("?", "nonsense")
    assert letter["properties"]["from"] == "test"
    assert letter["properties"]["x-dlq-topic"] == "persistent://public/default/in"
    assert bench.table("table") == [{"k": "a", "n": 1}]
    with pytest.raises(PipelineError, match="the frame has dead letters: name dead_letter_topic"):
        write_batch(judged, 0, "notebook", url=bench.url, topic="out")

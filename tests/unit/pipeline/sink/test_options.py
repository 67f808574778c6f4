"""Options and columns that cannot be are refused by name."""

import pytest
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StringType, StructType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.sink.options import Delivery, came_from_topic, check_columns, offered, parse_options

URL = {"url": "http://127.0.0.1:1"}


def test_defaults() -> None:
    options = parse_options({**URL, "TOPIC": "a", "checkpointLocation": "/x"}, streaming=True)
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert str(options.topic) == "persistent://public/default/a"
    assert (options.writer, options.batch, options.compression) == ("", -1, 0)


def test_without_staged_publishing_nothing_is_exactly_once() -> None:
    default = parse_options({**URL, "topic": "a"}, streaming=True)
    named = parse_options({**URL, "topic": "a", "delivery": "exactly_once"}, streaming=True)
    sequence = parse_options({**URL, "topic": "a", "delivery": "sequence", "ordered": "true"}, streaming=True)
    assert offered(default, staged=True) is offered(named, staged=True) is Delivery.EXACTLY_ONCE
    assert offered(default, staged=False) is Delivery.AT_LEAST_ONCE
    assert offered(sequence, staged=False) is Delivery.SEQUENCE
    with pytest.raises(PipelineError, match="no staged publishing"):
        offered(named, staged=False)


@pytest.mark.parametrize(
    ("given", "streaming", "message"),
    [
        ({}, False, "option url is missing"),
        ({**URL, "tpoic": "a"}, False, "unknown option tpoic"),
        ({**URL, "topic": "a//b//c"}, False, "option topic: "),
        ({**URL, "topic": "non-persistent://public/default/a"}, False, "option topic: .* keeps nothing"),
        ({**URL, "delivery": "twice"}, False, "option delivery: 'twice' is none of exactly_once, sequence"),
        ({**URL, "delivery": "sequence"}, True, "ordered=true"),
        ({**URL, "ordered": "maybe"}, True, "option ordered: 'maybe'"),
        ({**URL, "writer": "w"}, False, "writer and batch go together"),
        ({**URL, "batch": "1"}, False, "writer and batch go together"),
        ({**URL, "writer": " ", "batch": "1"}, False, "option writer is empty"),
        ({**URL, "writer": "w", "batch": "-1"}, False, "option batch: '-1'"),
        ({**URL, "writer": "w", "batch": "1"}, True, "a stream numbers its batches itself"),
        ({**URL, "compression": "rar"}, False, "option compression: 'rar' is none of none, lz4"),
        ({**URL, "value.encode": "xml"}, False, "option value.encode: 'xml' is none of auto"),
        ({**URL, "deadLetterTopic": ""}, False, "option deadLetterTopic: "),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_options(given, streaming=streaming)


HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))
STRINGS = MapType(StringType(), StringType())


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": "string"}, True, "column value is missing"),
        ({"value": "string", "colour": "string"}, True, "column colour is none that a topic takes"),
        ({"value": "string"}, False, "option topic or a column topic is needed"),
        ({"value": "string", "key": "integer"}, True, "column key is int; it must be string or binary"),
        ({"value": "string", "topic": "binary"}, False, "column topic is binary; it must be string"),
        ({"value": "string", "partition": "string"}, True, "column partition is string; it must be a whole"),
        (
            {"value": "string", "event_time": "long"},
            True,
            "column event_time is bigint; it must be timestamp",
        ),
        (
            {"value": "string", "properties": MapType(StringType(), LongType())},
            True,
            "column properties is map<string,bigint>",
        ),
        ({"value": "string", "headers": ArrayType(StringType())}, True, "column headers is array<string>"),
        (
            {"value": "string", "deliver_at": "timestamp", "deliver_after_ms": "integer"},
            True,
            "deliver_at and deliver_after_ms exclude",
        ),
        (
            {"value": "string", "properties": STRINGS, "headers": HEADERS},
            True,
            "properties and headers exclude",
        ),
        ({"value": "string", "topic": "string", "offset": "long"}, False, "option topic is needed"),
        ({"value": "string", "_error": "string"}, True, "option deadLetterTopic"),
    ],
)
def test_columns_that_cannot_be(columns: dict[str, str | DataType], topic: bool, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        check_columns(schema(columns), topic=topic, dead_letter_topic=False)


def test_a_column_that_is_there_twice() -> None:
    twice = StructType([*schema({"value": "string"}).fields] * 2)
    with pytest.raises(PipelineError, match="column value is there twice"):
        check_columns(twice, topic=True, dead_letter_topic=False)


def test_what_the_source_gives_can_be_written() -> None:
    columns: dict[str, str | DataType] = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "integer",
        "offset": "long",
        "timestamp": "timestamp",
        "timestampType": "integer",
    }
    check_columns(schema(columns), topic=True, dead_letter_topic=False)
    assert came_from_topic(schema(columns))
    assert not came_from_topic(schema({"value": "binary", "topic": "string"}))
    rejected = schema({**columns, "_raw": "binary", "_error": "string"})
    check_columns(rejected, topic=True, dead_letter_topic=True)
    # It takes both options: the columns alone do not say where the rows go.
    with pytest.raises(PipelineError, match="option topic is needed"):
        check_columns(rejected, topic=False, dead_letter_topic=True)
    with pytest.raises(PipelineError, match="option deadLetterTopic"):
        check_columns(rejected, topic=True, dead_letter_topic=False)


def schema(columns: dict[str, str | DataType]) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made

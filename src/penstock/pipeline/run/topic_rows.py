"""Rows as a topic's writer takes them: those of a view, and dead letters, beside good rows or alone.

The writer sends every row with an `_error` to the dead-letter topic, in the same commit as the others, its value
being `_raw`, with properties `x-dlq-…` that say where it came from and why it was turned away.
"""

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Sink, Spec

_ROLES = ("key", "properties", "event_time", "ordering_key")

# A letter that was dead before keeps its own properties, but not why it died then.
PREFIX: Final = "x-dlq-"
ROW: Final = f"{PREFIX}row"  # how the value was written, where it is that of a row and not of a message


def topic_rows(spec: Spec, name: str, sink: Sink, frame: DataFrame) -> DataFrame:
    """Rows with `value` and, where the file says which, `key`, `properties`, `event_time`, `ordering_key`, `topic`.

    Raises PipelineError for a column that is not there.
    """
    columns = [_value(spec, name, sink, frame).alias("value")]
    for role in _ROLES:
        if column := getattr(sink, role):
            found = _column(spec, name, role, column, frame)
            binary = dict(frame.dtypes)[column] == "binary"
            columns.append((found if binary or role != "key" else found.cast("string")).alias(role))
    if sink.topic_column:
        columns.append(_column(spec, name, "topic_column", sink.topic_column, frame).alias("topic"))
    return frame.select(*columns)


def _value(spec: Spec, name: str, sink: Sink, frame: DataFrame) -> Column:
    if isinstance(sink.value, str):
        return _column(spec, name, "value", sink.value, frame)
    chosen = sink.value
    if not chosen:
        if "value" in frame.columns:
            return f.col("value")
        taken = {*(getattr(sink, role) for role in _ROLES[1:]), sink.topic_column}
        chosen = tuple(column for column in frame.columns if column not in taken)
    if not chosen:
        raise PipelineError(f"{spec.file}: [sinks.{name}] value: no column is left for it")
    return f.struct(*(_column(spec, name, "value", column, frame) for column in chosen))


def _column(spec: Spec, name: str, key: str, column: str, frame: DataFrame) -> Column:
    if column not in frame.columns:
        raise PipelineError(
            f"{spec.file}: [sinks.{name}] {key}: {spec.sinks[name].input} has no column {column!r}; there are"
            f" {', '.join(frame.columns)}"
        )
    return f.col(f"`{column}`")


def letters(dead: DataFrame) -> DataFrame:
    """Rows of `checks.dead_column`, without a `value`. What no longer holds its message's bytes is JSON in `_raw`."""
    own = f.map_filter("properties", lambda name, _: ~f.startswith(name, f.lit(PREFIX)))
    json = f.create_map(f.lit(ROW), f.lit("json"))
    row = f.when(own.isNull(), json).otherwise(f.map_concat(own, json))
    return dead.select(
        f.col("key"),
        f.when(f.col("whole"), own).otherwise(row).alias("properties"),
        *("event_time", "ordering_key", "topic", "partition", "offset", "schema_version"),
        f.col("value").alias("_raw"),
        f.concat(f.col("why.view"), f.lit(": "), f.col("why.text")).alias("_error"),
    )


def alone(found: DataFrame) -> DataFrame:
    """Letters that go out by themselves."""
    return found.withColumn("value", f.lit(None).cast("binary"))


def beside(rows: DataFrame, found: DataFrame) -> DataFrame:
    """Letters that go out with good rows."""
    # Not the other way round: a letter's key may be bytes that are no text.
    rows = reduce(
        lambda frame, name: frame.withColumn(name, f.col(name).cast("binary")),
        (name for name in ("key", "ordering_key") if name in rows.columns),
        rows,
    )
    return rows.unionByName(found, allowMissingColumns=True)

"""All that a pipeline puts out, as one streaming frame: the rows of every sink, and dead letters.

A query has one output. So the rows of all sinks travel together, each in a struct column of its sink's, and a batch is
split again when written (`writing`). A view that only sinks read carries its dead letters along; those of other
views are a separate branch, which shares its common part with the view (`sharing`).

A topic's writer sends every row with an `_error` to the dead-letter topic, in the same commit as the others, its value
being `_raw`, with properties `x-dlq-…` for its origin and the reason of its rejection.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.options import DELETED
from penstock.pipeline.spec.spec import Sink, Spec

from .checks import DEAD, visible
from .events import METRICS
from .views import View, named, readings

_ROLES = ("key", "properties", "event_time", "ordering_key")

# A letter that was dead before keeps its own properties, but not why it died then.
PREFIX: Final = "x-dlq-"
ROW: Final = f"{PREFIX}row"  # how the value was written, if it is that of a row and not of a message


class Outputs(msgspec.Struct):
    """A frame with a column of structs for each sink, `columns`, and one of dead letters if there may be some."""

    frame: Any  # DataFrame
    columns: dict[str, str]  # by sink
    letters: bool
    readings: int  # how often a batch of a source is read


def collect_outputs(spec: Spec, views: Mapping[str, View]) -> Outputs:
    """Put together what goes out. Raises PipelineError for a column that a sink names and a view has not."""
    columns = {name: f"sink_{number}" for number, name in enumerate(spec.sinks)}
    order = list(dict.fromkeys(sink.input for sink in spec.sinks.values()))
    branches: list[DataFrame] = []
    for view in order:
        whole = views[view].frame if views[view].whole is None else views[view].whole
        made = [
            _packed(spec, name, whole, views[view].frame).alias(columns[name])
            for name, sink in spec.sinks.items()
            if sink.input == view
        ]
        branches.append(whole.select(*made, *([DEAD] if DEAD in whole.columns else [])))
    ends = list(order)
    for view, found in views.items():
        letters = found.letters
        if found.whole is not None and view not in order:
            letters = found.whole.where(f.col(DEAD).isNotNull()).select(DEAD)
        if letters is not None:
            branches.append(letters)
            ends.append(view)
    frame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), branches)
    has_letters = DEAD in frame.columns
    good = f.col(DEAD).isNull() if has_letters else f.lit(True)
    counts = {"written": f.count_if(good), "dead_letters": f.count_if(~good)}
    frame = frame.observe(METRICS, *(count.alias(name) for name, count in counts.items()))
    if has_letters:
        frame = frame.withColumn(DEAD, letter(f.col(DEAD)))
    return Outputs(frame, columns, has_letters, readings(spec, views, ends))


def _packed(spec: Spec, name: str, whole: DataFrame, passed: DataFrame) -> Column:
    """The rows of a sink, null for dead letters."""
    row = f.struct(*sink_columns(spec, name, passed))
    return f.when(f.col(DEAD).isNull(), row) if DEAD in whole.columns else row


def sink_columns(spec: Spec, name: str, frame: DataFrame) -> list[Column]:
    """The columns that a sink takes of its view: of a topic `value` and, if the file names them, `key`, `properties`, `event_time`,
    `ordering_key`, `topic`; of all others all columns. Raises PipelineError for a column that is not there."""
    sink = spec.sinks[name]
    frame = frame.select(*(f.col(f"`{column}`") for column in visible(frame)))
    if sink.path or sink.foreign:
        chosen = [f.col(f"`{column}`") for column in frame.columns]
        if sink.delete_when:
            with named(spec, f"[sinks.{name}] delete_when"):
                frame.selectExpr(f"CAST(({sink.delete_when}) AS BOOLEAN)")
            chosen.append(f.expr(f"CAST(({sink.delete_when}) AS BOOLEAN)").alias(DELETED))
        return chosen
    columns = [_value(spec, name, sink, frame).alias("value")]
    for role in _ROLES:
        if column := getattr(sink, role):
            found = _column(spec, name, role, column, frame)
            binary = dict(frame.dtypes)[column] == "binary"
            columns.append((found if binary or role != "key" else found.cast("string")).alias(role))
    if sink.topic_column:
        columns.append(_column(spec, name, "topic_column", sink.topic_column, frame).alias("topic"))
    return columns


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
    check_column(spec, name, key, column, frame.columns)
    return f.col(f"`{column}`")


def check_column(spec: Spec, name: str, key: str, column: str, there: Sequence[str]) -> None:
    """Raises PipelineError for a column that a sink names, and its input does not have."""
    if column not in there:
        raise PipelineError(
            f"{spec.file}: [sinks.{name}] {key}: {spec.sinks[name].input} has no column {column!r}; there are"
            f" {', '.join(there)}"
        )


def letter(dead: Column) -> Column:
    """What a topic's writer takes of `checks.dead_column`. What no longer holds its message's bytes is JSON in `_raw`."""
    own = f.map_filter(dead["properties"], lambda name, _: ~f.startswith(name, f.lit(PREFIX)))
    json = f.create_map(f.lit(ROW), f.lit("json"))
    row = f.when(own.isNull(), json).otherwise(f.map_concat(own, json))
    columns = {
        "key": dead["key"],
        "properties": f.when(dead["whole"], own).otherwise(row),
        **{name: dead[name] for name in _OF_LETTERS},
        "_raw": dead["value"],
        "_error": f.concat(dead["why"]["view"], f.lit(": "), dead["why"]["text"]),
    }
    return f.when(dead.isNotNull(), f.struct(*(column.alias(name) for name, column in columns.items())))


_OF_LETTERS: Final = ("event_time", "ordering_key", "topic", "partition", "offset", "schema_version")

"""All that a pipeline puts out, as one streaming frame: the rows of every sink, and those that were rejected.

A query has one output. So the rows of several views travel together, each in a struct column of its own, and the
batch is split again where it is written. A view that only sinks read carries its rejected rows along; those of
other views are a branch of their own, which Spark reads a second time from the source.

A topic's writer sends every row with an `_error` to the dead-letter topic, in the same commit as the others, its value
being `_raw`, with properties `x-dlq-…` that say where it came from and why it was rejected.
"""

from functools import reduce
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Sink, Source, Spec, Step

from .checks import KEY, RAW, WHY, dead_column, visible
from .events import METRICS
from .views import View, feeds_steps

_VIEW: Final = "_view"
_DEAD: Final = "dead"

_ROLES = ("key", "properties", "event_time", "ordering_key")

# A letter that was dead before keeps its own properties, but not why it died then.
PREFIX: Final = "x-dlq-"
ROW: Final = f"{PREFIX}row"  # how the value was written, where it is that of a row and not of a message


class Outputs(msgspec.Struct):
    """A frame and how to split a batch of it. `mixed` frames hold several views or rejected rows."""

    frame: Any
    order: list[str]  # the views that sinks read
    mixed: bool
    branches: int
    has_dead_letters: bool = False  # whether some rejected rows become dead letters

    def rows(self, batch: DataFrame, view: str) -> DataFrame:
        """The rows of one view in a batch."""
        if not self.mixed:
            return batch
        number = self.order.index(view)
        mine = (f.col(_VIEW) == number) & f.col(_DEAD).isNull()
        return batch.where(mine).select(f"v{number}.*")

    def dead(self, batch: DataFrame) -> DataFrame | None:
        """The rows of a batch that become dead letters: the columns of `checks.dead_column`."""
        if not self.has_dead_letters:
            return None
        return batch.where(f.col("dead.why.action") == "dead_letter").select("dead.*")


def collect_outputs(spec: Spec, views: dict[str, View]) -> Outputs:
    """Put together what goes out."""
    order = list(dict.fromkeys(sink.input for sink in spec.sinks.values()))
    rejecting = [view for view in views.values() if view.checked is not None]
    if len(order) == 1 and not rejecting:
        frame = views[order[0]].frame.drop(RAW, KEY).observe(METRICS, f.count(f.lit(1)).alias("written"))
        return Outputs(frame, order, mixed=False, branches=1)
    branches: list[DataFrame] = []
    for number, name in enumerate(order):
        view = views[name]
        whole = view.checked if view.checked is not None and not feeds_steps(spec, name) else view.frame
        columns = [f.lit(number).alias(_VIEW), _packed(whole).alias(f"v{number}")]
        if WHY in whole.columns:
            columns.append(dead_column(whole).alias(_DEAD))
        branches.append(whole.select(*columns))
    for view in rejecting:
        if view.name not in order or feeds_steps(spec, view.name):
            rejected = view.checked.where(f.col(WHY).isNotNull())
            branches.append(rejected.select(f.lit(-1).alias(_VIEW), dead_column(rejected).alias(_DEAD)))
    frame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), branches)
    counts = {"written": f.count(f.lit(1))}
    if _DEAD in frame.columns:
        action = f.col("dead.why.action")
        counts = {
            "written": f.count_if(f.col(_DEAD).isNull()),
            "dead_letters": f.count_if(action == "dead_letter"),
            "dropped": f.count_if(action == "drop"),
        }
    frame = frame.observe(METRICS, *(count.alias(name) for name, count in counts.items()))
    return Outputs(
        frame, order, mixed=True, branches=len(branches), has_dead_letters=_makes_dead_letters(spec)
    )


def _makes_dead_letters(spec: Spec) -> bool:
    views: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    return (
        any(source.on_bad_value == "dead_letter" for source in spec.sources.values())
        or any(one.action == "dead_letter" for view in views for one in view.expect)
        or any(view.watermark is not None and view.watermark.late == "dead_letter" for view in views)
    )


def _packed(frame: DataFrame) -> Column:
    return f.struct(*(f.col(f"`{name}`") for name in visible(frame)))


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


def dead_letters(dead: DataFrame) -> DataFrame:
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


def dead_letters_alone(found: DataFrame) -> DataFrame:
    """Dead letters that go out by themselves."""
    return found.withColumn("value", f.lit(None).cast("binary"))


def with_dead_letters(rows: DataFrame, found: DataFrame) -> DataFrame:
    """Dead letters that go out with good rows."""
    # Not the other way round: a letter's key may be bytes that are no text.
    rows = reduce(
        lambda frame, name: frame.withColumn(name, f.col(name).cast("binary")),
        (name for name in ("key", "ordering_key") if name in rows.columns),
        rows,
    )
    return rows.unionByName(found, allowMissingColumns=True)

"""The columns of a view as those that a topic's writer takes."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Sink, Spec

_ROLES = ("key", "properties", "event_time", "ordering_key")


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
            f"{spec.file}: [sinks.{name}] {key}: {sink_input(spec, name)} has no column {column!r}; there are"
            f" {', '.join(frame.columns)}"
        )
    return f.col(f"`{column}`")


def sink_input(spec: Spec, name: str) -> str:
    """The view that a sink takes."""
    return spec.sinks[name].input

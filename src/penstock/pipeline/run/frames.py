"""The rules, dead letters and writes of declared pipelines as functions on DataFrames, for notebooks and jobs."""

from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.frame import decode_column as decode_by
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Divert, Source, Step
from penstock.pipeline.spec.spec import Expectation as Expectation  # for users, too

from . import checks
from .checks import WHY, visible
from .outputs import letter

_LETTER = ("properties", "topic", "partition", "offset", "schema_version", "_raw", "_error")


def decode_column(
    frame: DataFrame,
    column: str,
    schema: str,
    *,
    schema_type: str = "AVRO",
    flat: bool = False,
    on_bad_value: Literal["fail", "drop", "dead_letter"] = "fail",
) -> DataFrame:
    """`frame` with the bytes of a column as typed values, in place or, with `flat`, as columns at the end.

    Args:
        schema: The definition of a schema of type AVRO, JSON or PROTOBUF; ignored for primitives.
        on_bad_value: `fail`, or what `expect` gets: then `_raw` and `_error` have the undecodable bytes and the reason.

    Raises PipelineError for a column or schema that cannot be decoded so.
    """
    try:
        kind = SchemaType[schema_type.upper()]
    except KeyError:
        raise PipelineError(f"schema_type: there is no type {schema_type!r} of schemas") from None
    info = SchemaInfo(kind, schema.encode())
    return decode_by(frame, column, info, flat=flat, keeps_broken=on_bad_value != "fail")


def expect(
    frame: DataFrame, *rules: Expectation, name: str = "rows", on_bad_value: Divert | None = None
) -> DataFrame:
    """The rows that no rule drops; if the action of a rule is `dead_letter`, with those that it rejects (`_why`).

    `passed` and `dead_letters` take the two apart. A row that breaks a rule with the action `fail` fails its task. Rows are
    counted by rule: the metrics `rules NAME` of a streaming query's progress have the counts. `on_bad_value` judges the rows
    that `decode_column` could not decode.
    """
    view: Source | Step = Step(name=name, expect=rules)
    if on_bad_value is not None:
        view = Source(decode="struct", on_bad_value=on_bad_value, expect=rules, include=("_raw",))
    checked = checks.counted(checks.with_reasons(frame, name, view, None), name, view)
    return checked if checks.makes_dead_letters(view) else checks.passed(checked, view)


def passed(checked: DataFrame) -> DataFrame:
    """The rows of `expect` that passed all rules."""
    return checks.without(checked.where(f.col(WHY).isNull()), WHY, checks.ERROR)


def dead_letters(checked: DataFrame) -> DataFrame:
    """The rows of `expect` that are dead letters, for `format("penstock")` with the option `deadLetterTopic`."""
    dead = checked.where(f.col(WHY).isNotNull()).select(letter(checks.dead_column(checked)).alias("dead"))
    return dead.select(f.lit(None).cast("binary").alias("value"), "dead.*")


def write_batch(
    batch: DataFrame, number: int, writer: str, *, key: str = "", dead_letter_topic: str = "", **options: str
) -> None:
    """Write a batch of `foreachBatch` once: a batch that is repeated, under the same writer's name and number, changes nothing.

    The dead letters of `expect` go to a topic in the same commit as the rows that passed.

    Args:
        writer: The name of the writer, one for each query and sink.
        key: The column with the messages' keys.
        options: Of `format("penstock")` (`url`, `topic`, …) or, with `path`, of `format("penstock_lake")`.

    Raises PipelineError for dead letters without a topic, and what the formats raise.
    """
    format_ = "penstock_lake" if "path" in options else "penstock"
    frame, rejects = batch, WHY in batch.columns
    if rejects and (format_ == "penstock_lake" or not dead_letter_topic):
        raise PipelineError(
            "the frame has dead letters: name dead_letter_topic, or write passed(…) and dead_letters(…)"
        )
    if format_ == "penstock":
        names = [name for name in visible(batch) if name != key]
        row = f.col("value") if "value" in names else f.struct(*(f.col(f"`{name}`") for name in names))
        columns = {"value": row}
        if key:
            columns["key"] = f.col(f"`{key}`").cast("string").cast("binary")
        if rejects:
            options["deadLetterTopic"] = dead_letter_topic
            good = f.col(WHY).isNull()
            dead = letter(checks.dead_column(batch))
            columns = {name: f.when(good, column) for name, column in columns.items()}
            columns["key"] = f.coalesce(columns.get("key", f.lit(None).cast("binary")), dead["key"])
            columns |= {name: dead[name] for name in _LETTER}
        frame = batch.select(*(column.alias(name) for name, column in columns.items()))
    frame.write.format(format_).mode("append").options(writer=writer, batch=str(number), **options).save()

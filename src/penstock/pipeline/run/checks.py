"""What rows must pass where they enter a view: they could be read, they are as expected, they are in time.

A check adds a column `_why`, null for rows that pass. Rejected rows are dropped, and counted, where they are found, or
become dead letters: what they need for that is in one column, so that the split can be made later, in one pass.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.rows.columns import BASIC, INCLUDABLE
from penstock.pipeline.spec.options import keeps_bytes_visible
from penstock.pipeline.spec.spec import Expectation, Source, Step

from .events import DROP, WARN

WHY: Final = "_why"
DEAD: Final = "dead"  # what a dead letter needs
WHY_TYPE: Final = "struct<view: string, name: string, action: string, text: string>"
ERROR: Final = "_error"
RAW: Final = "_raw"
KEY: Final = "_key"
HIDDEN: Final = (WHY, ERROR, RAW, KEY)

# What a message has beside its value: a dead letter has it in properties, not in its value.
_OF_MESSAGES: Final = frozenset((*BASIC, *INCLUDABLE)) - {"value"}

_DEAD: Final[Mapping[str, str]] = {
    "key": "binary",
    "properties": "map<string,string>",
    "event_time": "timestamp",
    "ordering_key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "schema_version": "bigint",
}


def rejects(view: Source | Step) -> bool:
    """Whether some rows of a view may be rejected."""
    expected = any(one.action in ("drop", "dead_letter") for one in view.expect)
    return _rejects_unreadable(view) or expected or view.watermark is not None


def makes_dead_letters(view: Source | Step) -> bool:
    """Whether some rows of a view may become dead letters."""
    return (
        (isinstance(view, Source) and view.on_bad_value == "dead_letter")
        or any(one.action == "dead_letter" for one in view.expect)
        or (view.watermark is not None and view.watermark.late == "dead_letter")
    )


def with_reasons(frame: DataFrame, name: str, view: Source | Step, late: Column | None) -> DataFrame:
    """`frame` with the column `_why`; rows that fail an expectation of action `fail` fail the task.

    `late` is true of rows that come after the view's watermark.
    """
    reasons: list[Column] = []
    if isinstance(view, Source) and _rejects_unreadable(view):
        reasons.append(
            f.when(f.col(ERROR).isNotNull(), _why(name, "unreadable", view.on_bad_value, f.col(ERROR)))
        )
    passable = f.col(ERROR).isNull() if reasons else f.lit(True)
    for one in view.expect:
        broken = passable & ~_holds(one)
        if one.action == "fail":
            text = f"expectation {one.name!r} of {name} does not hold: {one.predicate}"
            frame = frame.where(f.when(broken, f.raise_error(text).cast("boolean")).otherwise(f.lit(True)))
        elif one.action != "warn":
            reasons.append(
                f.when(
                    broken,
                    _why(name, one.name, one.action, f.lit(f"expectation {one.name}: {one.predicate}")),
                )
            )
    if view.watermark is not None and late is not None:
        text = f"later than the watermark of {view.watermark.column} ({view.watermark.delay})"
        reasons.append(f.when(late, _why(name, "late", view.watermark.late, f.lit(text))))
    why = f.coalesce(*reasons) if reasons else f.lit(None)
    return frame.withColumn(WHY, why.cast(WHY_TYPE))


def dropped(checked: DataFrame, name: str, view: Source | Step) -> DataFrame:
    """`checked` without the rows that are rejected and kept nowhere; how many they are is counted."""
    drop = f.coalesce(f.col(WHY).getField("action") == "drop", f.lit(False))
    counted = checked.observe(f"{DROP}{name}", f.count_if(drop).alias("rows"))
    return counted.where(~drop if makes_dead_letters(view) else f.col(WHY).isNull())


def passed(checked: DataFrame, view: Source | Step) -> DataFrame:
    """The rows that passed, without what the check needed to know, unless the view is to have it."""
    rows = checked.where(f.col(WHY).isNull()).drop(WHY, ERROR)
    return rows if isinstance(view, Step) or keeps_bytes_visible(view) else rows.drop(RAW, KEY)


def warned(frame: DataFrame, name: str, expect: Iterable[Expectation]) -> DataFrame:
    """`frame` with the rows counted that pass, but break an expectation of action `warn`."""
    passes = f.col(WHY).isNull() if WHY in frame.columns else f.lit(True)
    counts = [f.count_if(passes & ~_holds(one)).alias(one.name) for one in expect if one.action == "warn"]
    return frame.observe(f"{WARN}{name}", *counts) if counts else frame


def dead_column(checked: DataFrame) -> Column:
    """What a rejected row still has of its message, as a struct; null for rows that passed.

    Its `value` is JSON of the row, and `whole` false, where the message's own is no longer there.
    """
    types = dict(checked.dtypes)
    if types.get("value", "").startswith("struct"):
        row = f.col("value")
    else:
        names = visible(checked)
        own = [name for name in names if "offset" not in types or name not in _OF_MESSAGES]
        row = f.struct(*(f.col(f"`{name}`") for name in own or names))
    value, whole = f.to_json(row).cast("binary"), True
    if RAW in types:  # the message as it came; null where its value is
        value = f.col(RAW)
    elif types.get("value") in ("binary", "string"):
        value = f.col("value").cast("binary")
    else:
        whole = False
    columns = [value.alias("value"), f.lit(whole).alias("whole")]
    for name, kind in _DEAD.items():
        if name == "key" and KEY in types:
            columns.append(f.col(KEY).alias(name))
            continue
        fits = types.get(name) == kind or (kind == "binary" and types.get(name) == "string")
        columns.append((f.col(name) if fits else f.lit(None)).cast(kind).alias(name))
    return f.when(f.col(WHY).isNotNull(), f.struct(*columns, f.col(WHY).alias("why")))


def visible(frame: DataFrame) -> list[str]:
    """The columns that are the user's."""
    return [name for name in frame.columns if name not in HIDDEN]


def _rejects_unreadable(view: Source | Step) -> bool:
    return isinstance(view, Source) and view.decode != "none" and view.on_bad_value != "fail"


def _holds(expectation: Expectation) -> Column:
    """Null is not true."""
    return f.coalesce(f.expr(f"({expectation.predicate})").cast("boolean"), f.lit(False))


def _why(view: str, name: str, action: str, text: Column) -> Column:
    texts = {"view": f.lit(view), "name": f.lit(name), "action": f.lit(action), "text": text}
    return f.struct(*(column.alias(field) for field, column in texts.items()))

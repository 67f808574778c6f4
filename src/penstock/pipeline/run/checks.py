"""The checks of rows that enter a view: decoded, as expected, and in time.

A check adds a column `_why`, null for rows that pass. Rejected rows are dropped, and counted, if they are found, or
become dead letters: what they need for that is in one column, so that the split can be made later, in one pass.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.rows.columns import BASIC, INCLUDABLE
from penstock.pipeline.spec.options import keeps_bytes_visible
from penstock.pipeline.spec.spec import Source, Step

from .events import RULES, RULES_ROWS

WHY: Final = "_why"
DEAD: Final = "dead"  # what a dead letter needs
WHY_TYPE: Final = "struct<view: string, rule: string, action: string, text: string>"
ERROR: Final = "_error"
RAW: Final = "_raw"
KEY: Final = "_key"
HIDDEN: Final = (WHY, ERROR, RAW, KEY)

# The fields of a message other than its value: a dead letter has them in properties, not in its value.
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


class Rule(NamedTuple):
    """A rule of a view, by the text under which its rows are counted: see `events.rule_counts`."""

    kind: str  # decode, expectation or lateness
    action: str
    name: str

    def __str__(self) -> str:
        return " ".join(self)


def rules(view: Source | Step) -> Iterator[Rule]:
    """The rules of a view, in the order in which they judge a row."""
    if isinstance(view, Source) and _rejects_unreadable(view):
        yield Rule("decode", view.on_bad_value, "readable")
    for one in view.expect:
        yield Rule("expectation", one.action, one.name)
    if view.watermark is not None:
        yield Rule("lateness", view.watermark.late, view.watermark.column)


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

    def reject(broken: Column, rule: Rule, text: Column) -> None:
        texts = {"view": f.lit(name), "rule": f.lit(str(rule)), "action": f.lit(rule.action), "text": text}
        why = f.struct(*(column.alias(field) for field, column in texts.items()))
        reasons.append(f.when(broken, why))

    passable = f.lit(True)
    expected = {one.name: one for one in view.expect}
    for rule in rules(view):
        if rule.kind == "decode":
            passable = f.col(ERROR).isNull()
            reject(~passable, rule, f.col(ERROR))
        elif rule.kind == "expectation" and rule.action != "warn":
            predicate = expected[rule.name].predicate
            broken = passable & ~holds(predicate)
            if rule.action == "fail":
                text = f"expectation {rule.name!r} of {name} does not hold: {predicate}"
                frame = frame.where(
                    f.when(broken, f.raise_error(text).cast("boolean")).otherwise(f.lit(True))
                )
            else:
                reject(broken, rule, f.lit(f"expectation {rule.name}: {predicate}"))
        elif view.watermark is not None and rule.kind == "lateness" and late is not None:
            text = f"later than the watermark of {view.watermark.column} ({view.watermark.delay})"
            reject(late, rule, f.lit(text))
    why = f.coalesce(*reasons) if reasons else f.lit(None)
    return frame.select("*", why.cast(WHY_TYPE).alias(WHY))


def counted(checked: DataFrame, name: str, view: Source | Step) -> DataFrame:
    """The rows of `with_reasons` counted by rule, as the batch is computed, and without those that are dropped."""
    why = f.col(WHY)
    predicates = {one.name: one.predicate for one in view.expect}
    counts = [f.count(f.lit(1)).alias(RULES_ROWS)]
    for rule in rules(view):
        broken = why["rule"] == str(rule)
        if rule.action == "warn":
            broken = why.isNull() & ~holds(predicates[rule.name])
        counts.append(f.count_if(broken).alias(str(rule)))
    drop = f.coalesce(why["action"] == "drop", f.lit(False))
    return checked.observe(f"{RULES}{name}", *counts).where(
        ~drop if makes_dead_letters(view) else why.isNull()
    )


def passed(checked: DataFrame, view: Source | Step) -> DataFrame:
    """The rows that passed, without what the check needed to know, unless the view is to have it."""
    hidden = (WHY, ERROR) if isinstance(view, Step) or keeps_bytes_visible(view) else HIDDEN
    return without(checked.where(f.col(WHY).isNull()), *hidden)


def without(frame: DataFrame, *names: str) -> DataFrame:
    """`frame.drop(…)`, for which Spark Connect analyses the frame at once: in Spark Declarative Pipelines it may have no tables
    yet. Names of columns that are not there are passed over."""
    return frame.select(frame.colRegex(f"`(?!(?:{'|'.join(names)})$).*`"))


def dead_column(checked: DataFrame) -> Column:
    """What a rejected row still has of its message, as a struct; null for rows that passed.

    Its `value` is JSON of the row, and `whole` false, if the message's own no longer exists.
    """
    types = dict(checked.dtypes)
    if types.get("value", "").startswith("struct"):
        row = f.col("value")
    else:
        names = visible(checked)
        own = [name for name in names if "offset" not in types or name not in _OF_MESSAGES]
        row = f.struct(*(f.col(f"`{name}`") for name in own or names))
    value, whole = f.to_json(row).cast("binary"), True
    if RAW in types:  # the received message; null if its value is
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


def holds(predicate: str) -> Column:
    """Whether a predicate is true; null is not."""
    return f.coalesce(f.expr(f"({predicate})").cast("boolean"), f.lit(False))

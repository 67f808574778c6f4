"""Which rows come too late, found exactly as Spark will find them, but before it drops them.

A stateful operator drops, in batch N, rows that are not newer than the watermark of batch N-1. That watermark is in the
checkpoint: Spark writes it to `offsets/N-1` before batch N-1 runs, and never changes it, so that a batch that is run
again decides alike.

Spark plans each batch anew from one analysed query, so that a constant of the query is the same in all batches. The
watermark is therefore read by a scalar subquery from a table of one row in the driver's memory, whose row is changed
between two batches: no job, no Python, and workers need not reach the checkpoint.

An operator compares the watermark with the event time itself or, if its rows have a window in place of it, with the end of
the window. Spark marks the column to compare by the delay of its watermark, in the column's metadata, and hands the mark on
wherever the column goes. So a draft of the pipeline is analysed in which each view has a delay that no other has (`marked`):
the columns that the first stateful operators compare are those with its mark, however the query is written.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError

from .folder import Folder

_VIEW: Final = "_penstock_watermark"
_VALUE: Final = "(SELECT us FROM _penstock_watermark)"

_DELAY: Final = "spark.watermarkDelayMs"  # of a column's metadata
_MARK_MS: Final = 1_000_000_000_000  # a delay of 31 years and more is a mark

# Operators that compare each of their rows with the watermark; an aggregation compares what it groups by.
_COMPARING: Final = (
    "Distinct",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "TransformWithState",
    "TransformWithStateInPySpark",
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
)
_HOLDING: Final = ("Aggregate", "TransformWithState", "FlatMapGroups")  # rows until the watermark has passed
_TRANSPARENT: Final = ("KnownNullable", "KnownNotNull", "PreciseTimestampConversion", "Cast")


class Window(msgspec.Struct, frozen=True, order=True):
    """Windows of `size` microseconds that begin every `slide` microseconds, `offset` after the epoch."""

    size: int
    slide: int
    offset: int = 0


class BatchWatermark:
    """The watermark that the rows of a batch are compared with."""

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._folder = folder
        table = spark.sql("SELECT us FROM VALUES (CAST(0 AS BIGINT)) AS t(us)")
        table.createOrReplaceTempView(_VIEW)
        plan: Any = table._jdf.queryExecution().analyzed()
        # InlineTable makes a LocalRelation: its row is shared by all plans that are made of this one.
        self._row = plan.collectLeaves().apply(0).data().apply(0)
        self._next = 0
        self._set(folder.last_committed())

    def late(self, event_time: Column, windows: Iterable[Window]) -> Column:
        """True for rows that a stateful operator of the batch would drop, and for those without an event time."""
        return f.coalesce(bound_us(event_time, windows) <= f.expr(_VALUE), f.lit(True))

    def check(self, batch: int) -> None:
        """Raise PipelineError unless the rows of this batch were compared with its own watermark."""
        if batch != self._next:
            raise PipelineError(
                f"batch {batch} came where batch {self._next} was expected: late rows are not known"
            )

    def advance(self, batch: int) -> None:
        """A batch is written: what the next is compared with."""
        self._set(batch)

    @property
    def written(self) -> int:
        """The last batch that is written; -1 before the first."""
        return self._next - 1

    def _set(self, batch: int) -> None:
        self._row.setLong(0, watermark_ms(self._folder, batch) * 1000)
        self._next = batch + 1


def bound_us(event_time: Column, windows: Iterable[Window]) -> Column:
    """The watermark, in microseconds, from which on a row is dropped somewhere."""
    event_us = f.unix_micros(event_time.cast("timestamp"))
    ends = [
        event_us - f.pmod(event_us - f.lit(window.offset), f.lit(window.slide)) + f.lit(window.size)
        for window in windows
    ]
    if not ends:
        return event_us
    return ends[0] if len(ends) == 1 else f.least(*ends)


def begun(folder: Folder) -> bool:
    """Whether some batch may have been written, even if none is finished."""
    return bool(folder.numbers("checkpoint/offsets"))


def interrupted(folder: Folder) -> int | None:
    """The number of the batch that was begun and is not finished, or None."""
    last = max(folder.numbers("checkpoint/offsets"), default=-1)
    return last if last > folder.last_committed() else None


def watermark_ms(folder: Folder, batch: int) -> int:
    """The watermark that a batch ran with; 0 before the first."""
    return 0 if batch < 0 else int(json.loads(folder.offsets(batch)[0])["batchWatermarkMs"])


def marked(frame: DataFrame, column: str, number: int) -> DataFrame:
    """A draft of `frame.withWatermark(column, …)`. It must not be run."""
    return frame.withWatermark(column, f"{_MARK_MS + number} milliseconds")


def deciding_windows(frame: DataFrame) -> dict[int, set[Window | None]]:
    """By number of `marked`, what the first stateful operators above it compare: the end of the last window, or the event
    time itself (None; also for a session window)."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    found = _Search()
    found.visit(plan)
    return found.bounds


def windows_in(frame: DataFrame) -> set[Window]:
    """All windows that the plan of a frame computes, of batches too."""
    found: set[Window | None] = set()
    waiting: list[Any] = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        waiting += _all(node.children())
        made: list[Any] = []
        if node.nodeName() == "Project":
            made = [each.child() for each in _all(node.projectList()) if _is_a(each, "Alias")]
        elif node.nodeName() == "Expand":
            made = list(_all(node.projections().apply(0)))
        found |= {window_of(json.loads(each.toJSON())) for each in made if _is_a(each, "CreateNamedStruct")}
    return {each for each in found if each is not None}


def emits_later(frame: DataFrame) -> bool:
    """Whether a stream has rows of a view, of which `frame` is the batch, when the watermark has passed them, and not at once:
    aggregates of messages, and what keeps or joins them. Those of tables alone do not count."""
    waiting: list[Any] = [frame._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        children = list(_all(node.children()))
        waiting += children
        name = node.nodeName()
        if name.startswith((*_HOLDING, "Join")):
            of_messages = sum(map(_reads_messages, children))
            if of_messages >= (2 if name.startswith("Join") else 1):
                return True
    return False


def _reads_messages(node: Any) -> bool:
    leaves = _all(node.collectLeaves())
    return any(
        each.nodeName() == "CTERelationRef" or each.simpleString(1).endswith(" penstock") for each in leaves
    )


class _Search:
    """A walk through one plan, from the sources up. A plan's nodes are objects of the JVM."""

    def __init__(self) -> None:
        self.bounds: dict[int, set[Window | None]] = {}
        self._common: dict[int, Any] = {}  # WITH …, by Spark's number

    def visit(self, node: Any) -> set[int]:
        """Marks whose rows come out of `node` without having passed a stateful operator."""
        name = node.nodeName()
        if name == "CTERelationRef":
            return self.visit(self._common[node.cteId()])
        if name == "WithCTE":
            definitions, plan = list(_all(node.cteDefs())), node.plan()
            self._common |= {each.id(): each.child() for each in definitions}
            return self.visit(plan)
        children = list(_all(node.children()))
        fresh = [self.visit(child) for child in children]
        if name == "EventTimeWatermark":
            return fresh[0] | set(_marks(node))
        if name == "Aggregate" and node.isStreaming():
            grouping = [each for each in _all(node.groupingExpressions()) if _is_attribute(each)]
            for each in grouping:
                self._compare(children[0], fresh[0], json.loads(each.metadata().json()), each.exprId().id())
            return set()
        if name in _COMPARING or (name == "Join" and all(child.isStreaming() for child in children)):
            for child, marks in zip(children, fresh, strict=True):
                for field, attribute in _marked_columns(child) if marks else ():
                    self._compare(child, marks, field["metadata"], attribute)
            return set()
        return set().union(*fresh)

    def _compare(self, node: Any, fresh: set[int], metadata: Mapping[str, Any], attribute: int) -> None:
        """An operator over `node` compares a column of it."""
        number = metadata.get(_DELAY, 0) - _MARK_MS
        if number in fresh:
            self.bounds.setdefault(number, set()).update(self._made(node, attribute))

    def _made(self, node: Any, attribute: int) -> set[Window | None]:
        """How a column of `node` is made of the event time."""
        name = node.nodeName()
        if name == "CTERelationRef":
            child = self._common[node.cteId()]
            return self._made(child, _id(child.output().apply(_position(node, attribute))))
        if name == "Union":
            place = _position(node, attribute)
            made = [self._made(child, _id(child.output().apply(place))) for child in _all(node.children())]
            return set[Window | None]().union(*made)
        expression = None
        if name == "Project":
            expression = next((each for each in _all(node.projectList()) if _id(each) == attribute), None)
            if expression is not None and not _is_attribute(expression):
                expression = expression.child()  # of an alias
        elif name == "Expand":  # a row for each sliding window that holds the time, the last one first
            expression = node.projections().apply(0).apply(_position(node, attribute))
        if expression is not None and not _is_attribute(expression):
            return {window_of(json.loads(expression.toJSON()))}
        if expression is not None:
            attribute = _id(expression)
        for child in _all(node.children()):
            if any(_id(each) == attribute for each in _all(child.output())):
                return self._made(child, attribute)
        return {None}  # the watermark's own column


def window_of(nodes: list[dict[str, Any]]) -> Window | None:
    """The window that Spark computes with an expression, which is its JSON; None for any other.

    Spark has the end of a window as `time - (time - offset) % slide - 0 * slide + size`, with whole numbers; the
    remainder is made positive by a CASE.
    """
    top = _expression(iter(nodes))
    if top.name != "CreateNamedStruct" or len(top.children) != 4:
        return None
    end = _inside(top.children[3])
    if end.name != "Add":
        return None
    remainder = next((each for each in end.all() if each.name == "Remainder"), None)
    if remainder is None:
        return None
    time = _inside(remainder.children[0])
    numbers = [_inside(end.children[1]), _inside(remainder.children[1])]
    if time.name != "Subtract" or _inside(time.children[0]).name != "AttributeReference":
        return None
    numbers.append(_inside(time.children[1]))
    if any(each.name != "Literal" for each in numbers):
        return None
    return Window(*(int(each.value) for each in numbers))


class _Expression(msgspec.Struct):
    name: str
    value: Any
    children: list["_Expression"]

    def all(self) -> Iterator["_Expression"]:
        yield self
        for child in self.children:
            yield from child.all()


def _expression(nodes: Iterator[dict[str, Any]]) -> _Expression:
    """A tree of the nodes that Spark lists from the top, each before its children."""
    node = next(nodes)
    children = [_expression(nodes) for _ in range(node["num-children"])]
    return _Expression(node["class"].rpartition(".")[2], node.get("value"), children)


def _inside(expression: _Expression) -> _Expression:
    while expression.name in _TRANSPARENT:
        expression = expression.children[0]
    return expression


def _marks(node: Any) -> list[int]:
    return [field["metadata"][_DELAY] - _MARK_MS for field, _ in _marked_columns(node)]


def _marked_columns(node: Any) -> Iterator[tuple[dict[str, Any], int]]:
    for place, field in enumerate(json.loads(node.schema().json())["fields"]):
        if field["metadata"].get(_DELAY, 0) > _MARK_MS:
            yield field, _id(node.output().apply(place))


def _is_attribute(expression: Any) -> bool:
    return _is_a(expression, "AttributeReference")


def _is_a(expression: Any, name: str) -> bool:
    return bool(expression.getClass().getSimpleName() == name)


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _position(node: Any, attribute: int) -> int:
    return next(n for n, each in enumerate(_all(node.output())) if _id(each) == attribute)


def _all(items: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (items.apply(n) for n in range(items.size()))

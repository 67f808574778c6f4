"""Filters that Spark pushes down to a batch: which of them the source applies itself, and how.

`partition` and `offset` bound the read. `timestamp` is compared row by row after decoding: the log finds
times by when entries came, which need not be in the order of what producers wrote into them. Filters are exact, so that
Spark does not apply them again. Streams have no filters pushed down: Spark's API for Python has it for batches only.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from .offsets import Range

if TYPE_CHECKING:  # PySpark 4.0 has none
    from pyspark.sql.datasource import Filter

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)

# By kind of filter: what must be added to a value for the first and the last that pass; None leaves that end as it is.
_COMPARED: Final[dict[str, tuple[int | None, int | None]]] = {
    "EqualTo": (0, 0),
    "EqualNullSafe": (0, 0),
    "GreaterThan": (1, None),
    "GreaterThanOrEqual": (0, None),
    "LessThan": (None, -1),
    "LessThanOrEqual": (None, 0),
}


class Bounds(msgspec.Struct, frozen=True):
    """Whole numbers from `low` to `high`, both included; `among`: of these only, if it is not None."""

    low: int = _LEAST
    high: int = _MOST
    among: frozenset[int] | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number <= self.high and (self.among is None or number in self.among)

    def within(self, low: int, high: int) -> "Bounds":
        return Bounds(max(self.low, low), min(self.high, high), self.among)

    def only(self, among: frozenset[int]) -> "Bounds":
        return Bounds(self.low, self.high, among if self.among is None else self.among & among)


class Filters(msgspec.Struct, frozen=True):
    """What a query reads of its ranges; `timestamp` in us since the epoch."""

    partition: Bounds = Bounds()
    offset: Bounds = Bounds()
    timestamp: Bounds = Bounds()

    def cut(self, ranges: Iterable[Range]) -> list[Range]:
        """The ranges that remain by partition and offset."""
        found = []
        for each in ranges:
            start = max(each.start, self.offset.low)
            end = min(each.end, self.offset.high + 1)
            if each.partition in self.partition and start < end:
                found.append(msgspec.structs.replace(each, start=start, end=end))
        return found

    @property
    def times(self) -> Bounds | None:
        """What rows are compared with; None if all pass."""
        return None if self.timestamp == Bounds() else self.timestamp


def take(filters: "Iterable[Filter]") -> "tuple[Filters, list[Filter]]":
    """What the source applies, and the filters that are left to Spark."""
    found = {"partition": Bounds(), "offset": Bounds(), "timestamp": Bounds()}
    left = []
    for each in filters:
        path: Sequence[str] = getattr(each, "attribute", ())
        name = path[0] if len(path) == 1 else ""
        bounds = _narrowed(found[name], name, each) if name in found else None
        if bounds is None:
            left.append(each)
        else:
            found[name] = bounds
    return Filters(**found), left


def passing(batches: Iterable[pa.RecordBatch], times: Bounds) -> Iterator[pa.RecordBatch]:
    """The rows whose `timestamp` is within `times`."""
    import pyarrow.compute as pc

    for batch in batches:
        us = batch.column("timestamp").cast(pa.int64())
        chosen = batch.filter(pc.and_(pc.greater_equal(us, times.low), pc.less_equal(us, times.high)))
        if chosen.num_rows:
            yield chosen


def _narrowed(bounds: Bounds, name: str, given: "Filter") -> Bounds | None:
    """`bounds` with one filter more; None for a filter that is not for the source."""
    kind = type(given).__name__
    if kind == "IsNotNull":
        return bounds  # none of the three is ever null
    if kind == "In":
        numbers = [_number(value) for value in getattr(given, "value", ())]
        if name != "partition" or None in numbers:
            return None
        return bounds.only(frozenset(number for number in numbers if number is not None))
    shifts = _COMPARED.get(kind)
    number = _number(getattr(given, "value", None))
    if shifts is None or number is None:
        return None
    low, high = shifts
    return bounds.within(_LEAST if low is None else number + low, _MOST if high is None else number + high)


def _number(value: object) -> int | None:
    """A value as whole number, times in us since the epoch; None for anything else."""
    if isinstance(value, datetime):
        return None if value.tzinfo is None else (value - _EPOCH) // _US
    return value if isinstance(value, int) and not isinstance(value, bool) else None

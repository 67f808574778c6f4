"""Which files of a table a query's filters leave, by partitions and by the statistics of Delta's log. Pure.

Spark applies the filters to the rows all the same: a file that is kept in vain costs time only.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:  # PySpark 4.0 has none
    from pyspark.sql.datasource import Filter

_MS: Final = pa.scalar(1000, pa.duration("us"))  # writers cut the bounds of times to ms

Test = Callable[[Any, Any, Any], Any]  # of low bounds, high bounds and the filter's value

_TESTS: Final[dict[str, Test]] = {
    "EqualTo": lambda low, high, value: _both(_le(low, value), _ge(high, value)),
    "EqualNullSafe": lambda low, high, value: _both(_le(low, value), _ge(high, value)),
    "GreaterThan": lambda low, high, value: None if high is None else pc.greater(high, value),
    "GreaterThanOrEqual": lambda low, high, value: _ge(high, value),
    "LessThan": lambda low, high, value: None if low is None else pc.less(low, value),
    "LessThanOrEqual": lambda low, high, value: _le(low, value),
}


def kept(actions: pa.Table, filters: "Iterable[Filter]") -> pa.Table:
    """The rows of `Snapshot.actions` whose files may have rows that pass all filters."""
    for each in filters:
        mask = _mask(actions, each)
        if mask is not None:
            actions = actions.filter(pc.fill_null(mask, True))
    return actions


def _mask(actions: pa.Table, given: "Filter") -> Any:
    """Which files may have rows that pass; None where all may, null where nothing is known of a file."""
    path: Sequence[str] = getattr(given, "attribute", ())
    if len(path) != 1:
        return None
    name, kind = path[0], type(given).__name__
    partition = _column(actions, f"partition.{name}")
    if kind in ("IsNull", "IsNotNull"):
        return _nulls(actions, name, partition, wanted=kind == "IsNull")
    low, high = _bounds(actions, name, partition)
    if kind == "In":
        masks = [_compared("EqualTo", low, high, value) for value in getattr(given, "value", ())]
        if not masks or any(mask is None for mask in masks):
            return None
        found = masks[0]
        for mask in masks[1:]:
            found = pc.or_kleene(found, mask)
    else:
        value = getattr(given, "value", None)
        found = _compared(kind, low, high, value) if kind in _TESTS and value is not None else None
    if found is not None and partition is not None:
        found = pc.fill_null(found, False)  # nothing but null is equal to null, or compared with it
    return found


def _bounds(actions: pa.Table, name: str, partition: Any) -> tuple[Any, Any]:
    if partition is not None:
        return partition, partition
    low, high = _column(actions, f"min.{name}"), _column(actions, f"max.{name}")
    if high is not None and pa.types.is_timestamp(high.type):
        high = pc.add(high, _MS)
    if high is not None and pa.types.is_floating(high.type):
        high = None  # bounds pass over NaN, which Spark holds to be above all numbers
    return low, high


def _compared(kind: str, low: Any, high: Any, value: Any) -> Any:
    column = low if low is not None else high
    if column is None:
        return None
    if isinstance(value, datetime) and (value.tzinfo is None) != (getattr(column.type, "tz", None) is None):
        return None
    try:
        return _TESTS[kind](low, high, pa.scalar(value).cast(column.type))
    except (pa.ArrowException, OverflowError, TypeError, ValueError):  # not to be compared
        return None


def _nulls(actions: pa.Table, name: str, partition: Any, *, wanted: bool) -> Any:
    if partition is not None:
        return pc.is_null(partition) if wanted else pc.is_valid(partition)
    nulls = _column(actions, f"null_count.{name}")
    if nulls is None:
        return None
    return pc.greater(nulls, 0) if wanted else pc.less(nulls, actions["num_records"])


def _column(actions: pa.Table, name: str) -> Any:
    return actions[name] if name in actions.column_names else None


def _le(low: Any, value: Any) -> Any:
    return None if low is None else pc.less_equal(low, value)


def _ge(high: Any, value: Any) -> Any:
    return None if high is None else pc.greater_equal(high, value)


def _both(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else pc.and_kleene(one, other)

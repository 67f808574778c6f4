"""What Spark pushes down is read exactly as Spark would filter it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

from penstock.pipeline.rows import columns
from penstock.pipeline.source.filters import passing, take
from penstock.pipeline.source.offsets import Range

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COMPARED: dict[type[Any], Callable[[Any, Any], bool]] = {
    ds.EqualTo: lambda a, b: a == b,
    ds.EqualNullSafe: lambda a, b: a == b,
    ds.GreaterThan: lambda a, b: a > b,
    ds.GreaterThanOrEqual: lambda a, b: a >= b,
    ds.LessThan: lambda a, b: a < b,
    ds.LessThanOrEqual: lambda a, b: a <= b,
}


def times(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


numbers = st.tuples(st.sampled_from(["partition", "offset"]), st.integers(-2, 12))
moments = st.tuples(st.just("timestamp"), st.integers(-2, 12).map(times))
compared = st.tuples(st.sampled_from(list(COMPARED)), numbers | moments).map(
    lambda item: item[0]((item[1][0],), item[1][1])
)
among = st.lists(st.integers(-1, 4), max_size=3).map(lambda found: ds.In(("partition",), tuple(found)))
filters = st.lists(compared | among, max_size=5)
# Rows are (partition, offset, us): their times are in no order.
logs = st.lists(st.lists(st.integers(0, 10), max_size=10), max_size=4)


def keeps(each: Any, row: tuple[int, int, int]) -> bool:
    """As Spark has it."""
    found = {"partition": row[0], "offset": row[1], "timestamp": times(row[2])}[each.attribute[0]]
    if isinstance(each, ds.In):
        return found in each.value
    return COMPARED[type(each)](found, each.value)


@given(filters, logs)
def test_pushed_and_unpushed_are_alike(pushed: list[ds.Filter], several: list[list[int]]) -> None:
    found, left = take(pushed)
    assert left == []
    ranges = [Range("t", number, True, 1, 0, len(log)) for number, log in enumerate(several) if log]
    read = [
        (piece.partition, offset, several[piece.partition][offset])
        for piece in found.cut(ranges)
        for offset in range(piece.start, piece.end)
    ]
    if found.times is not None:
        schema = pa.schema([("row", pa.int64()), ("timestamp", columns.TIMESTAMP)])
        stamps = pa.array([us for *_, us in read], pa.int64()).cast(columns.TIMESTAMP)
        batch = pa.record_batch([pa.array(range(len(read)), pa.int64()), stamps], schema=schema)
        chosen = [row for each in passing([batch], found.times) for row in each.column("row").to_pylist()]
        read = [read[row] for row in chosen]
    rows = [(number, at, us) for number, log in enumerate(several) for at, us in enumerate(log)]
    assert read == [row for row in rows if all(keeps(each, row) for each in pushed)]


@pytest.mark.parametrize(
    "other",
    [
        ds.EqualTo(("key",), b"k"),
        ds.EqualTo(("value", "offset"), 3),
        ds.EqualTo(("offset",), None),
        ds.EqualTo(("partition",), True),
        ds.In(("offset",), (1, 2)),
        ds.In(("partition",), (1, None)),
        ds.IsNull(("offset",)),
        ds.Not(ds.EqualTo(("partition",), 1)),
        ds.GreaterThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001 - of a column without a zone
    ],
)
def test_others_are_left_to_spark(other: Any) -> None:
    found, left = take([ds.IsNotNull(("offset",)), other])
    assert left == [other]
    assert found == take([])[0]

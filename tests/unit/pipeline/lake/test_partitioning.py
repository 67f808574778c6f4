"""How rows are told apart into partitions."""

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake import partitioning
from penstock.pipeline.lake.partitioning import PartitionColumn

US = pa.timestamp("us", tz="UTC")


def test_what_partition_by_says() -> None:
    assert partitioning.parse("day(timestamp), carrier") == (
        PartitionColumn("timestamp_day", "timestamp", "day"),
        PartitionColumn("carrier"),
    )
    assert partitioning.parse("") == ()


@pytest.mark.parametrize("text", ["hour(t)", "day(t", "a,a", "day(t),t_day"])
def test_what_it_may_not_say(text: str) -> None:
    with pytest.raises(PipelineError, match="option partitionBy"):
        partitioning.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("missing", "no column missing"),
        ("day(missing)", "no column missing"),
        ("day(n)", "no time"),
        ("t", "timestamp"),
        ("n", "a table needs a column beside"),
    ],
)
def test_columns_that_cannot_part_a_table(text: str, words: str) -> None:
    columns = pa.schema([("n", pa.int64())] if text == "n" else [("n", pa.int64()), ("t", US)])
    with pytest.raises(PipelineError, match=words):
        partitioning.extend(columns, partitioning.parse(text))


def test_a_table_knows_its_derived_columns_by_their_names() -> None:
    incoming = pa.schema([("t", US), ("b_day", pa.date32())])
    assert partitioning.of_table(["t_day", "b_day"], incoming) == (
        PartitionColumn("t_day", "t", "day"),
        PartitionColumn("b_day"),
    )


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(1960, 1, 1), datetime(2060, 1, 1)),  # noqa: DTZ001
            st.sampled_from(["x", "y/z", "", None, "a b=c%"]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_row_is_in_the_one_partition_of_its_values(found: list[tuple[datetime, str | None]]) -> None:
    times = [time.replace(tzinfo=UTC) for time, _ in found]
    names = [name for _, name in found]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(times, US), pa.array(names, pa.string()), pa.array(range(len(found)))],
        names=["t", "name", "n"],
    )
    for unit in ("day", "month"):
        bys = partitioning.parse(f"{unit}(t),name")
        seen: list[int] = []
        for (day, name), part in partitioning.part(batch, bys):
            numbers = part.column(2).to_pylist()
            assert numbers == sorted(numbers), "rows keep their order"
            seen += numbers
            for n in numbers:
                own = times[n].date() if unit == "day" else times[n].date().replace(day=1)
                assert (day, name) == (own.isoformat(), names[n] or None)
                assert partitioning.value(day, pa.date32()) == own
        assert sorted(seen) == list(range(len(found)))


@pytest.mark.parametrize(
    ("zone", "day", "month"),
    [("UTC", "2026-02-01", "2026-02-01"), ("America/New_York", "2026-01-31", "2026-01-01")],
)
@pytest.mark.parametrize("session", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_days_are_those_of_the_zone_and_not_of_the_session(
    session: str, zone: str, day: str, month: str
) -> None:
    times = pa.array([datetime(2026, 2, 1, 2, tzinfo=UTC)], US).cast(pa.timestamp("us", session))
    batch = pa.RecordBatch.from_arrays([times], names=["t"])
    for by, expected in {"day": day, "month": month}.items():
        given = partitioning.parse(f"{by}(t)", zone)
        assert given == partitioning.of_table([f"t_{by}"], batch.schema, zone)
        assert [values for values, _ in partitioning.part(batch, given)] == [(expected,)]
        assert partitioning.placed(batch, given).column(1).cast(pa.string()).to_pylist() == [expected]


def test_folders_are_harmless_and_told_apart() -> None:
    assert (
        partitioning.folder(["d", "n"], ["2024-01-02", None]) == "d=2024-01-02/n=__HIVE_DEFAULT_PARTITION__"
    )
    strange = [partitioning.folder(["n"], [text]) for text in ("../x", "a/b", "a b", "a_b", "ä" * 500)]
    assert len(set(strange)) == 5
    assert all("/" not in each and len(each) < 130 for each in strange)


def test_values_come_back_as_they_were() -> None:
    for value, kind in (
        (7, pa.int32()),
        (True, pa.bool_()),
        (date(2024, 2, 29), pa.date32()),
        ("x", pa.string()),
    ):
        batch = pa.RecordBatch.from_arrays([pa.array([value], kind), pa.array([1])], names=["p", "n"])
        ((text,), _), *rest = partitioning.part(batch, [PartitionColumn("p")])
        assert not rest
        assert partitioning.value(text, kind) == value


def test_a_day_beyond_the_years_of_delta_is_no_partition() -> None:
    days = pa.array([0, 2_932_897, -719_163, None], pa.date32())
    times = pa.array([0, 2_932_897 * 86_400_000_000, None, 0], pa.timestamp("us", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([days, times], names=["d", "t"])
    parts = {key: rows.num_rows for key, rows in partitioning.part(batch, partitioning.parse("day(t)"))}
    assert parts == {("1970-01-01",): 2, (None,): 2}
    with pytest.raises(PipelineError, match=r"column d has the date 10000-01-01"):
        list(partitioning.part(batch, partitioning.parse("d")))

"""Rows that replace those of their key: the last row of a batch counts, and no file is left that is not the table's."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.schema import arrow_of
from penstock.pipeline.lake.sink import BatchWriter

COLUMNS = StructType(
    [
        StructField("id", LongType()),
        StructField("place", StringType()),
        StructField("at", TimestampType()),
        StructField("n", LongType()),
    ]
)
ARROW = pa.schema(
    [("id", pa.int64()), ("place", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]
)


def put(folder: Path, rows: list[tuple[int | None, str, int, int]], by: str) -> None:
    options = {"path": str(folder), "keys": "id", "partitionBy": by}
    sink = BatchWriter(options, COLUMNS, overwrite=False)
    found = [
        {"id": key, "place": place, "at": datetime(2026, 1, day, tzinfo=UTC), "n": n}
        for key, place, day, n in rows
    ]
    sink.commit([sink.write(iter([pa.RecordBatch.from_pylist(found, ARROW)]))])


@pytest.mark.parametrize("by", ["", "place", "day(at)", "place,month(at)"])
def test_the_last_row_of_a_key_counts_in_whatever_partition(tmp_path: Path, by: str) -> None:
    table = tmp_path / "table"
    put(table, [(1, "a", 1, 1), (1, "b", 2, 2), (2, "", 3, 5), (1, "a", 1, 3)], by)
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["place"] or "", row["at"].day, row["n"]) for row in found) == [
        (1, "a", 1, 3),
        (2, "", 3, 5),
    ]
    if "day(at)" in by:
        assert {row["at_day"] for row in found} == {row["at"].date() for row in found}
    put(table, [(1, "b", 2, 4)], by)
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["n"]) for row in found) == [(1, 4), (2, 5)]
    assert staged(table) == []


@pytest.mark.parametrize("by", ["", "place"])
def test_a_row_deletes_the_one_with_its_key(tmp_path: Path, by: str) -> None:
    table = tmp_path / "table"
    columns = StructType([*COLUMNS.fields, StructField("gone", BooleanType())])
    schema = ARROW.append(pa.field("gone", pa.bool_()))

    def change(rows: list[tuple[int, str, int, bool | None]]) -> list[tuple[int, int]]:
        options = {"path": str(table), "keys": "id", "partitionBy": by, "deleteColumn": "gone"}
        sink = BatchWriter(options, columns, overwrite=False)
        at = datetime(2026, 1, 1, tzinfo=UTC)
        found = [{"id": key, "place": place, "at": at, "n": n, "gone": gone} for key, place, n, gone in rows]
        sink.commit([sink.write(iter([pa.RecordBatch.from_pylist(found, schema)]))])
        assert staged(table) == []
        there = DeltaTable(str(table)).to_pyarrow_table()
        assert "gone" not in there.column_names
        return sorted((row["id"], row["n"]) for row in there.to_pylist())

    assert change([(1, "a", 1, False), (2, "a", 2, None), (3, "b", 3, True)]) == [(1, 1), (2, 2)]
    assert change([(1, "b", 0, True), (2, "b", 5, False), (4, "b", 4, True)]) == [(2, 5)]
    assert change([(2, "b", 0, True), (2, "b", 6, False), (1, "a", 7, False)]) == [(1, 7), (2, 6)]
    assert change([(2, "b", 8, False), (2, "b", 0, True)]) == [(1, 7)], "the last row of a key counts"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deleteColumn": "n"}, "needs option keys"),
        ({"deleteColumn": "n", "keys": "id"}, "no BOOLEAN column n"),
        ({"deleteColumn": "x", "keys": "id"}, "no BOOLEAN column x"),
    ],
)
def test_a_column_that_cannot_delete(tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        BatchWriter({"path": str(tmp_path / "table"), **options}, COLUMNS, overwrite=False)


def test_what_is_refused_leaves_no_file(tmp_path: Path) -> None:
    table = tmp_path / "table"
    put(table, [(1, "a", 1, 1)], "")
    with pytest.raises(PipelineError, match="column id is null"):
        put(table, [(None, "a", 1, 1)], "")
    assert staged(table) == []


def replace(
    folder: Path, rows: list[dict[str, object]], columns: StructType, by: str, keys: str = ""
) -> None:
    """Put rows in the place of those of 2026-01-02 and 2026-01-03."""
    predicate = "`at` >= '2026-01-02T00:00:00Z' AND `at` < '2026-01-04T00:00:00Z'"
    options = {"path": str(folder), "partitionBy": by, "keys": keys}
    sink = BatchWriter(options, columns, overwrite=False, replaces=predicate)
    batch = pa.RecordBatch.from_pylist(rows, arrow_of(columns))
    sink.commit([sink.write(iter([batch]))] if rows else [sink.nothing("", 0)], 0)


@pytest.mark.parametrize("by", ["", "place", "day(at)", "place,month(at)"])
def test_rows_replace_those_of_a_range(tmp_path: Path, by: str) -> None:
    table = tmp_path / "table"
    put(table, [(number, "a", number, 1) for number in (1, 2, 3, 4)], by)

    def found() -> list[tuple[int, int | None, str | None]]:
        rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
        return sorted((row["id"], row["n"], row.get("more")) for row in rows)

    grown = StructType(
        [*COLUMNS.fields[:3], StructField("more", StringType())]
    )  # one more column, and one less
    rows: list[dict[str, object]] = [
        {"id": 7, "place": "b", "at": datetime(2026, 1, 2, 12, tzinfo=UTC), "more": "x"}
    ]
    for _ in range(2):
        replace(table, rows, grown, by)
        assert found() == [(1, 1, None), (4, 1, None), (7, None, "x")]
    rows = [{"id": 8, "place": "b", "at": datetime(2026, 1, 3, tzinfo=UTC), "n": n} for n in (1, 2)]
    replace(table, rows, COLUMNS, by, keys="id")
    assert found() == [(1, 1, None), (4, 1, None), (8, 2, None)]
    before = DeltaTable(str(table)).version()
    with pytest.raises(DeltaError, match="1 rows failed validation check"):
        replace(table, [{"id": 9, "place": "b", "at": datetime(2026, 1, 4, tzinfo=UTC)}], COLUMNS, by)
    assert DeltaTable(str(table)).version() == before
    replace(table, [], COLUMNS, by)
    assert found() == [(1, 1, None), (4, 1, None)]
    assert staged(table) == []


def staged(table: Path) -> list[Path]:
    """Files that our tasks wrote; those that Delta's MERGE wrote have other names."""
    return list(table.rglob("*.zstd.parquet"))

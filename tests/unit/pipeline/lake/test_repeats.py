"""A batch that a table seems to have: a repeat, or rows that would be lost."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction
from tests.unit.pipeline.lake.test_tables import SCHEMA, add, files, numbers

from penstock.pipeline.errors import BatchConflict, classify
from penstock.pipeline.lake.compaction import compact
from penstock.pipeline.lake.delta import Table, _add
from penstock.pipeline.lake.options import table_at
from penstock.pipeline.lake.snapshot import COMMITS_READ_MAX
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Last
from penstock.pipeline.run.causes import ErrorClass, cause_of


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return table_at(Location.of(tmp_path / "table"))


def test_a_batch_below_the_last_is_a_conflict(table: Table) -> None:
    add(table, [1, 2], "q", 3)
    add(table, [3], "q", 4)
    for batch, rows in ((3, [1, 2]), (0, [7]), (2, [])):
        with pytest.raises(
            BatchConflict, match=rf"has batch 4 of writer q .* batch {batch} with {len(rows)} rows"
        ):
            add(table, rows, "q", batch)
    assert numbers(table) == [1, 2, 3]
    assert add(table, [7], "q-backfill", 0), "another writer has numbers of its own"
    assert add(table, [8], "q", 9), "numbers may be left out"


def test_the_last_batch_again_is_a_repeat_with_as_many_rows_only(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    add(table, [1, 2], "q", 3)
    add(table, [5], "other", 3)
    with caplog.at_level(logging.WARNING):
        assert not add(table, [1, 2], "q", 3)
    assert "has batch 3 of writer q already: its 2 rows are a repeat" in caplog.text
    for rows in ([1], [1, 2, 3], []):
        with pytest.raises(BatchConflict, match=rf"with 2 rows, and now it came with {len(rows)}:"):
            add(table, rows, "q", 3)
    assert numbers(table) == [1, 2, 5]


def test_a_conflict_is_no_trouble_that_passes() -> None:
    conflict = BatchConflict("the table t has batch 4 of writer q already")
    assert (classify(conflict), cause_of(conflict).kind) == ("user", ErrorClass.PLAN)
    assert not cause_of(conflict).kind.retried
    assert "docs/spark.md" in cause_of(conflict).sentence
    assert BatchConflict(conflict.message).message == conflict.message, "pickled, it stays as it is"


def test_rewriting_and_emptying_a_table_keep_what_it_knows_of_writers(table: Table) -> None:
    for n in range(20):
        add(table, [n], "q", n)
    assert compact(table, 1 << 30) == 20
    assert not add(table, [19], "q", 19)
    add(table, [], overwrite=True)
    assert not add(table, [19], "q", 19)
    with pytest.raises(BatchConflict):
        add(table, [1, 2], "q", 19)
    assert numbers(table) == []


def test_checkpoints_of_the_log_keep_the_rows_of_a_batch(table: Table) -> None:
    add(table, [1, 2, 3], "q", 7)
    DeltaTable(table.folder.url).create_checkpoint()
    for n in (0, 1):
        (Path(table.folder.url) / "_delta_log" / f"{n:020d}.json").unlink()
    now = table.snapshot()
    assert now is not None
    assert (now.last("q"), now.last("x")) == (Last(7, 3), None)


# -- batches of versions that kept no count


def add_as_before(table: Table, rows: list[int], writer: str, number: int) -> None:
    """A commit as versions made it that kept the number of a batch, but not its rows."""
    made = files(table, rows)
    DeltaTable(table.folder.url).create_write_transaction(
        [_add(file, data_change=True) for file in made],
        "append",
        DeltaTable(table.folder.url).schema(),
        [],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"penstock.writer:{writer}", number)]
        ),
    )


def test_rows_of_an_earlier_versions_batch_are_found_in_the_log(table: Table) -> None:
    add(table, [1], "q", 0)
    add_as_before(table, [2, 3], "q", 1)
    add(table, [4], "other", 0)
    now = table.snapshot()
    assert now is not None
    assert now.last("q") == Last(1, 2)
    assert not add(table, [2, 3], "q", 1)
    with pytest.raises(BatchConflict, match="with 2 rows, and now it came with 3"):
        add(table, [2, 3, 4], "q", 1)
    assert numbers(table) == [1, 2, 3, 4]


def test_what_no_log_tells_is_taken_for_a_repeat_and_said(
    table: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, [1])
    add_as_before(table, [2, 3], "q", 1)
    monkeypatch.setattr(type(table.snapshot()), "_rows_in_log", lambda *_: None)
    with caplog.at_level(logging.WARNING):
        assert not add(table, [2, 3], "q", 1)
    assert "an earlier version of Penstock committed it" in caplog.text
    with pytest.raises(BatchConflict):
        add(table, [2, 3], "q", 0)


def test_a_log_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_at(Location.of(tmp_path / "t"))
    add(table, [1])
    add_as_before(table, [2, 3], "q", 1)
    assert COMMITS_READ_MAX >= 100
    monkeypatch.setattr("penstock.pipeline.lake.snapshot.COMMITS_READ_MAX", 3)
    for rows, found in ((1, 2), (1, 2), (1, None)):
        add(table, list(range(rows)), schema=pa.schema(SCHEMA))
        now = table.snapshot()
        assert now is not None
        assert now.last("q") == Last(1, found)

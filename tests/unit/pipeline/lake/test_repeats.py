"""A batch that a table seems to have: a repeat, or rows that would be lost."""

import logging
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import Transaction
from tests.unit.pipeline.lake.test_tables import add, files, numbers

from penstock.pipeline.errors import BatchConflict
from penstock.pipeline.lake.delta import Table, _add
from penstock.pipeline.lake.options import table_at
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import WRITERS_KEPT, Last, LogState, Piece, Position, Remembered
from penstock.pipeline.run.failures import ErrorClass, cause_of


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
    assert cause_of(conflict).kind is ErrorClass.PLAN
    assert not cause_of(conflict).kind.retried
    assert "docs/spark.md" in cause_of(conflict).sentence
    assert BatchConflict(conflict.message).message == conflict.message, "pickled, it stays as it is"


def test_rewriting_and_emptying_a_table_keep_what_it_knows_of_writers(table: Table) -> None:
    for n in range(20):
        add(table, [n], "q", n)
    assert table.compact({}, 1 << 30) == 20
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
        [_add(file) for file in made],
        "append",
        DeltaTable(table.folder.url).schema(),
        [],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"penstock.writer:{writer}", number)]
        ),
    )


def test_a_batch_without_a_count_is_taken_for_a_repeat_and_said(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    add(table, [1], "q", 0)
    add_as_before(table, [2, 3], "q", 1)
    now = table.snapshot()
    assert now is not None
    assert now.last("q") == Last(1, None), "whatever the metadata of the commit before says"
    with caplog.at_level(logging.WARNING):
        assert not add(table, [2, 3], "q", 1)
    assert "an earlier version of Penstock committed it" in caplog.text
    with pytest.raises(BatchConflict):
        add(table, [2, 3], "q", 0)
    assert add(table, [4], "other", 0)
    assert add(table, [5], "q", 2), "what the metadata lacks is asked of the transactions"
    assert numbers(table) == [1, 2, 3, 4, 5]


# -- what a commit's metadata has


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The transactions that are looked up from now on: each replays the table's log."""
    asked: list[str] = []
    look = DeltaTable.transaction_version

    def transaction_version(self: DeltaTable, name: str) -> int | None:
        asked.append(name)
        return look(self, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", transaction_version)
    return asked


def test_what_a_table_remembers_is_one_commits_metadata(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def archive(start: int, end: int, number: int) -> bool:
        pieces = tuple(Piece("t", n, start, end, end - start, sum(range(start, end))) for n in range(50))
        return add(table, [start], "q", number, pieces=pieces)

    archive(0, 10, 0)
    asked = counted(monkeypatch)
    archive(10, 12, 1)
    assert not add(table, [10], "q", 1)
    DeltaTable(table.folder.url).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert table.compact({}, 1 << 30) == 2
    archive(12, 13, 2)
    now = table.snapshot()
    assert now is not None
    assert [now.position("t", n) for n in range(50)] == [Position(0, 13)] * 50
    assert asked == []
    assert (now.last("new"), now.position("t", 50)) == (None, None)
    assert asked == ["penstock.writer:new", "penstock.end:t#50"]


def test_what_no_commit_has_is_asked_of_the_transactions(table: Table) -> None:
    add(table, [1], "q", 3, pieces=(Piece("t", 0, 4, 5, 1, 4),), logs={("t", 0): LogState(7, dense=False)})
    DeltaTable(table.folder.url).create_checkpoint()
    for path in (Path(table.folder.url) / "_delta_log").glob("*.json"):
        path.unlink()
    now = table.snapshot()
    assert now is not None
    assert now.last("q") == Last(3, 1)
    assert now.position("t", 0) == Position(4, 5, 7, dense=False)


def test_the_metadata_keeps_the_latest_writers(table: Table) -> None:
    before = Remembered()
    for n in range(WRITERS_KEPT + 3):
        before = before.with_batch(f"w{n}", Last(n, 1), {})
    before = before.with_batch("w3", Last(9, 9), {})
    assert len(before.writers) == WRITERS_KEPT
    assert next(iter(before.writers)) == "w4"
    assert before.writers["w3"] == Last(9, 9)


@pytest.mark.parametrize("only_transactions", [False, True])
def test_overwriting_an_archive_forgets_its_positions(table: Table, only_transactions: bool) -> None:
    pieces = (Piece("t", 0, 0, 2, 2, 1), Piece("t", 1, 0, 1, 1, 0))
    add(table, [1, 2], "q", 0, pieces=pieces)
    add(table, [], overwrite=True)
    if only_transactions:
        DeltaTable(table.folder.url).create_checkpoint()
        for path in (Path(table.folder.url) / "_delta_log").glob("*.json"):
            path.unlink()
    now = table.snapshot()
    assert now is not None
    assert (now.position("t", 0), now.position("t", 1)) == (None, None)
    if not only_transactions:
        assert add(table, [1, 2], "r", 0, pieces=pieces)

"""Which offsets a batch holds, and whether they go on where the table ends."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.lake.values import (
    LogState,
    OffsetRange,
    Piece,
    Position,
    follow,
    merge,
    pieces_of,
    whole,
)

DENSE = LogState(3)
SPARSE = LogState(3, dense=False)
SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])


def rows(found: list[tuple[str, int, int]]) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*found, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(topics), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())], schema=SCHEMA
    )


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2)),
        st.tuples(st.integers(0, 50), st.integers(1, 30)),
        min_size=1,
    ),
    st.randoms(use_true_random=False),
    st.integers(1, 9),
)
def test_rows_in_any_order_make_one_piece_a_partition(logs, random, size) -> None:  # type: ignore[no-untyped-def]
    found = [
        (topic, partition, start + n)
        for (topic, partition), (start, count) in logs.items()
        for n in range(count)
    ]
    random.shuffle(found)
    pieces = [piece for at in range(0, len(found), size) for piece in pieces_of(rows(found[at : at + size]))]
    expected = sorted(OffsetRange(t, p, start, start + count) for (t, p), (start, count) in logs.items())
    assert whole(pieces, lambda _: True) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_whole_means_every_offset_once(offsets: list[int]) -> None:
    found = rows([("t", 0, each) for each in offsets])
    hull = [OffsetRange("t", 0, min(offsets), max(offsets) + 1)]
    if len(set(offsets)) < len(offsets):
        with pytest.raises(PipelineError, match=r"t, partition 0: offset \d+ comes twice"):
            pieces_of(found)
        return
    for planned in (None, hull):
        pieces = pieces_of(found, hulls=planned is not None)
        assert whole(pieces, lambda _: False, planned) == hull
        if len(offsets) == max(offsets) - min(offsets) + 1:
            assert whole(pieces, lambda _: True, planned) == hull
        else:
            with pytest.raises(DataLoss, match=r"t, partition 0"):
                whole(pieces, lambda _: True, planned)


def test_positions_are_those_that_were_planned() -> None:
    planned = [OffsetRange("t", 0, 3, 20), OffsetRange("t", 1, 7, 9)]
    tasks = [[("t", 0, 5), ("t", 0, 9)], [("t", 0, 12)]]
    pieces = [piece for task in tasks for piece in pieces_of(rows(task), hulls=True)]
    assert whole(pieces, lambda _: False, planned) == planned
    assert whole([], lambda _: False, planned) == planned, "a range of markers has no rows"
    with pytest.raises(
        DataLoss, match="partition 0: a batch of the archive has 3 messages of the offsets 3 to 19"
    ):
        whole(pieces, lambda _: True, planned)
    for stray in (("t", 0, 2), ("t", 0, 20), ("t", 2, 3)):
        with pytest.raises(PipelineError, match=r"which it was not to have"):
            whole([*pieces, *pieces_of(rows([stray]))], lambda _: False, planned)
    with pytest.raises(PipelineError, match="offset 9 comes twice"):
        whole([*pieces, Piece("t", 0, 9, 10, 1)], lambda _: False, planned)


def test_a_task_reports_one_piece_however_many_gaps_there_are() -> None:
    found: list[Piece] = []
    for start in (0, 100, 200):
        batch = rows([("t", 0, start + 2 * n) for n in range(20)])
        found = merge([*found, *pieces_of(batch, hulls=True)], hulls=True)
    assert found == [Piece("t", 0, 0, 239, 60)]


def test_null_offsets_are_refused() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array(["t"]), pa.array([0], pa.int32()), pa.array([None], pa.int64())], schema=SCHEMA
    )
    with pytest.raises(PipelineError, match="offset"):
        pieces_of(broken)


def test_a_piece_follows_where_the_table_ends() -> None:
    assert follow(OffsetRange("t", 0, 5, 9), None, DENSE) == Position(5, 9, 3)
    assert follow(OffsetRange("t", 0, 9, 12), Position(5, 9, 3), DENSE) == Position(5, 12, 3)
    assert follow(OffsetRange("t", 0, 9, 12), Position(5, 9, 3), LogState()) == Position(5, 12, 3)


def test_rows_of_a_log_with_gaps_need_not_follow_at_once_and_planned_ranges_must() -> None:
    sparse, later = Position(5, 9, 3, dense=False), OffsetRange("t", 0, 11, 12)
    assert follow(later, Position(5, 9, 3), SPARSE) == Position(5, 12, 3, dense=False)
    assert follow(later, sparse, LogState()) == Position(5, 12, 3, dense=False), "the table knows it"
    with pytest.raises(DataLoss, match="the archive ends at 9, and the batch begins at 11"):
        follow(later, sparse, SPARSE, planned=True)


@pytest.mark.parametrize(
    ("start", "ledger", "error", "words"),
    [
        (10, 3, DataLoss, "the archive ends at 9, and the batch begins at 10"),
        (8, 3, PipelineError, "ends at 9 already"),
        (9, 4, PipelineError, "an earlier topic"),
    ],
)
def test_what_does_not_follow_is_refused(start: int, ledger: int, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        follow(OffsetRange("t", 0, start, 12), Position(5, 9, 3), LogState(ledger))

"""Which offsets a batch holds, and whether they go on where the table ends."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.lake.values import LogState, Piece, Position, check_whole, follow, merge, pieces_of

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
    pieces = merge(
        piece for at in range(0, len(found), size) for piece in pieces_of(rows(found[at : at + size]))
    )
    check_whole(pieces, lambda _: True)
    expected = sorted((t, p, start, start + count) for (t, p), (start, count) in logs.items())
    assert [(piece.topic, piece.partition, piece.start, piece.end) for piece in pieces] == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(1, 9))
def test_whole_means_every_offset_once(offsets: list[int], size: int) -> None:
    pieces = merge(
        piece
        for at in range(0, len(offsets), size)
        for piece in pieces_of(rows([("t", 0, each) for each in offsets[at : at + size]]))
    )
    span = max(offsets) - min(offsets) + 1
    if len(offsets) > span:
        for dense in (False, True):
            with pytest.raises(PipelineError, match=r"t, partition 0: .* some come twice"):
                check_whole(pieces, lambda _, dense=dense: dense)  # type: ignore[misc]
        return
    check_whole(pieces, lambda _: False)
    if len(offsets) < span:
        with pytest.raises(DataLoss, match=r"t, partition 0: .* some are missing"):
            check_whole(pieces, lambda _: True)
    elif sorted(offsets) == list(range(min(offsets), max(offsets) + 1)):
        check_whole(pieces, lambda _: True)


def test_an_offset_that_comes_twice_does_not_hide_one_that_is_missing() -> None:
    with pytest.raises(DataLoss, match="5 messages of the offsets 3 to 7: some are missing"):
        check_whole(pieces_of(rows([("t", 0, n) for n in (3, 4, 4, 6, 7)])), lambda _: True)


def test_null_offsets_are_refused() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array(["t"]), pa.array([0], pa.int32()), pa.array([None], pa.int64())], schema=SCHEMA
    )
    with pytest.raises(PipelineError, match="offset"):
        pieces_of(broken)


def piece(start: int, end: int) -> Piece:
    return Piece("t", 0, start, end, end - start, sum(range(start, end)))


def test_a_piece_follows_where_the_table_ends() -> None:
    assert follow(piece(5, 9), None, DENSE) == Position(5, 9, 3)
    assert follow(piece(9, 12), Position(5, 9, 3), DENSE) == Position(5, 12, 3)
    assert follow(piece(9, 12), Position(5, 9, 3), LogState()) == Position(5, 12, 3)


def test_rows_of_a_log_with_gaps_need_not_follow_at_once() -> None:
    sparse, later = Position(5, 9, 3, dense=False), piece(11, 12)
    assert follow(later, Position(5, 9, 3), SPARSE) == Position(5, 12, 3, dense=False)
    assert follow(later, sparse, LogState()) == Position(5, 12, 3, dense=False), "the table knows it"


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
        follow(piece(start, 12), Position(5, 9, 3), LogState(ledger))

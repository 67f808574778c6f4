"""Which offsets a batch holds, and whether they go on where the table ends."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.lake.values import OffsetRange, Position, follow, pieces_of, whole

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
    assert whole(pieces) == expected


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40))
def test_whole_means_every_offset_once(offsets: list[int]) -> None:
    pieces = pieces_of(rows([("t", 0, each) for each in offsets]))
    complete = len(set(offsets)) == len(offsets) == max(offsets) - min(offsets) + 1
    if complete:
        assert whole(pieces) == [OffsetRange("t", 0, min(offsets), max(offsets) + 1)]
    else:
        with pytest.raises((DataLoss, PipelineError), match=r"t, partition 0"):
            whole(pieces)


def test_null_offsets_are_refused() -> None:
    broken = pa.RecordBatch.from_arrays(
        [pa.array(["t"]), pa.array([0], pa.int32()), pa.array([None], pa.int64())], schema=SCHEMA
    )
    with pytest.raises(PipelineError, match="offset"):
        pieces_of(broken)


def test_a_piece_follows_where_the_table_ends() -> None:
    assert follow(OffsetRange("t", 0, 5, 9), None, 3) == Position(5, 9, 3)
    assert follow(OffsetRange("t", 0, 9, 12), Position(5, 9, 3), 3) == Position(5, 12, 3)
    assert follow(OffsetRange("t", 0, 9, 12), Position(5, 9, 3), -1) == Position(5, 12, 3)


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
        follow(OffsetRange("t", 0, start, 12), Position(5, 9, 3), ledger)

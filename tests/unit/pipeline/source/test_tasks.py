import pickle
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.cluster import KafkaTopic
from penstock.pipeline.source.offsets import Range
from penstock.pipeline.source.options import parse_options
from penstock.pipeline.source.tasks import (
    TOGETHER_RANGES,
    TOGETHER_ROWS,
    DirectSplit,
    read_split,
    split,
    splits_for,
    together,
)

ranges = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 10**9), st.integers(1, 10**6)),
    unique_by=lambda r: r[0],
    max_size=6,
).map(lambda items: [Range("t", number, True, number, start, start + size) for number, start, size in items])


@given(ranges, st.integers(5_000, 10**6), st.integers(1, 300))
def test_pieces_cover_the_ranges_exactly(several: list[Range], rows_max: int, pieces_min: int) -> None:
    pieces = split(several, rows_max=rows_max, pieces_min=pieces_min)
    assert all(0 < piece.size <= rows_max for piece in pieces)
    assert len(pieces) >= min(pieces_min, sum(each.size for each in several))
    for each in several:
        own = [piece for piece in pieces if piece.partition == each.partition]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert all(a.end == b.start for a, b in pairwise(own))
        assert max(piece.size for piece in own) - min(piece.size for piece in own) <= 1
    assert split(several, rows_max=rows_max, pieces_min=pieces_min) == pieces


def test_nothing_to_read() -> None:
    assert split([], rows_max=10, pieces_min=4) == []


@given(ranges, st.integers(1, 300))
def test_small_ranges_share_a_task(several: list[Range], pieces_min: int) -> None:
    pieces = split(several, rows_max=5_000, pieces_min=pieces_min)
    groups = list(together(pieces, rows_max=10**6, pieces_min=pieces_min))
    assert [piece for group in groups for piece in group] == pieces
    assert len(groups) >= min(pieces_min, len(pieces))
    for group in groups:
        assert len(group) <= TOGETHER_RANGES
        assert len(group) == 1 or sum(piece.size for piece in group) <= TOGETHER_ROWS
    for one, next_one in pairwise(groups):
        # None is cut off early: where the next range would fit, it is there.
        fits = (
            len(one) < TOGETHER_RANGES and sum(piece.size for piece in [*one, next_one[0]]) <= TOGETHER_ROWS
        )
        assert not fits or pieces_min > 1


def test_a_small_batch_of_four_partitions_is_two_tasks() -> None:
    several = [Range("t", number, True, number, 0, 6_250) for number in range(4)]
    assert [len(group) for group in together(several, rows_max=500_000)] == [2, 2]
    assert [len(group) for group in together(several, rows_max=6_250)] == [1, 1, 1, 1]


def test_tasks_take_with_them_how_brokers_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_options(
        {
            "url": "http://localhost:1",
            "subscribe": "t",
            "fetch": "direct",
            "kafka.bootstrap.servers": "h:9092",
        }
    )
    wanted = [Range("persistent://public/default/t", 0, True, 7, 0, 1_000_000)]
    topics = {wanted[0].topic: KafkaTopic("t", True)}
    tasks = splits_for(options, wanted, kafka=topics)
    assert len(tasks) == 2
    for task in pickle.loads(pickle.dumps(tasks)):
        assert isinstance(task, DirectSplit)
        assert (task.kafka, task.topic) == (options.kafka, KafkaTopic("t", True))
    assert not any(isinstance(task, DirectSplit) for task in splits_for(options, wanted))
    monkeypatch.setitem(sys.modules, "penstock.pipeline.source.direct", None)
    with pytest.raises(PipelineError, match=r"penstock\[spark,kafka\]") as caught:
        list(read_split(tasks[0]))
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED

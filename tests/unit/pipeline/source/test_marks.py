"""The offsets of a stream: their text, what a batch reads between two, and what became of the logs meanwhile."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.source.limits import share
from penstock.pipeline.source.marks import (
    Key,
    LogPosition,
    Marks,
    advance,
    beginnings,
    between,
    reach,
    read_marks,
    write_marks,
)
from penstock.pipeline.source.offsets import End, Listed, Range

T = "persistent://public/default/t"

numbers = st.integers(0, 2**53)


@st.composite
def logs(draw: st.DrawFn) -> list[Log]:
    """Logs of a few topics, in any order."""
    found = []
    for name in draw(st.lists(st.sampled_from("abcé/ "), unique=True, max_size=4)):
        count = draw(st.integers(0, 12))
        for partition in range(max(1, count)):
            earliest = draw(st.integers(0, 100))
            latest = earliest + draw(st.integers(0, 100))
            found.append(Log(name, partition, count > 0, draw(st.integers(0, 3)), earliest, latest))
    return draw(st.permutations(found))


@st.composite
def marks(draw: st.DrawFn) -> Marks:
    spots = {
        Key(log.topic, log.partition): LogPosition(log.ledger, log.partitioned, draw(st.integers(0, 200)))
        for log in draw(logs())
    }
    starts = draw(st.dictionaries(st.sampled_from(sorted(spots)), numbers)) if spots else {}
    return Marks(spots, starts, draw(st.booleans()))


def text(written: dict[str, Any]) -> str:
    return json.dumps(written)


@given(marks())
def test_what_is_written_is_read_and_the_text_is_always_the_same(given: Marks) -> None:
    written = text(write_marks(given))
    again = read_marks(json.loads(written))
    assert again == given
    assert text(write_marks(again)) == written
    shuffled = Marks(dict(reversed(given.spots.items())), dict(reversed(given.starts.items())), given.initial)
    assert text(write_marks(shuffled)) == written


def test_the_text() -> None:
    spots = {
        Key("b", 10): LogPosition(8, True, 5),
        Key("b", 9): LogPosition(7, True, 4),
        Key("a", 0): LogPosition(3, False, 1),
    }
    assert text(write_marks(Marks(spots, {Key("b", 10): 2}))) == (
        '{"ledgers": {"a": 3, "b": {"9": 7, "10": 8}}, "offsets": {"a": {"0": 1}, "b": {"9": 4, "10": 5}},'
        ' "starts": {"b": {"10": 2}}}'
    )


@pytest.mark.parametrize(
    "written",
    [None, 5, {}, {"offsets": {"t": {"0": 1}}, "ledgers": {}}, {"ledgers": {}, "offsets": {"t": 1}}],
)
def test_offsets_of_another_source_are_refused(written: Any) -> None:
    with pytest.raises(PipelineError, match="holds no offsets of the source penstock"):
        read_marks(written)


@given(marks(), logs(), st.one_of(st.none(), st.integers(1, 300)))
def test_a_batch_needs_nothing_but_its_marks(start: Marks, there: list[Log], most: int | None) -> None:
    found = reach(start, there)
    takes = share(found.backlog, most)
    end = advance(start, found, takes)
    ranges = between(start, end)
    # Read again from their texts, as after a restart, and whatever became of the logs: the same.
    assert between(read_marks(write_marks(start)), read_marks(write_marks(end))) == ranges
    by_key = {Key(each.topic, each.partition): each for each in ranges}
    for key, head in found.heads.items():
        take = takes.get(key, 0)
        if end is start:
            assert not take
        elif take:
            each = by_key[key]
            assert (each.start, each.size, each.ledger) == (found.begins[key], take, head.ledger)
            assert each.end <= head.offset
        else:
            assert key not in by_key
    if end is not start:
        assert end.spots.keys() == found.heads.keys()


@given(logs())
def test_the_first_batch_does_not_depend_on_where_the_query_would_begin_now(there: list[Log]) -> None:
    start = Marks(beginnings(there, End.EARLIEST), initial=True)
    found = reach(start, there)
    end = advance(start, found, found.backlog)
    later = Marks(beginnings(there, End.LATEST), initial=True)
    assert between(later, end) == between(start, end)
    assert not end.initial


@given(logs())
def test_all_is_read_once(there: list[Log]) -> None:
    at = Marks(beginnings(there, End.EARLIEST), initial=True)
    seen: dict[Key, list[int]] = {}
    for turn in range(10_000):
        found = reach(at, there)
        assert not found.losses
        end = advance(at, found, share(found.backlog, 37, turn))
        if end is at:
            break
        for each in between(at, end):
            seen.setdefault(Key(each.topic, each.partition), []).extend(range(each.start, each.end))
        at = end
    wanted = {Key(log.topic, log.partition): list(range(log.earliest, log.latest)) for log in there}
    assert seen == {key: offsets for key, offsets in wanted.items() if offsets}


def test_logs_that_appear_are_read_from_their_beginning() -> None:
    start = Marks({Key(T, 0): LogPosition(1, True, 5)})
    found = reach(start, [Log(T, 0, True, 1, 0, 5), Log(T, 1, True, 2, 3, 9)])
    assert not found.losses
    end = advance(start, found, found.backlog)
    assert between(start, end) == [Range(T, 1, True, 2, 3, 9)]
    assert end.starts == {Key(T, 1): 3}


@pytest.mark.parametrize(
    ("log", "said", "begin"),
    [
        (Log(T, 0, True, 1, 7, 9), "partition 0: offsets 5 to 6 are gone", 7),
        (Log(T, 0, True, 2, 0, 9), "partition 0: the topic was deleted and made anew", 0),
        (Log(T, 0, True, 1, 0, 3), "partition 0: the query had come to 5, but the log ends at 3", 3),
    ],
)
def test_losses(log: Log, said: str, begin: int) -> None:
    start = Marks({Key(T, 0): LogPosition(1, True, 5)})
    found = reach(start, [log])
    assert len(found.losses) == 1
    assert said in found.losses[0]
    assert found.begins == {Key(T, 0): begin}
    end = advance(start, found, found.backlog)
    assert [(each.start, each.end) for each in between(start, end)] == [(begin, log.latest)] * (
        begin < log.latest
    )


def test_what_is_gone() -> None:
    start = Marks({Key(T, 0): LogPosition(1, True, 5), Key(T, 1): LogPosition(2, True, 5)})
    found = reach(start, [Log(T, 1, True, 2, 0, 5)])
    assert found.gone == [Key(T, 0)]
    assert advance(start, found, {}).spots == {Key(T, 1): LogPosition(2, True, 5)}


def test_beginnings() -> None:
    there = [Log(T, 0, True, 1, 3, 9), Log(T, 1, True, 2, 0, 4)]
    spots = beginnings(there, Listed({T: {0: 5}}))
    assert spots == {Key(T, 0): LogPosition(1, True, 5), Key(T, 1): LogPosition(2, True, 0)}
    with pytest.raises(PipelineError, match=r"option startingOffsets: .*partition 1, ends at 4, before 5"):
        beginnings(there, Listed({T: {1: 5}}))

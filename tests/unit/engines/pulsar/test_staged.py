"""What is staged for a batch, as its topic has it, and what a writer committed, as its log has it."""

import msgspec
import pytest

from penstock.broker.staging import Expected
from penstock.engines.pulsar.staging.log import (
    Began,
    Claimed,
    Committed,
    Forgot,
    Opened,
    Record,
    WriterState,
    packed,
    record_of,
)
from penstock.engines.pulsar.staging.parts import Piece, Staged
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, Span

A, B = "persistent://public/default/a", "persistent://public/default/b-partition-1"


class Log:
    """A batch's topic."""

    def __init__(self) -> None:
        self.staged = Staged("w", 1)
        self._entries = 0

    def add(self, piece: Piece, size: int = 10) -> None:
        self._entries += 1
        self.staged.add(piece, Entry(7, self._entries, 0, 1, 1000 + self._entries, 0, b""), size)

    def part(
        self, stage: str, part: int, attempt: str, *topics: str, checksum: int = 1, until: int = 99
    ) -> None:
        for number, topic in enumerate(topics[:until]):
            self.add(Piece(stage, part, checksum, attempt, number, len(topics), topic, 2))


def test_parts_count_once_and_when_they_are_complete() -> None:
    log, staged = Log(), Log().staged
    staged = log.staged
    log.part("s", 0, "half", A, A, B, until=2)
    assert (list(staged.stages), staged.expected("s")) == ([], Expected("s", 0, 0, 0))
    log.part("s", 0, "first", A, A, B)
    log.part("s", 0, "again", A, A, B)
    log.part("s", 1, "other", B)
    assert staged.expected("s") == Expected("s", 2, 8, 40)
    assert staged.attempts == {"first": "s", "other": "s"}
    assert staged.topics == {A, B}
    assert (staged.at, staged.last) == (1009, (7, 9))
    shares = staged.won([Expected("s", 2, 8, 40)])
    assert sorted((share.topic, share.messages) for share in shares) == [(A, 4), (B, 4)]
    for wrong, kind in (
        (Expected("s", 1, 8, 40), ErrorKind.STAGE_CONFLICT),
        (Expected("t", 1, 8, 40), ErrorKind.STAGE_NOT_FOUND),
    ):
        with pytest.raises(PenstockError) as caught:
            staged.won([wrong])
        assert caught.value.kind is kind


def test_a_part_with_other_content_is_a_conflict_until_its_stage_is_dropped() -> None:
    log = Log()
    log.part("s", 0, "one", A)
    log.part("t", 0, "two", A)
    log.part("s", 0, "three", A, checksum=2)
    with pytest.raises(PenstockError) as caught:
        log.staged.won([Expected("s", 1, 2, 10)])
    assert caught.value.kind is ErrorKind.STAGE_CONFLICT
    log.part("s", 1, "four", A, A, until=1)
    log.add(Piece("s"))
    assert list(log.staged.stages) == ["t"]
    assert log.staged.attempts == {"two": "t"}
    log.part("s", 0, "five", A, checksum=2)
    assert log.staged.won([Expected("s", 1, 2, 10)])


def test_a_writer_is_what_its_log_says() -> None:
    state = WriterState("w")
    span = Span(A, 3, 4, 5, -1, 6, 7, last=(3, 9))
    first = Commit("w", 1, 100, (A,), True, "d", (span,))
    second = Commit("w", 2, 200, (), False)
    records: list[Record] = [
        Opened(),
        Claimed("role", "origin", 50),
        Began((1, 2)),
        Committed(first),
        Committed(second),
    ]
    for number, record in enumerate(records):
        data = packed(record, producer="p", sequence_id=number, at=1)
        found = record_of(Entry(1, number, 0, 1, 1, 0, data), "w")
        assert found == record
        state.apply(found)
        assert state.open == ((1, 2) if number == 2 else None)
    assert state.commits == {(A,): first, (): second}
    assert (state.writer.owner, state.writer.at, state.writer.keep) == ("role", 200, True)
    assert [(target.batch, target.messages) for target in state.targets] == [(1, 6), (2, 0)]
    again = WriterState("w")
    for record in state.live:
        again.apply(record)
    assert msgspec.json.encode(again.writer) == msgspec.json.encode(state.writer)
    assert again.commits == state.commits
    state.apply(Committed(Commit("w", 0, 300, (A,))))  # it comes late, from a process that lost the writer
    assert state.commits == {(A,): first, (): second}
    state.apply(Forgot((A,)))
    assert state.commits == {(): second}
    state.apply(Committed(Commit("w", 0, 300, (A,))))
    assert state.commits[A,].batch == 0

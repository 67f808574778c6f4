"""What of a query comes from the archive, and what from the log."""

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.lake import span as module
from penstock.pipeline.lake.span import Span
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Position
from penstock.pipeline.source.offsets import End, Range, ranges


class Archived:
    """An archive that has `position` of partition 0."""

    schema = pa.schema([("offset", pa.int64())])

    def __init__(self, position: Position | None) -> None:
        self._position = position

    def position(self, topic: str, partition: int) -> Position | None:
        return self._position


def span(monkeypatch: pytest.MonkeyPatch, position: Position | None, *, fail: bool = True) -> Span:
    monkeypatch.setattr(module, "snapshot_of", lambda folder: Archived(position))
    return Span(Location.of("/anywhere"), fail_on_data_loss=fail)


@given(
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30), st.data(), st.booleans()
)
def test_every_offset_comes_from_one_place(
    first: int, archived: int, earliest: int, live: int, data: st.DataObject, fail: bool
) -> None:
    """Whatever the archive and the log hold: an offset asked for is read once, or it is nowhere."""
    end, latest = first + archived, earliest + live
    assume(end <= latest and archived)
    with pytest.MonkeyPatch.context() as monkeypatch:
        whole = span(monkeypatch, Position(first, end, 1), fail=fail)
    (log,) = whole.reach_back([Log("t", 0, True, 1, earliest, latest)])
    assert log.earliest == min(first, earliest)
    start = data.draw(st.integers(log.earliest, latest))
    stop = data.draw(st.integers(start, latest))
    there = {*range(first, end), *range(earliest, latest)}
    wanted = set(range(start, stop))
    asked = [Range("t", 0, True, 1, start, stop)] if start < stop else []
    if fail and not wanted <= there:
        with pytest.raises(DataLoss, match="neither in the archive"):
            whole.cut(asked)
        return
    pieces, rest = whole.cut(asked)
    old = [n for piece in pieces for n in range(piece.start, piece.end)]
    new = [n for each in rest for n in range(each.start, each.end)]
    assert sorted(old + new) == sorted(wanted & there)
    assert set(old) == wanted & set(range(first, end)), "what is archived is read from the archive"


def test_the_earliest_is_the_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = span(monkeypatch, Position(0, 20, 1))
    logs = whole.reach_back([Log("t", 0, True, 1, 15, 40)])
    (wanted,) = ranges(logs, End.EARLIEST, End.LATEST)
    assert (wanted.start, wanted.end) == (0, 40)


def test_logs_without_an_archive_are_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = span(monkeypatch, None)
    log = Log("t", 0, True, 1, 15, 40, {7: 16})
    assert whole.reach_back([log]) == [log]
    asked = [Range("t", 0, True, 1, 15, 40)]
    assert whole.cut(asked) == ([], asked)


def test_times_before_the_log_are_looked_for_in_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def offset_at(folder: Location, now: object, topic: str, partition: int, ms: int) -> int | None:
        asked.append(ms)
        return {100: 3, 200: None}[ms]

    monkeypatch.setattr(module, "offset_at", offset_at)
    whole = span(monkeypatch, Position(0, 20, 1))
    (log,) = whole.reach_back([Log("t", 0, True, 1, 15, 40, {100: 15, 200: 15, 300: 22})])
    assert log.at == {100: 3, 200: 15, 300: 22}
    assert asked == [100, 200], "what the log answers itself is not looked for"


def test_another_topics_archive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = span(monkeypatch, Position(0, 20, 1))
    with pytest.raises(PipelineError, match="an earlier topic t"):
        whole.reach_back([Log("t", 0, True, 2, 0, 40)])

"""What the next commit of an archive brings."""

import msgspec
import pytest

from penstock.client.access import Access
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.logs import Log
from penstock.pipeline.lake.archive_plan import ArchiveSpec, plan
from penstock.pipeline.lake.values import Position

SPEC = ArchiveSpec(server=Access(url="http://any"), table="/t", topics=("t",), rows_max=10)


class Archived:
    """A table that has archived these positions."""

    def __init__(self, **positions: Position) -> None:
        self._positions = positions

    def position(self, topic: str, partition: int) -> Position | None:
        return self._positions.get(f"{topic}{partition}")


def log(partition: int, earliest: int, latest: int, ledger: int = 1) -> Log:
    return Log("t", partition, True, ledger, earliest, latest)


def ranges(*found: object, **options: object) -> list[tuple[int, int, int]]:
    return [(step.log.partition, step.start, step.end) for step in plan(*found, **options)]  # type: ignore[arg-type]


def test_it_goes_on_where_the_table_ends() -> None:
    now = Archived(t0=Position(0, 7, 1))
    assert ranges(SPEC, now, [log(0, 3, 9), log(1, 2, 4)], None) == [(0, 7, 9), (1, 2, 4)]
    assert ranges(SPEC, now, [log(0, 3, 7)], None) == []


def test_a_commit_is_limited_and_every_log_has_its_part() -> None:
    found = ranges(SPEC, None, [log(0, 0, 1000), log(1, 0, 1), log(2, 0, 0)], None)
    assert sum(end - start for _, start, end in found) == 10
    assert [partition for partition, _, _ in found] == [0, 1]


def test_a_run_that_ends_ends_where_the_logs_were() -> None:
    ends = {("t", 0): 5}
    assert ranges(SPEC, None, [log(0, 0, 8), log(1, 0, 8)], ends) == [(0, 0, 5)]


def test_an_archive_of_what_comes_keeps_its_start() -> None:
    starts = {("t", 0): 5}
    latest = msgspec.structs.replace(SPEC, start="latest", once=False)
    assert ranges(latest, None, [log(0, 0, 5)], None, starts) == []
    assert ranges(latest, None, [log(0, 0, 8), log(1, 0, 2)], None, starts) == [(0, 5, 8), (1, 0, 2)]


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (Position(0, 2, 1), "the archive ends at 2, and the log begins at 3"),
        (Position(0, 10, 1), "the archive ends at 10, after the log's end 9"),
        (Position(0, 5, 2), "deleted and made anew"),
    ],
)
def test_what_cannot_go_on_is_said(position: Position, words: str) -> None:
    with pytest.raises((DataLoss, PipelineError), match=words):
        plan(SPEC, Archived(t0=position), [log(0, 3, 9)], None)  # type: ignore[arg-type]

"""What a log that is followed remembers of what came."""

from typing import Any

import pytest
from tests.support.waiting import until_async

from penstock.engines.kafka import log as followed
from penstock.engines.kafka.log import KafkaLog
from penstock.engines.kafka.naming import Place
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock


def test_a_gap_that_was_seen_in_parts_ends_where_the_last_part_does() -> None:
    """Markers and what was aborted may come in any pieces: the log was at its end between two transactions, or was not."""
    nobody: Any = None
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), nobody, ManualClock())
    log._live, log._expected = True, 2
    for end in (3, 6, 7):
        log.reached(end)
    assert [log.gap_end(at) for at in (2, 3, 6, 7)] == [7, 7, 7, 7]
    assert log.next_offset == 7


class Fetcher:
    """The id of the topic at each look (the last one from then on), and where it ends."""

    def __init__(self, *ids: str | None) -> None:
        self._ids = list(ids)
        self.tasks = Tasks()
        self.asked = 0  # for ends
        self.busy = False
        self.followed: list[int] = []  # from offsets

    async def ends(self, place: Any) -> tuple[int, int]:
        self.asked += 1
        return 0, 100

    async def follow(self, place: Any, offset: int, follower: object) -> None:
        self.followed.append(offset)

    async def topic_id(self, topic: str) -> str | None:
        return self._ids.pop(0) if len(self._ids) > 1 else self._ids[0]


class Shorter(Fetcher):
    """A log that ends at 4 for readers of committed records, and at `last` with open transactions."""

    def __init__(self, last: int) -> None:
        super().__init__("id")
        self.last = last
        self.tasks: Any = None

    async def ends(self, place: Any) -> tuple[int, int]:
        return 0, 4

    async def last_end(self, place: Any) -> int:
        return self.last


@pytest.mark.parametrize(("last", "cut_at"), [(4, 4), (9, 4), (10, None)])
async def test_a_log_that_ends_before_what_was_known_was_truncated_unless_a_transaction_is_open(
    last: int, cut_at: int | None
) -> None:
    fetcher: Any = Shorter(last)
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, ManualClock())
    log.next_offset = 10
    log._gap(4, 7)
    cuts: list[int | None] = []
    log.on_truncated = lambda: cuts.append(log.cut_at)
    await log.refresh()
    assert (log.cut_at, log.next_offset) == (cut_at, 4)
    assert cuts == ([] if cut_at is None else [cut_at])
    assert log.gap_end(4) == (7 if cut_at is None else 4)
    await log.refresh()
    assert len(cuts) <= 1


async def test_a_truncation_that_was_not_seen_in_time_holds_for_the_whole_log() -> None:
    """The log is longer again than what came here."""
    fetcher: Any = Shorter(20)
    fetcher.tasks = Tasks()
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, ManualClock())
    log.truncated()
    assert log.cut_at is None, "nothing came here"
    log._live, log.first_offset, log.next_offset = True, 2, 10
    log.truncated()
    log.lost()
    assert log.cut_at == 2
    assert not log._live
    await fetcher.tasks.close()


@pytest.mark.parametrize(
    ("ids", "deleted"),
    [(["id"], False), (["new"], True), ([None], True), ([None, None, "id"], False), ([None, "new"], True)],
)
async def test_a_topic_that_was_made_again_is_another_however_long_it_is(
    ids: list[str | None], deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "AGAIN_S", 0)
    fetcher: Any = Fetcher(*ids)
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, ManualClock())
    await log._look()
    assert (log.deleted, log.next_offset) == (deleted, 100)


@pytest.mark.parametrize(("later_ms", "asked"), [(0, 1), (followed.RECENT_MS + 1, 2)])
async def test_a_log_that_was_just_asked_for_is_followed_without_asking_again(
    later_ms: int, asked: int
) -> None:
    fetcher: Any = Fetcher("id")
    clock = ManualClock()
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, clock)
    await log.refresh()
    clock.turn(later_ms)
    log.followers.add(lambda: None)
    await until_async(lambda: fetcher.followed)
    assert (fetcher.asked, fetcher.followed) == (asked, [100])


def behind(fetcher: Any, first: int = 0) -> KafkaLog:
    """A log that ends at 100."""
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), fetcher, ManualClock())
    log.first_offset, log.next_offset, log._refreshed_ms = first, 100, log.clock.monotonic_ms()
    return log


@pytest.mark.parametrize(
    ("first", "needed", "followed_from"),
    [
        (0, (97,), 97),
        (0, (100,), 100),
        (0, (100, 95, 97), 95),
        (0, (100 - followed.BEHIND_MAX - 1,), 100),
        (98, (90,), 98),
    ],
)
async def test_a_log_is_followed_from_where_a_follower_is_if_that_is_close_to_the_end(
    first: int, needed: tuple[int, ...], followed_from: int
) -> None:
    fetcher: Any = Fetcher("id")
    log = behind(fetcher, first)
    for offset in needed:
        log.need_from(offset)
    log.followers.add(lambda: None)
    await until_async(lambda: fetcher.followed)
    log.lost()  # from then on older records are read
    assert (log._start(), fetcher.followed) == (100, [followed_from])
    await fetcher.tasks.close()


@pytest.mark.parametrize("live", [False, True])
async def test_records_before_the_end_are_awaited_only_if_readers_are_busy(live: bool) -> None:
    fetcher: Any = Fetcher("id")
    log = behind(fetcher)
    log.need_from(97)
    if live:
        log._expected, log._live = log._start(), True
    else:
        log._beginning = True
    assert not log._is_coming(97)
    assert log._is_coming(100) == live, "a new record is on its way"
    fetcher.busy = True
    assert log._is_coming(97)
    assert not log._is_coming(96)

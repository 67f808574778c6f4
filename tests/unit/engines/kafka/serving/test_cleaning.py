"""Cursors of topics that no longer exist."""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from tests.support.cursor_journal import SLOTS, Log, Process

from penstock.engines.kafka.driver.admin import Described
from penstock.engines.kafka.serving import cleaning
from penstock.engines.kafka.serving.cleaning import GRACE_MS, CursorCleaning
from penstock.engines.kafka.serving.state import CursorKey, CursorRecord
from penstock.model.errors import ErrorKind, PenstockError
from penstock.testing.clock import ManualClock


class Cluster:
    """Which topics there are; `unsure` are those about which it says nothing."""

    def __init__(self) -> None:
        self.there: dict[str, Described] = {}
        self.unsure: set[str] = set()
        self.away = False
        self.asked: list[list[str]] = []

    async def describe_all(self, topics: Sequence[str]) -> dict[str, Described | None]:
        if self.away:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")
        self.asked.append(list(topics))
        return {one: self.there.get(one) for one in topics if one not in self.unsure}


class Case:
    def __init__(self) -> None:
        self.clock, self.cluster = ManualClock(), Cluster()
        self.open: set[CursorKey] = set()
        self.process = Process(Log(), "a")
        self.cursors = self.process.cursors
        self.cleaning = CursorCleaning(self.cursors, self.cluster, self.clock, self.open.__contains__)

    async def save(self, topic: str, partition: int = 0, topic_id: str = "id") -> CursorKey:
        record = CursorRecord(topic, partition, "s", topic_id, 7)
        await self.cursors.save([record])
        return record.key

    async def after(self, ms: int) -> list[str]:
        """The topics and partitions that have cursors when so much time has passed and it has looked."""
        await self.clock.advance(ms)
        await self.cleaning.look()
        return sorted(self.left())

    def left(self) -> Iterator[str]:
        for slot in range(SLOTS):
            for key in self.cursors.load(slot):
                yield f"{key.topic}/{key.partition}"


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    made = Case()
    await made.cursors.claim(range(SLOTS))
    yield made
    await made.process.close()


async def test_cursors_of_a_topic_that_stays_missing_are_removed(case: Case) -> None:
    case.cluster.there = {"there": Described("id", 2), "fewer": Described("id", 1)}
    for topic, partition in (("there", 0), ("there", 1), ("fewer", 0), ("fewer", 1), ("gone", 0)):
        await case.save(topic, partition)
    await case.after(0)
    assert await case.after(GRACE_MS - 1) == ["fewer/0", "fewer/1", "gone/0", "there/0", "there/1"]
    assert await case.after(1) == ["fewer/0", "there/0", "there/1"]
    assert case.cleaning.removed == 2


async def test_a_topic_that_comes_again_within_the_time_keeps_its_cursors(case: Case) -> None:
    await case.save("t")
    await case.after(0)
    case.cluster.there["t"] = Described("another", 1)
    await case.after(GRACE_MS)
    del case.cluster.there["t"]
    assert await case.after(1) == ["t/0"], "the time begins again"
    assert await case.after(GRACE_MS) == []


async def test_nothing_is_removed_without_a_certain_answer(case: Case) -> None:
    await case.save("t")
    case.cluster.unsure.add("t")
    await case.after(0)
    assert await case.after(GRACE_MS) == ["t/0"]
    case.cluster.unsure.clear()
    await case.after(0)
    case.cluster.away = True
    with pytest.raises(PenstockError):
        await case.after(GRACE_MS)
    assert list(case.left()) == ["t/0"]


async def test_what_is_in_use_stays_and_what_another_topic_has_by_then(case: Case) -> None:
    key, changing = await case.save("t"), await case.save("u")
    case.open.add(key)
    await case.after(0)
    assert await case.after(GRACE_MS) == ["t/0"]
    await case.save("u", topic_id="new")
    await case.cursors.save([CursorRecord(changing.topic, 0, "s", "old", 0, deleted=True)])
    assert sorted(case.left()) == ["t/0", "u/0"]


async def test_topics_are_looked_at_in_turn(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "TOPICS_MAX", 2)
    for topic in "abc":
        await case.save(topic)
        case.cluster.there[topic] = Described("id", 1)
    del case.cluster.there["b"]
    assert [await case.cleaning.look() for _ in range(3)] == [["a"], ["c", "a"], ["c"]]
    assert case.cluster.asked == [["a", "b"], ["c", "a"], ["b", "c"]]

"""The reader of the ends of logs, over a consumer that the test plays."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.engines.kafka.driver import tail as module
from penstock.engines.kafka.driver.errors import ClientErrors
from penstock.engines.kafka.driver.record import At, Record
from penstock.engines.kafka.driver.tail import TailReader

WAIT_S: Final = 60.0


class Message:
    def __init__(self, place: At, offset: int) -> None:
        self._place, self._offset = place, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        """It is a record."""


class Cluster:
    """The clients of a process, and their consumer. The cluster says nothing of leaders until `told` is set."""

    generation = 0

    def __init__(self) -> None:
        self.errors = ClientErrors()
        self.given: SimpleQueue[Message] = SimpleQueue()
        self.assigned: set[At] = set()
        self.asked: list[str] = []
        self.unassigned_as_asked: list[str] = []
        self.told = threading.Event()
        self.going_on = threading.Event()  # polls return
        self.going_on.set()
        self.held = threading.Event()  # one does not

    def consumer(self, kind: str, own: object) -> "Cluster":
        return self

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned |= {(one.topic, one.partition) for one in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned -= {(one.topic, one.partition) for one in places}

    def list_topics(self, topic: str, timeout: float) -> None:
        if all(place[0] != topic for place in self.assigned):
            self.unassigned_as_asked.append(topic)
        self.asked.append(topic)
        if timeout:
            self.told.wait()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def poll(self, timeout: float) -> Message | None:
        if not self.going_on.is_set():
            self.held.set()
            self.going_on.wait(WAIT_S)
        try:
            return self.given.get(timeout=timeout / 10)
        except Empty:
            return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        return []

    def close(self) -> None:
        """Nothing is held."""


class Log:
    """A follower: `came` is set once a record has arrived."""

    def __init__(self) -> None:
        self.came = asyncio.Event()

    def arrived(self, records: Sequence[Record]) -> None:
        self.came.set()

    def reached(self, offset: int) -> None:
        raise AssertionError

    def truncated(self) -> None:
        raise AssertionError

    def lost(self) -> None:
        raise AssertionError


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def reader(cluster: Cluster) -> AsyncIterator[TailReader]:
    clients: Any = cluster
    made = TailReader(clients)
    yield made
    cluster.told.set()
    await made.close()


async def follow(reader: TailReader, *topics: str) -> list[Log]:
    logs = [Log() for _ in topics]
    await asyncio.gather(
        *(reader.follow((topic, 0), 0, log) for topic, log in zip(topics, logs, strict=True))
    )
    return logs


async def arrives(cluster: Cluster, topic: str, log: Log) -> None:
    """Wait for the next record of a topic. The thread has asked for the topics that were followed before."""
    cluster.given.put(Message((topic, 0), 0))
    async with asyncio.timeout(WAIT_S):
        await log.came.wait()


async def test_records_arrive_while_the_leaders_of_new_topics_are_unknown(
    cluster: Cluster, reader: TailReader
) -> None:
    async with asyncio.timeout(WAIT_S):
        (orders,) = await follow(reader, "orders")
        await follow(reader, *(f"new-{number}" for number in range(5)))
    await arrives(cluster, "orders", orders)


async def test_the_leader_of_a_topic_is_asked_for_once_and_after_it_was_assigned(
    cluster: Cluster, reader: TailReader
) -> None:
    _, others = await follow(reader, "orders", "others")
    await arrives(cluster, "others", others)
    await reader.leave(("orders", 0))
    _, thirds = await follow(reader, "orders", "thirds")
    await arrives(cluster, "thirds", thirds)
    assert (sorted(cluster.asked), cluster.unassigned_as_asked) == (["orders", "others", "thirds"], [])


async def test_many_topics_at_once_are_asked_for_within_a_bound(
    cluster: Cluster, reader: TailReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASKED_MAX", 3)
    (orders,) = await follow(reader, "orders")
    cluster.going_on.clear()
    cluster.held.clear()
    assert await asyncio.to_thread(cluster.held.wait, WAIT_S)
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(follow(reader, f"new-{number}"))
        while reader._wanted.qsize() < 8:
            await asyncio.sleep(0)
        cluster.going_on.set()
    await arrives(cluster, "orders", orders)
    assert (len(cluster.assigned), len(cluster.asked)) == (9, 4)

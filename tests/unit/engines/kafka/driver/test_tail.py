"""The reader of the ends of logs, over a consumer that the test plays."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

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
        self.asked: list[list[str]] = []  # topics, by request
        self.assignments = 0
        self.unassigned_as_asked: list[str] = []
        self.told = threading.Event()
        self.going_on = threading.Event()  # polls return
        self.going_on.set()
        self.held = threading.Event()  # one does not

    def consumer(self, kind: str, own: object) -> "Cluster":
        return self

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self.assignments += 1
        self.assigned |= {(one.topic, one.partition) for one in places}

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned -= {(one.topic, one.partition) for one in places}

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float) -> None:
        topics = [one.topic for one in places]
        self.unassigned_as_asked += [topic for topic in topics if (topic, 0) not in self.assigned]
        self.asked.append(topics)
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
    asked = sorted(topic for topics in cluster.asked for topic in topics)
    assert (asked, cluster.unassigned_as_asked) == (["orders", "others", "thirds"], [])


@pytest.fixture
async def held(cluster: Cluster, reader: TailReader) -> Log:
    """A log that is followed; the thread waits for `going_on` before it makes other changes."""
    (orders,) = await follow(reader, "orders")
    cluster.going_on.clear()
    cluster.held.clear()
    assert await asyncio.to_thread(cluster.held.wait, WAIT_S)
    return orders


async def test_many_topics_at_once_are_assigned_and_asked_for_together(
    cluster: Cluster, reader: TailReader, held: Log
) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(follow(reader, f"new-{number}"))
        while reader._wanted.qsize() < 8:
            await asyncio.sleep(0)
        cluster.going_on.set()
    await arrives(cluster, "orders", held)
    assert (len(cluster.assigned), cluster.assignments) == (9, 2)
    assert [len(topics) for topics in cluster.asked] == [1, 8]


async def test_of_changes_that_wait_the_last_one_of_a_log_counts(
    cluster: Cluster, reader: TailReader, held: Log
) -> None:
    others, again = Log(), Log()
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.follow(("others", 0), 0, others))
        group.create_task(reader.leave(("others", 0)))
        group.create_task(reader.leave(("orders", 0)))
        group.create_task(reader.follow(("orders", 0), 5, again))
        while reader._wanted.qsize() < 4:
            await asyncio.sleep(0)
        cluster.going_on.set()
    assert cluster.assigned == {("orders", 0)}
    cluster.given.put(Message(("others", 0), 0))
    await arrives(cluster, "orders", again)
    assert not others.came.is_set()
    assert not held.came.is_set()

"""Members of groups over a consumer that the test plays: held records, positions, commits, and rebalances within calls."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.engines.kafka.driver.errors import ClientErrors
from penstock.engines.kafka.driver.group_consumer import GroupConsumer
from penstock.engines.kafka.driver.held_records import RECORDS_MAX
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.driver.threads import DaemonThreads
from penstock.model.errors import ErrorKind, PenstockError

MIB = 1 << 20
FIRST, SECOND = ("t", 0), ("t", 1)


class Message:
    def __init__(
        self, offset: int, size: int = 1, place: At = FIRST, code: int | None = None, header: int = 0
    ) -> None:
        self._offset, self._size, self._at, self._code, self._header = offset, size, place, code, header

    def __len__(self) -> int:
        return self._size

    def topic(self) -> str:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return [("h", bytes(self._header)), ("none", None)] if self._header else None

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


class Kafka:
    """The clients of a process, and the log and group that its consumers see. A step is called by the next poll."""

    def __init__(self) -> None:
        self.generation = 0
        self.errors = ClientErrors()
        self.messages: deque[Message] = deque()
        self.steps: deque[Callable[[Consumer], Any]] = deque()
        self.refusals: deque[int] = deque()  # of commits
        self.committed: list[tuple[At, int, str]] = []
        self.made: list[Consumer] = []

    def consumer(self, kind: str, own: dict[str, Any]) -> "Consumer":
        assert kind == "member"
        self.made.append(Consumer(self, own))
        return self.made[-1]


class Consumer:
    def __init__(self, kafka: Kafka, own: dict[str, Any]) -> None:
        self.own = own
        self.assigned: list[TopicPartition] = []
        self.paused = self.closed = False
        self.stored: dict[At, int] = {}
        self.sought: list[tuple[At, int]] = []
        self.topics: list[str] = []
        self._kafka = kafka

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.topics, self._callbacks = topics, callbacks

    def tell(self, what: str, *places: At) -> None:
        self._callbacks[what](self, [TopicPartition(*place) for place in places])

    def unsubscribe(self) -> None:
        self.topics = []
        places = [(one.topic, one.partition) for one in self.assigned]
        self._kafka.steps.append(lambda consumer: consumer.tell("on_revoke", *places))

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = places

    incremental_assign = assign

    def unassign(self) -> None:
        self.assigned = []

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self.assigned = [one for one in self.assigned if one not in places]

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused = True

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused = False

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def poll(self, timeout_s: float) -> Any:
        assert not self.closed
        if self._kafka.steps:
            return self._kafka.steps.popleft()(self)
        return self._kafka.messages.popleft() if self._kafka.messages and not self.paused else None

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        found = []
        while len(found) < count and self._kafka.messages:
            found.append(self._kafka.messages.popleft())
        return found

    def committed(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        found = {at: offset for at, offset, _ in self._kafka.committed}
        return [
            TopicPartition(one.topic, one.partition, found.get((one.topic, one.partition), -1001))
            for one in places
        ]

    def seek(self, place: TopicPartition) -> None:
        self.sought.append(((place.topic, place.partition), place.offset))

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored |= {(one.topic, one.partition): one.offset for one in offsets}

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        if self._kafka.refusals:
            raise KafkaException(KafkaError(self._kafka.refusals.popleft()))
        self._kafka.committed += [((one.topic, one.partition), one.offset, one.metadata) for one in offsets]
        return offsets

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def kafka() -> Kafka:
    return Kafka()


@pytest.fixture
def threads() -> Iterator[DaemonThreads]:
    made = DaemonThreads(2, "test")
    yield made
    made.shutdown()


@pytest.fixture
async def member(kafka: Kafka, threads: DaemonThreads) -> AsyncIterator[GroupConsumer]:
    """One that subscribes to a topic and has both partitions."""
    made = consumer_of(kafka, threads)
    await made.subscribe(["t"])
    kafka.steps.append(lambda consumer: consumer.tell("on_assign", FIRST, SECOND))
    await made.wait(0)
    yield made
    if not made.closed:
        await made.close()


def consumer_of(kafka: Kafka, threads: DaemonThreads, *, auto_commit: bool = True) -> GroupConsumer:
    return GroupConsumer(
        kafka,  # type: ignore[arg-type] # it is made of fewer parts
        threads,
        "g",
        client_id="c",
        reset="earliest",
        auto_commit=auto_commit,
    )


async def taken(member: GroupConsumer, bytes_max: int = MIB) -> list[int]:
    """The offsets of one fetch."""
    await member.wait(0)
    found = member.peek(bytes_max)
    member.take(len(found))
    return [one.offset() for one in found]


async def test_a_fetch_is_bounded_and_confirms_the_one_before(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend(Message(offset, 40) for offset in range(3))
    assert await taken(member, 100) == [0, 1]
    assert kafka.made[0].stored == {}, "nothing says yet that the records arrived"
    assert await taken(member, 10) == [2], "a larger record comes alone"
    assert kafka.made[0].stored == {FIRST: 2}
    assert await taken(member) == []
    assert kafka.made[0].stored == {FIRST: 3}
    await member.commit(None)
    assert kafka.committed == [(FIRST, 3, "")]


async def test_headers_count(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend(Message(offset, header=2000) for offset in range(3))
    assert await taken(member, 1000) == [0]
    assert await taken(member, 4100) == [1, 2]


async def test_a_wait_for_bytes_ends_with_them_or_with_its_time(member: GroupConsumer, kafka: Kafka) -> None:
    arriving = Message(0, 40), None, None, Message(1, 40), None, Message(2, 40)
    kafka.steps.extend(lambda consumer, one=one: one for one in arriving)  # type: ignore[misc]
    await member.wait(60, 120)
    assert [one.offset() for one in member.peek(MIB)] == [0, 1, 2]
    await member.wait(0, 121)
    assert not member.holds(121)
    kafka.messages.extend(Message(offset) for offset in range(3, RECORDS_MAX))
    await member.wait(60, MIB)
    assert len(member.peek(MIB)) == RECORDS_MAX, "no more are held"


async def test_records_that_are_not_taken_come_again(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend([Message(0), Message(1)])
    await member.wait(0)
    assert len(member.peek(MIB)) == 2
    await member.commit(None)
    assert kafka.committed == []
    assert await taken(member) == [0, 1]


async def test_revoked_partitions_lose_their_records(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend([Message(0), Message(0, place=SECOND), Message(1)])
    await member.wait(0)
    kafka.steps.append(lambda consumer: consumer.tell("on_revoke", FIRST))
    assert await taken(member) == [0]
    assert member.assigned == {SECOND}
    kafka.messages.append(Message(5))
    assert await taken(member) == [], "a record of another member's partition"
    await member.commit(None)
    assert kafka.committed == [(SECOND, 1, "")]


async def test_partitions_that_come_back_go_on(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend([Message(4), Message(6, place=SECOND), Message(5)])
    assert await taken(member) == [4, 6, 5]
    kafka.messages.append(Message(6))
    await member.wait(0)  # it is held, and read again
    kafka.committed.append((SECOND, 9, ""))  # by another member
    kafka.steps.append(lambda consumer: consumer.tell("on_revoke", FIRST, SECOND))
    kafka.steps.append(lambda consumer: consumer.tell("on_assign", FIRST, SECOND))
    assert await taken(member) == []
    assert await taken(member) == []
    assigned = {(one.topic, one.partition): one.offset for one in kafka.made[0].assigned}
    assert assigned == {FIRST: 6, SECOND: 9}
    kafka.steps.append(lambda consumer: consumer.tell("on_lost", FIRST, SECOND))
    kafka.steps.append(lambda consumer: consumer.tell("on_assign", FIRST))
    assert await taken(member) == []
    assert await taken(member) == []
    assert [one.offset for one in kafka.made[0].assigned] == [-1001], "others may have had it"


async def test_an_idle_member_pauses_when_it_holds_enough(member: GroupConsumer, kafka: Kafka) -> None:
    consumer = kafka.made[0]
    kafka.messages.extend(Message(offset) for offset in range(RECORDS_MAX - 1))
    member.keep()
    assert not consumer.paused
    kafka.messages.extend(Message(offset) for offset in range(RECORDS_MAX - 1, RECORDS_MAX + 10))
    member.keep()
    assert consumer.paused
    kafka.steps.append(lambda consumer: consumer.tell("on_assign", ("t", 2)))
    member.keep()
    assert ("t", 2) in member.assigned, "it takes part while it is paused"
    assert await taken(member) == list(range(RECORDS_MAX))
    assert not consumer.paused
    assert await taken(member) == list(range(RECORDS_MAX, RECORDS_MAX + 10))


async def test_seeking_forgets_what_is_held(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.extend([Message(0), Message(0, place=SECOND)])
    await member.wait(0)
    await member.seek({FIRST: 7})
    assert kafka.made[0].sought == [(FIRST, 7)]
    assert await taken(member) == [0]
    await member.commit(None)
    assert sorted(kafka.committed) == [(FIRST, 7, ""), (SECOND, 1, "")]


async def test_a_commit_waits_for_a_rebalance(
    member: GroupConsumer, kafka: Kafka, threads: DaemonThreads
) -> None:
    kafka.refusals.extend([KafkaError.REBALANCE_IN_PROGRESS, KafkaError.UNKNOWN_MEMBER_ID])
    await member.commit({FIRST: (3, "m")})
    assert kafka.committed == [(FIRST, 3, "m")]
    alone = consumer_of(kafka, threads)
    await alone.assign([FIRST])
    kafka.refusals.append(KafkaError.UNKNOWN_MEMBER_ID)
    with pytest.raises(PenstockError) as refused:
        await alone.commit({FIRST: (4, "")})
    assert refused.value.kind is ErrorKind.SUBSCRIPTION_BUSY
    kafka.refusals.append(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(PenstockError) as refused:
        await member.commit({FIRST: (4, "")})
    assert refused.value.kind is ErrorKind.FORBIDDEN


async def test_errors_of_the_cluster(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.append(Message(0, code=KafkaError._ALL_BROKERS_DOWN))
    assert await taken(member) == []
    kafka.messages.append(Message(0, code=KafkaError.UNKNOWN_TOPIC_OR_PART))
    assert await taken(member) == [], "one of the topics is not there"
    kafka.messages.append(Message(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(PenstockError) as refused:
        await member.wait(60)
    assert refused.value.kind is ErrorKind.FORBIDDEN
    kafka.messages.extend([Message(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED), Message(0)])
    assert await taken(member) == [0], "other topics may be read"


async def test_a_group_with_the_other_protocol_is_joined_by_that(member: GroupConsumer, kafka: Kafka) -> None:
    strategy = "partition.assignment.strategy"
    kafka.messages.append(Message(0, code=KafkaError.INCONSISTENT_GROUP_PROTOCOL))
    await member.wait(0)
    await member.wait(0)
    assert [one.own[strategy] for one in kafka.made] == ["range,roundrobin", "cooperative-sticky"]
    assert kafka.made[0].closed
    assert kafka.made[1].topics == ["t"]
    kafka.messages.append(Message(0, code=KafkaError.INCONSISTENT_GROUP_PROTOCOL))
    with pytest.raises(PenstockError):
        await member.wait(60)


async def test_new_credentials_make_a_new_consumer_that_goes_on(kafka: Kafka, threads: DaemonThreads) -> None:
    member = consumer_of(kafka, threads)
    await member.assign([FIRST, SECOND])
    kafka.messages.extend([Message(4), Message(5, MIB)])
    assert await taken(member, 1) == [4]
    kafka.generation += 1
    member.keep()
    old, new = kafka.made
    assert old.closed
    assert {(one.partition, one.offset) for one in new.assigned} == {(0, 5), (1, -1001)}
    kafka.messages.append(Message(5, MIB))
    assert await taken(member, 1) == [5], "records that were held are read again"
    await member.close()


async def test_giving_up_a_subscription_confirms_and_waits_for_the_revocation(
    member: GroupConsumer, kafka: Kafka
) -> None:
    kafka.messages.append(Message(0))
    assert await taken(member) == [0]
    await member.assign([SECOND])
    assert member.assigned == {SECOND}
    assert kafka.made[0].stored == {FIRST: 1}
    assert [(one.topic, one.partition) for one in kafka.made[0].assigned] == [SECOND]
    await member.subscribe([])
    assert member.assigned == frozenset()
    assert kafka.made[0].assigned == []


async def test_closing_waits_for_the_call_under_way(member: GroupConsumer, kafka: Kafka) -> None:
    going, polled = Event(), Event()

    def poll(consumer: Consumer) -> Message:
        polled.set()
        going.wait(30)
        return Message(0)

    kafka.steps.append(poll)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(member.wait(30))
        await asyncio.to_thread(polled.wait, 30)
        closing = group.create_task(member.close())
        await asyncio.sleep(0)
        assert member.closed
        assert not kafka.made[0].closed
        going.set()
    assert waiting.done()
    assert closing.done()
    assert kafka.made[0].closed
    with pytest.raises(PenstockError):
        await member.wait(0)
    assert len(kafka.made) == 1


async def test_a_wait_that_is_cancelled_leaves_its_records_to_the_next(
    member: GroupConsumer, kafka: Kafka
) -> None:
    going, polled = Event(), Event()

    def poll(consumer: Consumer) -> Message:
        polled.set()
        going.wait(30)
        return Message(0)

    kafka.steps.append(poll)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(member.wait(30))
        await asyncio.to_thread(polled.wait, 30)
        waiting.cancel()
        await asyncio.sleep(0)
        assert waiting.cancelled() or waiting.cancelling()
        going.set()
    assert await taken(member) == [0]


async def test_what_was_returned_is_confirmed_at_the_end(member: GroupConsumer, kafka: Kafka) -> None:
    kafka.messages.append(Message(0))
    assert await taken(member) == [0]
    await member.close()
    assert kafka.made[0].stored == {FIRST: 1}

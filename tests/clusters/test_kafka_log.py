"""Logs of a real Kafka: positions, reads, followers, gaps, and what happens when a topic goes."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.waiting import until_async

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver import reader
from penstock.engines.kafka.driver.admin import KafkaAdmin
from penstock.engines.kafka.driver.clients import Clients
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.log import LOOK_MS, KafkaLog
from penstock.engines.kafka.naming import Place
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import LoopClock
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

TAIL_BYTES = 1 << 20
FOREVER_MS = 60_000  # a test that waits so long has failed


class Kafka:
    """What makes logs, before one cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        own = Clients(ClusterSettings(url=cluster.service_url))
        self.tasks = Tasks()
        self.admin = KafkaAdmin(own, 30.0)
        self.fetcher = Fetcher(own, self.admin, self.tasks, TAIL_BYTES)

    async def topic(self, partitions: int = 1, config: dict[str, str] | None = None) -> str:
        """A new topic."""
        topic = f"log-{uuid4().hex[:12]}"
        await self.admin.create(topic, partitions, 1, config)
        async with asyncio.timeout(60):
            while await self.admin.describe(topic) is None:  # the broker learns of it from the controller
                await asyncio.sleep(0.01)
        return topic

    async def log(self, topic: str, partition: int = 0) -> KafkaLog:
        """A log of a topic that is there."""
        found = await self.fetcher.topic_id(topic)
        assert found is not None
        name = TopicName.of("persistent", "public", "default", topic)
        place = Place(topic, partition, found)
        return KafkaLog(name, place, self.fetcher, LoopClock())

    def producer(self, **own: object) -> Producer:
        """A producer of another kind."""
        return Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 0, **own})

    async def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """Have another producer store records."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert await asyncio.to_thread(producer.flush, 60) == 0


@asynccontextmanager
async def kafka(cluster: KafkaCluster) -> AsyncIterator[Kafka]:
    """All that reads, and its end."""
    made = Kafka(cluster)
    try:
        yield made
    finally:
        await made.fetcher.close()
        await made.tasks.close()
        await made.admin.close()


def nothing() -> None:
    """A follower that only has the log followed."""


def payloads(entries: list[Entry]) -> list[bytes]:
    """Of entries of one message each."""
    return [message.payload for entry in entries for message in wire.decode(entry)]


async def test_a_log_begins_and_ends_where_kafka_says(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic(2)
        await made.produce(topic, b"0", b"1", b"2", partition=1)
        empty, log = await made.log(topic), await made.log(topic, 1)
        await asyncio.gather(empty.refresh(), log.refresh())
        assert (empty.first_offset, empty.next_offset) == (0, 0)
        assert (log.first_offset, log.next_offset, log.first_entry, log.next_entry) == (0, 3, 0, 3)
        assert log.ledger != empty.ledger
        assert log.ledger < 2**53


async def test_entries_are_read_from_any_position(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        values = [b"%d" % number for number in range(100)]
        await made.produce(topic, *values)
        log = await made.log(topic)
        await log.refresh()
        first = await log.read(0, 30)
        assert payloads(first) == values[:30]
        assert [entry.entry_id for entry in first] == [entry.offset for entry in first] == list(range(30))
        assert {(entry.count, entry.ledger) for entry in first} == {(1, log.ledger)}
        assert payloads(await log.read(30, 1000)) == values[30:]
        assert payloads(await log.read(95, 1000)) == values[95:]
        assert payloads(await log.read(10, 1000, 4)) == values[10:12]
        assert await log.read(100, 10) == []
        assert (await log.entry(7)).offset == 7
        with pytest.raises(PenstockError) as caught:
            await log.entry(100)
        assert caught.value.kind is ErrorKind.MESSAGE_NOT_FOUND


async def test_the_first_read_of_a_topic_does_not_wait_until_librdkafka_looks_for_leaders(
    kafka_cluster: KafkaCluster,
) -> None:
    async with kafka(kafka_cluster) as made:
        logs = [await made.log(await made.topic()) for _ in range(4)]
        took: list[float] = []
        for log in logs:
            await made.produce(log.place.topic, b"one")
            await log.refresh()
            began = time.monotonic()
            assert payloads(await log.read(0, 1)) == [b"one"]
            took.append(time.monotonic() - began)
        assert min(took[1:]) < 0.5, f"{took}: it looks once a second"


async def test_followers_that_are_a_little_behind_need_no_readers_if_these_are_busy(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic(4)
        logs = [await made.log(topic, number) for number in range(4)]
        for log in logs:
            await made.produce(topic, b"a", b"b", b"c", partition=log.partition)
            await log.refresh()
        monkeypatch.setattr(reader, "BUSY", 0)
        for log in logs:
            log.need_from(1)
            log.followers.add(nothing)
        await asyncio.sleep(0)
        found = await asyncio.gather(*(log.read(1, 10) for log in logs))
        assert [payloads(one) for one in found] == [[b"b", b"c"]] * 4
        assert made.fetcher._readers._count == 0
        monkeypatch.undo()
        assert payloads(await logs[0].read(0, 10)) == [b"a", b"b", b"c"]


async def test_positions_are_found_by_id_time_and_size(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        producer = made.producer()
        since = int(time.time() * 1000) - 60_000  # not long ago: retention deletes what is old
        for number in range(10):
            producer.produce(topic, b"x" * 100, timestamp=since + number * 1000)
        await asyncio.to_thread(producer.flush, 60)
        log = await made.log(topic)
        await log.refresh()
        assert await log.offset_after(EARLIEST) == 0
        assert await log.offset_after(LATEST) == 10
        assert await log.offset_after(MessageId(log.ledger, 4)) == 5
        assert await log.offset_after(MessageId(log.ledger, 4), inclusive=True) == 4
        assert await log.offset_after(MessageId(log.ledger, 4, 0, 2, 3)) == 7
        with pytest.raises(PenstockError) as caught:
            await log.offset_after(MessageId(log.ledger + 1, 4))
        assert caught.value.kind is ErrorKind.BAD_PARAMETER
        assert await log.offset_at_time(since) == 0
        assert await log.offset_at_time(since + 3001) == 4
        assert await log.offset_at_time(since + 9001) == 10
        whole = await log.size_since(0)
        assert 10 * 100 < whole < 10 * 200
        assert await log.size_since(5) == whole // 2
        found = await log.find_size(whole // 2)
        assert found is not None
        assert found.entry_id == 5
        assert await log.find_size(10) is None
        assert await log.offset_at_time(2**80) == 10
        later = since + 600_000  # after this process's clock
        producer.produce(topic, b"x", timestamp=later)
        await asyncio.to_thread(producer.flush, 60)
        await log.refresh()
        assert await log.offset_at_time(later) == 10
        assert await log.offset_at_time(later + 1) == 11


async def test_a_follower_is_called_and_finds_what_came_in_memory(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        await made.produce(topic, b"before")
        log = await made.log(topic)
        calls: list[int] = []

        def follow() -> None:
            calls.append(log.next_offset)

        log.followers.add(follow)
        await until_async(lambda: log.next_offset == 1)
        await made.produce(topic, b"one", b"two")
        await until_async(lambda: log.next_offset == 3)
        assert calls[-1] == 3
        assert payloads(list(log.peek_all(1, 10))) == [b"one", b"two"]
        assert payloads(await log.read(0, 10)) == [b"before", b"one", b"two"]
        log.followers.discard(follow)


async def test_grown_waits_for_the_next_record(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        log = await made.log(topic)
        await log.refresh()
        assert not await log.grown(0, 1)
        waiting = asyncio.create_task(log.grown(0, FOREVER_MS))  # noqa: TID251 # awaited below
        await made.produce(topic, b"one")
        assert await waiting
        assert await log.grown(0, 1)


async def test_many_logs_are_followed_by_one_reader(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic(8)
        logs = [await made.log(topic, number) for number in range(8)]
        for log in logs:
            log.followers.add(nothing)
        for number in range(8):
            await made.produce(topic, *[b"%d" % number] * (number + 1), partition=number)
        await until_async(lambda: [log.next_offset for log in logs] == list(range(1, 9)))
        for number, log in enumerate(logs):
            assert payloads(await log.read(0, 100)) == [b"%d" % number] * (number + 1)


async def test_a_log_that_was_left_is_followed_again_without_repeats(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        log = await made.log(topic)
        for turn in range(5):
            log.followers.add(nothing)
            await until_async(lambda: log._live)
            await made.produce(topic, b"a%d" % turn, b"b%d" % turn)
            await until_async(lambda wanted=2 * turn + 2: log.next_offset == wanted)  # type: ignore[misc]
            log.followers.discard(nothing)
            log._quit()
        assert payloads(await log.read(0, 100)) == [
            b"%c%d" % (one, turn) for turn in range(5) for one in b"ab"
        ]


async def test_what_transactions_leave_out_is_a_gap(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        log = await made.log(topic)
        log.followers.add(nothing)
        await until_async(lambda: log._live)
        await asyncio.to_thread(_transactions, made, topic)
        # 0 1, a marker, 3 4 that were aborted with their marker, 6 7, a marker
        await until_async(lambda: log.next_offset == 9)
        assert log.gap_end(2) == 6
        assert log.gap_end(8) == 9
        assert payloads(list(log.peek_all(6, 10))) == [b"c", b"d"]
        other = await made.log(topic)
        await other.refresh()
        assert other.next_offset == 9
        first = await other.read(0, 100)
        assert payloads(first) == [b"a", b"b"]
        assert [entry.offset for entry in await other.read(2, 100)] == [6, 7]
        assert other.gap_end(2) == 6
        assert await other.read(8, 100) == []
        assert other.gap_end(8) == 9


def _transactions(made: Kafka, topic: str) -> None:
    producer = made.producer(**{"transactional.id": f"t-{topic}"})
    producer.init_transactions()
    for values, commit in ((b"ab", True), (b"xy", False), (b"cd", True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, bytes((value,)), partition=0)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()


async def test_a_read_goes_on_where_deleted_records_end(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        await made.produce(topic, *[b"%d" % number for number in range(10)])
        log = await made.log(topic)
        await log.refresh()
        await made.admin.delete_records({(topic, 0): 4})
        assert payloads(await log.read(0, 100)) == [b"%d" % number for number in range(4, 10)]
        assert log.first_offset == 4
        await made.admin.delete_records({(topic, 0): 10})
        assert await log.read(5, 100) == []
        assert (log.first_offset, log.next_offset) == (10, 10)


async def test_a_topic_that_is_deleted_ends_its_log(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        log = await made.log(topic)
        log.followers.add(nothing)
        await until_async(lambda: log._live)
        waiting = asyncio.create_task(log.grown(0, FOREVER_MS))  # noqa: TID251 # awaited below
        await made.admin.delete(topic)

        def looked() -> bool:  # again and again: brokers learn of it one after the other
            log._looked_ms -= LOOK_MS
            log.sweep()
            return log.deleted

        await until_async(looked)
        assert not await waiting


async def test_a_topic_that_was_made_again_has_another_log(kafka_cluster: KafkaCluster) -> None:
    async with kafka(kafka_cluster) as made:
        topic = await made.topic()
        await made.produce(topic, b"one")
        log = await made.log(topic)
        await log.refresh()
        await made.admin.delete(topic)
        await made.admin.create(topic, 1, 1)
        kinds: set[ErrorKind] = set()
        # Brokers hear of it one after the other: the old one may be there yet, or none.
        while not log.deleted:
            try:
                await log.refresh()
            except PenstockError as error:
                kinds.add(error.kind)
        assert kinds == {ErrorKind.TOPIC_NOT_FOUND}
        await made.admin.created(topic, 60)
        again = await made.log(topic)
        assert again.ledger != log.ledger


async def test_what_a_log_does_while_the_broker_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with standalone(tmp_path) as cluster:
        async with kafka(cluster) as made:
            topic, other = await made.topic(), await made.topic()
            await made.produce(other, b"one")
            log, followed = await made.log(other), await made.log(topic)
            await log.refresh()
            followed.followers.add(nothing)
            await made.produce(topic, b"before")
            await until_async(lambda: followed.next_offset == 1)

            cluster.kill(signal.SIGKILL)
            monkeypatch.setattr(reader, "QUIET_S", 1.0)
            with pytest.raises(PenstockError) as caught:
                await log.read(0, 10)
            assert caught.value.kind is ErrorKind.UNAVAILABLE

            await asyncio.to_thread(cluster.restart)
            monkeypatch.setattr(reader, "QUIET_S", 60.0)
            assert payloads(await log.read(0, 10)) == [b"one"]
            await made.produce(topic, b"after")
            await until_async(lambda: followed.next_offset == 2)
            assert payloads(await followed.read(0, 10)) == [b"before", b"after"]

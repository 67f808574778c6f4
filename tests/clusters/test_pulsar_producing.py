"""Producers and schemas of the Pulsar engine, before a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from tests.support.pulsar_broker import EARLY_MS, PulsarCluster
from tests.support.waiting import until_async

import penstock
from penstock.broker.producer import Item, Result
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.pulsar import producer as module
from penstock.engines.pulsar.broker import PulsarBroker
from penstock.engines.pulsar.producer import Producer
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import java_string_hash
from penstock.model.message import OutMessage
from penstock.model.message_id import UNKNOWN_ID, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, ProducerOptions
from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.runtime.clock import LoopClock
from penstock.wire import entry as wire

EARLIEST = penstock.InitialPosition.Earliest


def avro(*fields: str) -> SchemaInfo:
    inner = ",".join(f'{{"name":"{name}","type":["null","string"],"default":null}}' for name in fields)
    return SchemaInfo(SchemaType.AVRO, f'{{"type":"record","name":"R","fields":[{inner}]}}'.encode(), "R")


def texts(*payloads: str, **more: Any) -> list[OutMessage]:
    return [OutMessage(payload=payload.encode(), **more) for payload in payloads]


def ids(results: list[Result]) -> list[MessageId]:
    for result in results:
        if isinstance(result, PenstockError):
            raise result
    return [result for result in results if isinstance(result, MessageId)]


def kinds(results: list[Result]) -> list[object]:
    return [result.kind if isinstance(result, PenstockError) else type(result) for result in results]


class Engine:
    """A process's engine, and a topic of the test's own."""

    def __init__(self, broker: PulsarBroker, namespace: str) -> None:
        self.broker = broker
        self.topic = TopicName.parse(f"persistent://{namespace}/produced-{uuid4().hex[:8]}")

    async def producer(self, topic: TopicName | None = None, **options: Any) -> Producer:
        made = await self.broker.producer(topic or self.topic, ProducerOptions(**options))
        assert isinstance(made, Producer)
        return made


@asynccontextmanager
async def engine(cluster: PulsarCluster, namespace: str) -> AsyncIterator[Engine]:
    settings = ClusterSettings(url=cluster.service_url, admin_url=cluster.admin_url, learned_ms=0)
    broker = PulsarBroker(settings, BrokerSettings(), LoopClock())
    await broker.start()
    try:
        yield Engine(broker, namespace)
    finally:
        await broker.close()


@pytest.fixture
async def ours(pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> AsyncIterator[Engine]:
    async with engine(pulsar_cluster, pulsar_namespace) as one:
        yield one


async def stored(cluster: PulsarCluster, topic: TopicName, count: int) -> list[tuple[str, MessageId]]:
    """What is on a topic: payloads with their ids, `count` of them and what is there beyond."""
    async with penstock.aio.Client(cluster.service_url) as client:
        reader = await client.create_reader(str(topic), penstock.MessageId.earliest)
        seen = []
        while len(seen) < count or await reader.has_message_available():
            message = await reader.read_next(30_000)
            at = message.message_id()
            index = at.batch_index()
            size = at.batch_size() if index >= 0 else 0
            place = MessageId(at.ledger_id(), at.entry_id(), topic.partition, index, size)
            seen.append((message.data().decode(), place))
        return seen


async def payloads(cluster: PulsarCluster, topic: TopicName, count: int) -> list[str]:
    return [payload for payload, _ in await stored(cluster, topic, count)]


# -- what is published


async def test_ids_are_those_that_readers_see(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()
    results = ids(await producer.publish(texts("a", "b")))
    results += ids(await producer.publish(texts("c", "d"), batch=False))
    placed = await producer.publish_plain([b"e", b"f"], None)
    results += [MessageId(placed.ledger, placed.entry_id, -1, index, 2) for index in range(2)]
    results += ids(await producer.publish(texts("g")))
    assert await stored(pulsar_cluster, ours.topic, 7) == list(zip("abcdefg", results, strict=True))
    assert [one.batch_index for one in results] == [0, 1, -1, -1, 0, 1, -1]
    assert producer.published == 7
    assert ours.broker.topics.open_topics[0].producers == {producer.name: producer}


async def test_calls_are_on_their_way_together_and_in_order(
    pulsar_cluster: PulsarCluster, ours: Engine
) -> None:
    producer = await ours.producer()
    calls = [producer.publish(texts(*(f"{n}.{i}" for i in range(5))), batch=n % 2 == 0) for n in range(60)]
    for results in await asyncio.gather(*calls):
        ids(results)
    expected = [f"{n}.{i}" for n in range(60) for i in range(5)]
    assert await payloads(pulsar_cluster, ours.topic, 300) == expected


async def test_a_bad_message_fails_alone(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()
    for batch in (True, False):
        messages = [
            *texts("a"),
            OutMessage(payload=b"x" * 6_000_000),
            OutMessage(payload=b"y", properties={"bad": "\ud800"}),
            OutMessage(payload=b"z", partition=7),
            *texts("b"),
        ]
        results = await producer.publish(messages, batch=batch)
        wanted = [ErrorKind.TOO_LARGE, ErrorKind.BAD_ENCODING, ErrorKind.PARTITION_NOT_FOUND]
        assert kinds(results) == [MessageId, *wanted, MessageId]
    assert await payloads(pulsar_cluster, ours.topic, 4) == ["a", "b", "a", "b"]


async def test_a_key_finds_its_partition_as_in_pulsars_clients(
    pulsar_cluster: PulsarCluster, ours: Engine
) -> None:
    await ours.broker.topics.create(ours.topic, 3)
    producer = await ours.producer()
    assert len(producer.topics) == 3
    keys = [f"key-{n}" for n in range(30)]
    results = ids(await producer.publish([OutMessage(payload=b"x", key=key) for key in keys]))
    assert [one.partition for one in results] == [java_string_hash(key) % 3 for key in keys]
    (chosen,) = ids(await producer.publish([OutMessage(payload=b"y", partition=2)]))
    assert chosen.partition == 2
    assert [one for _, one in await stored(pulsar_cluster, ours.topic.of_partition(2), 1)][-1] == chosen
    placed = await producer.publish_plain([b"z"], None, 1)
    assert placed.topic.name == ours.topic.of_partition(1)


async def test_partitions_that_are_added_are_used(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    await ours.broker.topics.create(ours.topic, 1)
    producer = await ours.producer()
    path = f"{ours.topic.domain}/{ours.topic.tenant}/{ours.topic.namespace}/{ours.topic.local}"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", f"{path}/partitions", json=3)
    await ours.broker.topics.learn(ours.topic)
    await until_async(lambda: len(producer.topics) == 3)
    (result,) = ids(await producer.publish([OutMessage(payload=b"x", partition=2)]))
    assert result.partition == 2


async def test_delayed_messages_go_alone(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()
    late = LoopClock().now_ms() + 3000
    messages = [*texts("a", "b"), *texts("late", deliver_at=late), *texts("c", "d")]
    results = ids(await producer.publish(messages))
    assert [one.batch_size for one in results] == [2, 2, 0, 2, 2]
    async with penstock.aio.Client(pulsar_cluster.service_url) as client:
        consumer = await client.subscribe(
            str(ours.topic), "s", penstock.ConsumerType.Shared, initial_position=EARLIEST
        )
        seen = {(await consumer.receive(30_000)).data(): LoopClock().now_ms() for _ in range(5)}
    assert set(seen) == {b"a", b"b", b"c", b"d", b"late"}
    assert seen[b"late"] >= late - EARLY_MS


async def test_a_topic_that_moves_loses_nothing(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()
    calls = []
    path = f"persistent/{ours.topic.tenant}/{ours.topic.namespace}/{ours.topic.local}"
    for number in range(100):
        calls.append(asyncio.get_running_loop().create_task(producer.publish(texts(str(number)))))
        if number == 50:
            await asyncio.to_thread(pulsar_cluster.admin, "PUT", f"{path}/unload")
    for results in await asyncio.wait_for(asyncio.gather(*calls), 60):
        ids(results)
    seen = await payloads(pulsar_cluster, ours.topic, 100)
    assert list(dict.fromkeys(seen)) == [str(number) for number in range(100)]


async def test_entries_of_clients_go_as_they_are(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()

    def entry(first: int, *some: bytes) -> Item[NewEntry]:
        made = wire.encode_plain(
            some, producer=producer.name, sequence_id=first, publish_time=1, schema_version=None
        )
        return Item(made)

    items = [entry(0, b"a", b"b"), entry(2, b"c")]
    results = ids(await producer.publish_entries(items))
    assert [item.result for item in items] == results
    assert await payloads(pulsar_cluster, ours.topic, 3) == ["a", "b", "c"]


# -- sequence ids


async def test_repeats_are_stored_once(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str, ours: Engine
) -> None:
    path = f"namespaces/{pulsar_namespace}/deduplication"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", path, json=True)
    producer = await ours.producer(name="once")
    assert producer.figures().stored_sequence_id == -1
    numbered = [OutMessage(payload=b"%d" % n, sequence_id=n) for n in range(4)]
    ids(await producer.publish(numbered[:2]))
    # One is stored, one is new, one comes twice: each gets what is right for it, though they came in one call.
    again = [
        OutMessage(payload=message.payload, sequence_id=message.sequence_id)
        for message in (numbered[1], numbered[2], numbered[2], numbered[3])
    ]
    results = ids(await producer.publish(again))
    assert [one == UNKNOWN_ID for one in results] == [True, False, True, False]
    # A repeat of what is on its way is known for one as well.
    twice = [producer.publish([OutMessage(payload=b"4", sequence_id=4)]) for _ in range(5)]
    found = [one == UNKNOWN_ID for (one,) in map(ids, await asyncio.gather(*twice))]
    assert found == [False, True, True, True, True]
    assert producer.figures().last_sequence_id == 4
    producer.close()
    assert await payloads(pulsar_cluster, ours.topic, 5) == ["0", "1", "2", "3", "4"]


async def test_numbers_go_on_where_a_name_ended(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str, ours: Engine
) -> None:
    path = f"namespaces/{pulsar_namespace}/deduplication"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", path, json=True)
    for payload in ("a", "b", "c"):
        producer = await named(ours, "again")
        ids(await producer.publish(texts(payload)))
        producer.close()
    assert await payloads(pulsar_cluster, ours.topic, 3) == ["a", "b", "c"]


async def named(ours: Engine, name: str) -> Producer:
    """A producer of a name that may be in use for a moment yet."""
    while True:
        try:
            return await ours.producer(name=name)
        except PenstockError as error:
            if error.kind is not ErrorKind.PRODUCER_BUSY:
                raise


# -- who may publish


async def test_a_name_in_use_is_refused(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str, ours: Engine
) -> None:
    await ours.producer(name="mine")
    async with engine(pulsar_cluster, pulsar_namespace) as other:
        with pytest.raises(PenstockError, match="'mine' is already connected") as caught:
            await other.producer(ours.topic, name="mine")
    assert caught.value.kind is ErrorKind.PRODUCER_BUSY


async def test_requests_without_a_sequence_id_are_no_repeats(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str
) -> None:
    """Also where others published under the name, or after them, before they are sent."""
    path = f"namespaces/{pulsar_namespace}/deduplication"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", path, json=True)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(engine(pulsar_cluster, pulsar_namespace))
        two = await stack.enter_async_context(engine(pulsar_cluster, pulsar_namespace))
        first = await one.producer(name="shared", shared_name=True)
        second = await two.producer(one.topic, name="shared", shared_name=True)
        ids(await first.publish(texts("0")))
        for number in range(1, 4):
            ids(await second.publish(texts(str(number))))
        message = texts("4")
        requests = first.ask(message, [60_000])
        # The first request of a process listens for replies before it is sent: what comes meanwhile overtakes it.
        found = await asyncio.gather(
            first.publish(message, requests=requests), first.publish(texts("5")), first.publish(texts("6"))
        )
        for results in found:
            assert UNKNOWN_ID not in ids(results)
        for request in requests:
            assert request is not None
            request.withdraw()
        topic = one.topic
    assert sorted(await payloads(pulsar_cluster, topic, 7)) == list("0123456")


async def test_a_producer_of_requests_leaves_when_it_is_not_used(
    pulsar_cluster: PulsarCluster, ours: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNUSED_S", 0.05)
    producer = await ours.producer(stateless=True)
    name = producer.name
    ids(await producer.publish(texts("a")))
    path = f"persistent/{ours.topic.tenant}/{ours.topic.namespace}/{ours.topic.local}/stats"
    while (await asyncio.to_thread(pulsar_cluster.admin, "GET", path)).json()["publishers"]:
        pass
    await until_async(lambda: not ours.broker.topics.open_topics[0].producers)
    ids(await producer.publish(texts("b")))
    assert producer.name == name
    assert await payloads(pulsar_cluster, ours.topic, 2) == ["a", "b"]


async def test_a_topic_for_one_producer_alone(ours: Engine) -> None:
    first = await ours.producer(access_mode=AccessMode.EXCLUSIVE)
    with pytest.raises(PenstockError) as caught:
        await ours.producer()
    assert caught.value.kind is ErrorKind.EXCLUSIVE_PRODUCER
    ousted: list[PenstockError] = []
    first.ousted = ousted.append
    second = await ours.producer(access_mode=AccessMode.EXCLUSIVE_WITH_FENCING)
    ids(await second.publish(texts("alone")))
    assert kinds(await first.publish(texts("late"))) == [ErrorKind.PRODUCER_FENCED]
    assert [error.kind for error in ousted] == [ErrorKind.PRODUCER_FENCED]
    with pytest.raises(PenstockError) as caught:
        await first.publish(texts("later"))
    assert caught.value.kind is ErrorKind.PRODUCER_FENCED


async def test_a_terminated_topic_takes_no_more(pulsar_cluster: PulsarCluster, ours: Engine) -> None:
    producer = await ours.producer()
    ids(await producer.publish(texts("a")))
    path = f"persistent/{ours.topic.tenant}/{ours.topic.namespace}/{ours.topic.local}/terminate"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", path)
    assert kinds(await producer.publish(texts("b", "c"), batch=False)) == [ErrorKind.TOPIC_TERMINATED] * 2
    assert producer.closed
    with pytest.raises(PenstockError) as caught:
        await ours.producer()
    assert caught.value.kind is ErrorKind.TOPIC_TERMINATED


async def test_a_topic_that_is_deleted_ends_its_producers(
    pulsar_cluster: PulsarCluster, ours: Engine
) -> None:
    producer = await ours.producer(name="left")
    path = f"persistent/{ours.topic.tenant}/{ours.topic.namespace}/{ours.topic.local}"
    producer.close()
    await until_async(lambda: not ours.broker.topics.open_topics[0].producers)
    other = await ours.producer()
    await ours.broker.topics.learn(ours.topic)
    await asyncio.to_thread(pulsar_cluster.admin, "DELETE", path, params={"force": "true"})

    async def gone() -> bool:
        await ours.broker.topics.learn(ours.topic)
        return other.closed or ours.broker.topics.exists(ours.topic)

    while not await gone():
        pass
    again = await ours.producer()
    ids(await again.publish(texts("new")))


async def test_a_namespace_that_is_not_there(ours: Engine) -> None:
    with pytest.raises(PenstockError, match="there is no namespace public/nowhere") as caught:
        await ours.producer(TopicName.parse("persistent://public/nowhere/t"))
    assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND


# -- schemas


async def test_each_message_may_have_a_schema_of_its_own(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str, ours: Engine
) -> None:
    schemas, changes = ours.broker.schemas, ours.broker.schemas.changes
    producer = await ours.producer()
    first = await producer.schema_version(avro("a"))
    second = await producer.schema_version(avro("a", "b"))
    assert (first, second) == (0, 1)
    assert await producer.schema_version(avro("a")) == 0
    assert schemas.changes > changes
    newest = schemas.latest(ours.topic)
    assert newest is not None
    assert newest.version == 1
    versions = [0, 0, 1, 1, 0]
    results = ids(await producer.publish([OutMessage(payload=b"\0", schema_version=one) for one in versions]))
    assert [one.batch_size for one in results] == [2, 2, 2, 2, 0]
    async with engine(pulsar_cluster, pulsar_namespace) as other:
        with pytest.raises(PenstockError):
            other.broker.schemas.version(ours.topic, 0)
        await other.broker.schemas.fetch(ours.topic, 0)
        assert other.broker.schemas.knows(ours.topic, 0)
        assert other.broker.schemas.version(ours.topic, 0).schema.data == avro("a").data
        await other.broker.topics.learn(ours.topic)
        assert [one.version for one in other.broker.schemas.all(ours.topic)] == [0, 1]
        assert other.broker.schemas.find(ours.topic, avro("a", "b")) == 1


async def test_the_cluster_says_which_schema_may_follow(ours: Engine) -> None:
    producer = await ours.producer()
    assert await producer.schema_version(STRING_SCHEMA) == 0
    with pytest.raises(PenstockError, match="exists schema type STRING") as caught:
        await producer.schema_version(avro("a"))
    assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA
    assert "org.apache" not in caught.value.message


async def test_what_stays_is_no_change(ours: Engine) -> None:
    producer = await ours.producer()
    await producer.schema_version(avro("a"))
    await ours.broker.topics.learn(ours.topic)
    changes, newest = ours.broker.schemas.changes, ours.broker.schemas.latest(ours.topic)
    await ours.broker.topics.learn(ours.topic)
    assert ours.broker.schemas.latest(ours.topic) is newest
    assert ours.broker.schemas.changes == changes


async def test_a_schema_that_is_deleted(ours: Engine) -> None:
    producer = await ours.producer()
    await producer.schema_version(avro("a"))
    assert await ours.broker.schemas.delete(ours.topic) == 1
    assert ours.broker.schemas.latest(ours.topic) is None
    with pytest.raises(PenstockError) as caught:
        ours.broker.schemas.get(ours.topic)
    assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND


async def test_a_namespace_that_demands_schemas(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str, ours: Engine
) -> None:
    producer = await ours.producer()
    version = await producer.schema_version(avro("a"))
    producer.close()
    path = f"namespaces/{pulsar_namespace}/schemaValidationEnforced"
    await asyncio.to_thread(pulsar_cluster.admin, "POST", path, json=True)
    refusal = ""
    while not refusal:  # the broker soon knows it
        strict = await ours.producer()
        ids(await strict.publish([OutMessage(payload=b"\0", schema_version=version)]))
        strict.close()
        try:
            ours.broker.schemas.check_next(ours.topic, None)
        except PenstockError as error:
            refusal = error.message
    assert "takes no messages without one" in refusal

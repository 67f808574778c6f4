"""The producer endpoint over a real socket."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.waiting import until_async
from tests.support.websocket import CONSUMER, PRODUCER, READER, Peer, WebSocketServer, base64, text

from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies, ProducerOptions
from penstock.protocols.limits import Limits
from penstock.testing.clock import ManualClock, settle

TOPIC = TopicName.parse("t")


async def consumer(server: WebSocketServer, query: str = "", topic: str = "t") -> Peer:
    return await server.connect(f"{CONSUMER}/{topic}/s?subscriptionInitialPosition=Earliest{query}")


async def test_a_message_from_end_to_end() -> None:
    async with WebSocketServer.open(clock=ManualClock(1_543_238_579_817)) as server:
        receiving = await consumer(server)
        sending = await server.connect(f"{PRODUCER}/t?producerName=p")
        answer = await sending.ask(
            {
                "payload": "SGVsbG8gV29ybGQ=",
                "properties": {"key1": "value1", "n": 5},
                "key": "k",
                "context": 5,
                "eventTime": "2016-08-30T16:45:57.785+02:00",
            }
        )
        assert answer == {
            "result": "ok",
            "messageId": "CAAQAA==",
            "context": "5",
            "errorCode": 0,
            "schemaVersion": 0,
        }
        assert await receiving.receive() == {
            "messageId": "CAAQAA==",
            "payload": "SGVsbG8gV29ybGQ=",
            "properties": {"key1": "value1", "n": "5"},
            "key": "k",
            "publishTime": "2018-11-26T13:22:59.817Z",
            "eventTime": "2016-08-30T14:45:57.785Z",
            "redeliveryCount": 0,
            "producerName": "p",
            "sequenceId": 0,
        }


@pytest.mark.parametrize("batching", ["false", "true"])
async def test_answers_keep_the_order_and_name_what_is_delivered(batching: str) -> None:
    async with WebSocketServer.open() as server:
        receiving = await consumer(server)
        sending = await server.connect(f"{PRODUCER}/t?batchingEnabled={batching}")
        count = 2500
        for number in range(count):
            await sending.send({"payload": base64(str(number)), "context": number})
        answers = [await sending.receive() for _ in range(count)]
        assert [a["context"] for a in answers] == [str(n) for n in range(count)]
        seen = []
        for _ in range(count):
            frame = await receiving.receive()
            seen.append((frame["messageId"], text(frame), frame["sequenceId"]))
            await receiving.send({"messageId": frame["messageId"]})
        assert seen == [(a["messageId"], str(n), n) for n, a in enumerate(answers)]
        entries = (await server.broker.topics.get(TOPIC)).next_entry
        assert entries == count if batching == "false" else entries < count


async def test_neighbours_share_an_entry_up_to_batching_max_messages() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(f"{PRODUCER}/t?batchingEnabled=true&batchingMaxMessages=3")
        for number in range(100):
            await sending.send({"payload": base64(str(number))})
        for _ in range(100):
            assert (await sending.receive())["result"] == "ok"
        topic = await server.broker.topics.get(TOPIC)
        entries = await topic.read(0, 1000)
        assert max(entry.count for entry in entries) == 3
        assert sum(entry.count for entry in entries) == 100


async def test_a_bad_frame_fails_alone_and_in_its_place() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(f"{PRODUCER}/t")
        for frame in (
            {"payload": "eA==", "context": "a"},
            "{broken",
            b"binary frames are ignored",
            {"payload": "?", "context": "b"},
            {"payload": "eA==", "context": "c"},
        ):
            await sending.send(frame)
        answers = [await sending.receive() for _ in range(4)]
        assert [(a["result"], a.get("context")) for a in answers] == [
            ("ok", "a"),
            ("send-error:3", None),
            ("send-error:7", "b"),
            ("ok", "c"),
        ]


async def test_sequence_ids_count_and_repeats_are_stored_once() -> None:
    async with WebSocketServer.open(settings=BrokerSettings(deduplication=True)) as server:
        first = await server.connect(f"{PRODUCER}/t?producerName=p&initialSequenceId=9")
        ids = await first.publish("a")
        ids += await first.publish("b", sequenceId=20)
        await first.close()
        await until_async(lambda: not server.sockets)
        again = await server.connect(f"{PRODUCER}/t?producerName=p")
        assert await again.publish("b", sequenceId=20) == ids[1:]
        await again.publish("c", sequenceId=21)
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        frames = [await reading.receive() for _ in range(3)]
        assert [(text(f), f["sequenceId"]) for f in frames] == [("a", 10), ("b", 20), ("c", 21)]


async def test_messages_of_many_schemas() -> None:
    definition = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    avro = {"type": "AVRO", "schema": definition}
    async with WebSocketServer.open() as server:
        await server.broker.namespaces.ensure(NamespaceName("public", "default"))
        receiving = await consumer(server)
        sending = await server.connect(f"{PRODUCER}/t?batchingEnabled=true")
        good = {"payload": "AgM=", "valueSchema": avro}
        for frame in (
            {**good, "payload": "Ag==", "context": "0"},
            {**good, "payload": base64("no avro, far too long"), "context": "1"},
            {"payload": "Ag==", "schemaVersion": 0, "context": "2"},
            {"payload": "Ag==", "schemaVersion": 9, "context": "3"},
            {"payload": "Ag==", "keySchema": avro, "context": "4"},
            {"payload": "eA==", "valueSchema": {"type": "STRING"}, "context": "5"},
            {"payload": "eA==", "context": "6"},
        ):
            await sending.send(frame)
        answers = {a["context"]: a for a in [await sending.receive() for _ in range(7)]}
        results = {context: answer["result"] for context, answer in answers.items()}
        assert results == {
            "0": "ok",
            "1": "send-error:7",
            "2": "ok",
            "3": "send-error:7",
            "4": "send-error:7",
            "5": "send-error:8",
            "6": "ok",
        }
        assert "AVRO" in answers["5"]["errorMsg"] or "schema" in answers["5"]["errorMsg"].lower()
        frames = [await receiving.receive() for _ in range(3)]
        assert [f.get("schemaVersion") for f in frames] == [0, 0, None]


async def test_a_frame_may_say_that_its_pair_is_inline() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(f"{PRODUCER}/t")
        receiving = await consumer(server)
        pair = base64("\0\0\0\1k\0\0\0\1v")  # each part with its size before it
        schemas = {"keySchema": {"type": "STRING"}, "valueSchema": {"type": "STRING"}}
        answer = await sending.ask({"payload": pair, **schemas, "keyValueEncoding": "INLINE"})
        assert (answer["result"], answer["schemaVersion"]) == ("ok", 0)
        assert (await receiving.receive())["payload"] == pair
        kept = server.broker.schemas.version(TOPIC, 0).schema
        assert kept.properties["kv.encoding.type"] == "INLINE"
        broken = {"payload": base64("no pair"), **schemas, "keyValueEncoding": "INLINE"}
        assert (await sending.ask(broken))["result"] == "send-error:7"
        unknown = await sending.ask({"payload": pair, **schemas, "keyValueEncoding": "BESIDE"})
        assert unknown["result"] == "send-error:8"
        assert "key_value_encoding" in unknown["errorMsg"]


async def test_where_schemas_are_demanded_messages_without_one_fail() -> None:
    async with WebSocketServer.open() as server:
        namespace = NamespaceName("public", "default")
        sending = await server.connect(f"{PRODUCER}/t")
        await sending.publish("a", valueSchema={"type": "STRING"})
        await server.broker.namespaces.update(namespace, NamespacePolicies(schema_validation_enforced=True))
        assert (await sending.ask({"payload": ""}))["result"] == "send-error:8"
        await sending.publish("b", valueSchema={"type": "STRING"})


async def test_delayed_messages_wait_on_shared_subscriptions() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock) as server:
        receiving = await consumer(server, "&subscriptionType=Shared")
        sending = await server.connect(f"{PRODUCER}/t?batchingEnabled=true")
        await sending.publish("later", deliverAfterMs=5000)
        await sending.publish("at", deliverAt=clock.now_ms() + 3000)
        await sending.publish("now")
        assert await receiving.take(1) == ["now"]
        await receiving.nothing_more()
        await clock.advance(3000)
        assert await receiving.take(1) == ["at"]
        await receiving.nothing_more()
        await clock.advance(2000)
        assert await receiving.take(1) == ["later"]


async def test_keys_choose_partitions_and_one_partition_takes_the_rest() -> None:
    async with WebSocketServer.open() as server:
        await server.broker.topics.create(TOPIC, 4)
        sending = await server.connect(f"{PRODUCER}/t")
        ids = await sending.publish(*"abcdefgh")
        assert len({i[:4] for i in ids}) == 1  # SinglePartition is the default
        one = await sending.publish("x", "y", key="k")
        assert one[0][:4] == one[1][:4]
        receiving = await consumer(server)
        assert sorted(await receiving.take(10)) == sorted("abcdefghxy")


async def test_a_message_too_large_fails_alone() -> None:
    async with WebSocketServer.open(settings=BrokerSettings(max_message_bytes=10)) as server:
        sending = await server.connect(f"{PRODUCER}/t")
        answer = await sending.ask({"payload": base64("x" * 11), "context": "c"})
        assert (answer["result"], answer["context"]) == ("send-error:8", "c")
        await sending.publish("x" * 10)


async def test_a_frame_too_large_closes_that_socket_alone() -> None:
    async with WebSocketServer.open(limits=Limits(max_frame_bytes=1000)) as server:
        sending, other = await server.connect(f"{PRODUCER}/t"), await server.connect(f"{PRODUCER}/t")
        await sending.send("x" * 1001)
        assert (await sending.closed())[0] == 1009
        await other.publish("a")


async def test_a_topic_that_is_terminated_or_deleted() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(f"{PRODUCER}/t")
        await sending.publish("a")
        await server.broker.topics.terminate(TOPIC)
        answer = await sending.ask({"payload": "", "context": "c"})
        assert answer["result"] == "send-error:8"
        assert "terminated" in answer["errorMsg"]
        assert (await server.upgrade(f"{PRODUCER}/t"))[0] == 503
        await server.broker.administration.delete_topic(TOPIC, force=True)
        assert await sending.closed() == (4008, "Unknown error")


@pytest.mark.parametrize("deduplicates", [False, True])
async def test_sockets_share_a_producer_name(deduplicates: bool) -> None:
    async with WebSocketServer.open(settings=BrokerSettings(deduplication=deduplicates)) as server:
        one, two, numbered = [await server.connect(f"{PRODUCER}/t?producerName=p") for _ in range(3)]
        taken = await server.broker.producer(
            TOPIC, ProducerOptions(name="p")
        )  # as the binary protocol opens one
        for number in range(3):
            await one.publish(f"one {number}")
            await two.publish(f"two {number}")
        ids = await numbered.publish("n0", sequenceId=0)
        ids += await numbered.publish("n1", sequenceId=1)
        if deduplicates:
            assert await one.publish("n0", sequenceId=0) + await two.publish("n1", sequenceId=1) == ids
        topic = await server.broker.topics.get(TOPIC)
        assert [each.name for each in topic.producers.values()] == ["p"] * 4
        await one.close()
        await until_async(lambda: len(topic.producers) == 3)
        assert not taken.closed
        reading = await server.connect(f"{READER}/t?messageId=earliest")
        frames = [await reading.receive() for _ in range(8)]
        assert [text(frame) for frame in frames] == [
            *(f"{which} {number}" for number in range(3) for which in ("one", "two")),
            "n0",
            "n1",
        ]
        assert {frame["producerName"] for frame in frames} == {"p"}
        assert [frame["sequenceId"] for frame in frames[:6]] == list(range(6))
        await reading.nothing_more()


class SlowStore(MemoryStore):
    """Appends wait until they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.failure: PenstockError | None = None

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> Any:
        return asyncio.get_running_loop().create_task(self._append(ledger, entries))

    async def _append(self, ledger: int, entries: Sequence[NewEntry]) -> AppendResult:
        await self.may.wait()
        if self.failure is not None:
            raise self.failure
        return await super().append(ledger, entries)


async def test_a_message_that_is_not_stored_in_time_is_answered() -> None:
    clock, store = ManualClock(), SlowStore()
    async with WebSocketServer.open(clock=clock, store=store) as server:
        sending = await server.connect(f"{PRODUCER}/t?sendTimeoutMillis=1000")
        for context in "ab":
            await sending.send({"payload": "", "context": context})
        await sending.fence()
        await clock.advance(999)
        await clock.advance(1001)
        answers = [await sending.receive() for _ in range(2)]
        assert [(a["result"], a["context"]) for a in answers] == [
            ("send-error:8", "a"),
            ("send-error:8", "b"),
        ]
        assert "1000 ms" in answers[0]["errorMsg"]
        store.may.set()
        assert (await sending.ask({"payload": "", "context": "c"}))["context"] == "c"


async def test_a_close_frame_is_answered_once_what_was_sent_is_stored() -> None:
    store = SlowStore()
    async with WebSocketServer.open(store=store) as server, asyncio.timeout(60):
        sending = await server.connect(f"{PRODUCER}/t?producerName=p")
        await sending.send({"payload": base64("a")})
        await sending.fence()
        async with asyncio.TaskGroup() as tasks:
            closing = tasks.create_task(sending.close())
            await settle(200)
            early = closing.done()
            store.may.set()
        assert not early
        topic = await server.broker.topics.get(TOPIC)
        assert (topic.next_offset, len(topic.producers)) == (1, 0)


async def test_a_store_that_fails_is_told_and_recovers() -> None:
    store = SlowStore()
    store.may.set()
    async with WebSocketServer.open(store=store) as server:
        sending = await server.connect(f"{PRODUCER}/t")
        store.failure = PenstockError(ErrorKind.STORAGE_FULL, "the disk is full")
        answer = await sending.ask({"payload": ""})
        assert (answer["result"], answer["errorMsg"]) == ("send-error:8", "the disk is full")
        store.failure = None
        await sending.publish("a")


async def test_a_full_queue_slows_the_reading_down() -> None:
    store = SlowStore()
    async with WebSocketServer.open(store=store) as server:
        sending = await server.connect(f"{PRODUCER}/t?sendTimeoutMillis=0", ping_interval=None)
        big = {"payload": base64("x" * 700_000)}
        count = 60

        async def send_all() -> None:
            for _ in range(count):
                await sending.send(big)

        async with asyncio.TaskGroup() as group:
            sent = group.create_task(send_all())
            await asyncio.sleep(0.3)  # for what should not happen: nothing tells of it
            assert not sent.done()  # 56 MB do not fit into what the server and the system hold
            store.may.set()
            for _ in range(count):
                assert (await sending.receive())["result"] == "ok"


async def test_an_idle_socket_is_closed() -> None:
    clock = ManualClock()
    async with WebSocketServer.open(clock=clock, limits=Limits(websocket_idle_ms=1000)) as server:
        sending = await server.connect(f"{PRODUCER}/t")
        await clock.advance(900)
        await sending.publish("a")
        await clock.advance(900)
        await sending.publish("a")
        await clock.advance(1300)
        assert await sending.closed() == (1001, "idle for limits.websocket_idle_ms")


async def test_draining_answers_what_is_in_flight_and_closes() -> None:
    store = SlowStore()
    async with WebSocketServer.open(store=store) as server:
        sending, receiving = await server.connect(f"{PRODUCER}/t"), await consumer(server)
        await sending.send({"payload": "", "context": "in flight"})
        await sending.fence()
        server.context.draining = True
        async with asyncio.TaskGroup() as group:
            drained = group.create_task(server.sockets.drain())
            assert (await server.upgrade(f"{PRODUCER}/t"))[0] == 503
            assert not drained.done()
            store.may.set()
            assert (await sending.receive())["context"] == "in flight"
        assert await sending.closed() == (1001, "the server is shutting down")
        assert (await receiving.closed())[0] == 1001


async def test_a_socket_that_does_not_end_is_cut_off() -> None:
    clock, store = ManualClock(), SlowStore()
    async with WebSocketServer.open(clock=clock, store=store) as server:
        sending = await server.connect(f"{PRODUCER}/t?sendTimeoutMillis=0")
        await sending.send({"payload": ""})
        await sending.fence()
        async with asyncio.TaskGroup() as group:
            drained = group.create_task(server.sockets.drain())
            await settle()
            assert not drained.done()
            await clock.advance(10_000)
        await sending.closed()
        store.may.set()


async def test_a_payload_that_does_not_fit_registers_nothing() -> None:
    async with WebSocketServer.open() as server:
        sending = await server.connect(f"{PRODUCER}/t")
        answer = await sending.ask({"payload": base64("too long"), "valueSchema": {"type": "INT32"}})
        assert answer["result"] == "send-error:7"
        assert server.broker.schemas.all(TopicName.parse("t")) == []
        answer = await sending.ask({"payload": base64("\0\0\0\1"), "valueSchema": {"type": "INT32"}})
        assert (answer["result"], answer["schemaVersion"]) == ("ok", 0)

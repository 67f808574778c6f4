"""Transcripts of sessions: what is said and what is heard (Pulsar's binary protocol)."""

from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC as NAME
from tests.unit.protocols.binary.handlers import TOPIC, ClientSession, entry, sessions

from penstock.broker.cluster import ClusterTraits, Owner
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import sticky_hash
from penstock.model.names import TopicName
from penstock.wire.pulsar_pb2 import (
    CommandCloseConsumer,
    CommandCloseProducer,
    CommandConnected,
    CommandConsumerStats,
    CommandFlow,
    CommandGetLastMessageId,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandNewTxn,
    CommandPartitionedTopicMetadata,
    CommandPing,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    IntRange,
    KeySharedMeta,
    KeySharedMode,
    ProducerAccessMode,
    Schema,
    ServerError,
)

pytestmark = pytest.mark.anyio

EXCLUSIVE = CommandSubscribe.Exclusive


def subscribe(number: int = 1, **fields: Any) -> CommandSubscribe:
    fields = {"topic": TOPIC, "subscription": "s", "subType": EXCLUSIVE, "request_id": 7, **fields}
    return CommandSubscribe(consumer_id=number, initialPosition=CommandSubscribe.Earliest, **fields)


def producer(number: int = 1, **fields: Any) -> CommandProducer:
    fields = {"topic": TOPIC, "request_id": 5, "producer_name": "p", **fields}
    return CommandProducer(producer_id=number, **fields)


async def test_connect() -> None:
    async with sessions() as (one,):
        answer = await one.connect()
        assert isinstance(answer, CommandConnected)
        assert answer.protocol_version == 21
        assert answer.max_message_size == 5 * 1024 * 1024
        assert answer.feature_flags.supports_request_reply


async def test_nothing_goes_before_connect() -> None:
    async with sessions() as (one,):
        one.say(CommandPing())
        assert await one.heard() == []
        assert one.output.closed


async def test_connecting_twice_is_the_end() -> None:
    async with sessions() as (one,):
        await one.connect()
        one.say(CommandConnected(server_version="?"))
        await one.heard()
        assert "not for a broker" in one.output.reason


async def test_ping() -> None:
    async with sessions() as (one,):
        await one.connect()
        assert type(await one.ask(CommandPing())).__name__ == "CommandPong"


async def test_lookup_leads_here_the_way_the_client_came() -> None:
    async with sessions() as (one,):
        await one.connect()
        answer = await one.ask(CommandLookupTopic(topic=TOPIC, request_id=3))
        assert answer.response == CommandLookupTopicResponse.Connect
        assert (answer.request_id, answer.brokerServiceUrl) == (3, "pulsar://here:6650")
        assert answer.proxy_through_service_url
        assert not answer.HasField("brokerServiceUrlTls")  # an empty one is no URL, and clients parse it
        bad = await one.ask(CommandLookupTopic(topic="a/b", request_id=4))
        assert (bad.response, bad.error) == (CommandLookupTopicResponse.Failed, ServerError.InvalidTopicName)


class Cluster:
    """Owners of topics are other processes."""

    traits = ClusterTraits(kind="kafka", administered=False)

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def owner(self, topic: TopicName, client: object) -> Owner:
        return self._owner


@pytest.mark.parametrize(
    ("url", "tls_url", "leads"),
    [
        ("pulsar://owner:1", "", True),
        ("pulsar://owner:1", "pulsar+ssl://owner:2", True),
        ("", "pulsar+ssl://owner:2", False),  # the client came without TLS
        ("", "", False),
    ],
)
async def test_lookup_leads_to_the_owner_if_clients_reach_it(url: str, tls_url: str, leads: bool) -> None:
    async with sessions() as (one,):
        await one.connect()
        one.bench.broker.cluster = Cluster(Owner(url, tls_url))  # type: ignore[assignment]
        answer = await one.ask(CommandLookupTopic(topic=TOPIC, request_id=3))
        one.bench.broker.cluster = None
        assert (
            answer.response == CommandLookupTopicResponse.Connect
        )  # never Redirect: the next lookup decides anew
        assert answer.brokerServiceUrl == ("pulsar://owner:1" if leads else "pulsar://here:6650")
        assert answer.brokerServiceUrlTls == (tls_url if leads else "")
        assert answer.proxy_through_service_url is not leads


async def test_partitioned_metadata() -> None:
    async with sessions() as (one,):
        await one.connect()
        answer = await one.ask(CommandPartitionedTopicMetadata(topic=TOPIC, request_id=1))
        assert answer.partitions == 0
        await one.bench.broker.topics.create(NAME.sibling("many"), 4)
        many = CommandPartitionedTopicMetadata(topic=str(NAME.sibling("many")), request_id=2)
        assert (await one.ask(many)).partitions == 4
        none = CommandPartitionedTopicMetadata(
            topic="nowhere", request_id=3, metadata_auto_creation_enabled=False
        )
        assert (await one.ask(none)).error == ServerError.TopicNotFound


async def test_publishing_and_receiving() -> None:
    async with sessions() as (one,):
        await one.connect()
        made = await one.ask(producer())
        assert (made.request_id, made.producer_name, made.last_sequence_id) == (5, "p", -1)
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"a"))
        one.say(
            CommandSend(producer_id=1, sequence_id=1, num_messages=3, highest_sequence_id=3),
            entry(b"b", b"c", b"d", sequence_id=1),
        )
        receipts = await one.heard()
        assert [(r.sequence_id, r.message_id.entryId, r.highest_sequence_id) for r in receipts] == [
            (0, 0, 0),
            (1, 1, 3),
        ]
        assert (await one.ask(subscribe())).request_id == 7
        one.say(CommandFlow(consumer_id=1, messagePermits=2))
        messages = await one.heard()
        assert [m.message_id.entryId for m in messages] == [0, 1]  # the batch overdraws the permits
        last = await one.ask(CommandGetLastMessageId(consumer_id=1, request_id=9))
        assert (last.last_message_id.entryId, last.last_message_id.batch_index) == (1, 2)
        stats = await one.ask(CommandConsumerStats(request_id=10, consumer_id=1))
        assert (stats.unackedMessages, stats.availablePermits, stats.type) == (4, 0, "Exclusive")


async def test_what_is_refused_does_not_disturb_the_order_of_receipts() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        good = entry(b"x")
        one.say(CommandSend(producer_id=1, sequence_id=0), good)
        one.say(CommandSend(producer_id=1, sequence_id=1), good[:-1] + b"y")
        one.say(CommandSend(producer_id=1, sequence_id=2), entry(b"x", producer="somebody"))
        one.say(CommandSend(producer_id=1, sequence_id=3), good)
        answers = await one.heard()
        assert [a.sequence_id for a in answers] == [0, 1, 2, 3]
        assert [getattr(a, "error", None) for a in answers[1:3]] == [
            ServerError.ChecksumError,
            ServerError.NotAllowedError,
        ]
        assert answers[3].message_id.entryId == 1


async def test_a_batch_that_is_refused_is_named_by_its_highest_sequence_id() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        batch = CommandSend(producer_id=1, sequence_id=4, num_messages=3, highest_sequence_id=6)
        one.say(batch, entry(b"b", b"c", b"d", sequence_id=4, producer="somebody"))
        (refused,) = await one.heard()
        assert (refused.sequence_id, refused.error) == (6, ServerError.NotAllowedError)


async def test_send_for_a_producer_of_nobody_closes_the_connection() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        one.say(CommandSend(producer_id=9, sequence_id=0), entry(b"x"))
        await one.heard()
        assert one.output.closed
        assert await other.ask(CommandPing()) is not None


async def test_a_producer_closes_after_what_it_sent() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"x"))
        one.say(CommandCloseProducer(producer_id=1, request_id=6))
        receipt, closed = await one.heard()
        assert (receipt.sequence_id, closed.request_id) == (0, 6)


async def test_waiting_for_exclusive_access_takes_two_answers() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        await one.ask(producer(producer_access_mode=ProducerAccessMode.Exclusive))
        wait = producer(producer_name="q", producer_access_mode=ProducerAccessMode.WaitForExclusive)
        first = await other.ask(wait)
        assert (first.producer_ready, first.producer_name) == (False, "q")
        one.say(CommandCloseProducer(producer_id=1, request_id=6))
        await one.heard()
        (second,) = await other.heard()
        assert (second.producer_ready, second.topic_epoch) == (True, 1)


async def test_who_waits_may_give_up() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        await one.ask(producer(producer_access_mode=ProducerAccessMode.Exclusive))
        await other.ask(producer(producer_name="q", producer_access_mode=ProducerAccessMode.WaitForExclusive))
        await other.ask(CommandCloseProducer(producer_id=1, request_id=8))
        await one.ask(CommandCloseProducer(producer_id=1, request_id=6))
        again = producer(2, producer_name="r", producer_access_mode=ProducerAccessMode.Exclusive)
        assert (await other.ask(again)).topic_epoch == 1


async def test_a_producer_of_an_epoch_that_is_over_is_fenced() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        exclusive = ProducerAccessMode.Exclusive
        assert (await one.ask(producer(producer_access_mode=exclusive))).topic_epoch == 0
        fencing = ProducerAccessMode.ExclusiveWithFencing
        taken = await other.ask(producer(producer_name="q", producer_access_mode=fencing))
        assert taken.topic_epoch == 1
        (closed,) = await one.heard()
        assert closed.producer_id == 1
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"late"))  # it could not know
        assert not one.output.closed
        await other.ask(CommandCloseProducer(producer_id=1, request_id=6))
        back = await one.ask(producer(producer_access_mode=exclusive, topic_epoch=0))
        assert back.error == ServerError.ProducerFenced


async def test_a_subscription_from_before_the_first_message() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer(initial_subscription_name="early"))
        topic = await one.bench.broker.topics.get(NAME)
        assert list(topic.subscriptions) == ["early"]


async def test_subscribing_where_somebody_is() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        await one.ask(subscribe())
        assert (await other.ask(subscribe())).error == ServerError.ConsumerBusy
        shared = subscribe(subType=CommandSubscribe.Shared)
        assert (await other.ask(shared)).error == ServerError.ConsumerBusy


async def test_failover_says_who_is_active() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        failover = CommandSubscribe.Failover
        # Not with the success: a client may know its consumer only once it has read that, and then sends FLOW.
        assert not hasattr(await one.ask(subscribe(subType=failover, consumer_name="b")), "is_active")
        assert (await one.ask(CommandFlow(consumer_id=1, messagePermits=1))).is_active
        assert not hasattr(await other.ask(subscribe(subType=failover, consumer_name="a")), "is_active")
        assert [a.is_active for a in await one.heard()] == [False]
        await other.bench.clock.advance(1000)  # without FLOW, too
        assert [a.is_active for a in await other.heard()] == [True]
        one.say(CommandFlow(consumer_id=1, messagePermits=1))
        other.say(CommandFlow(consumer_id=1, messagePermits=1))
        assert await one.heard() == await other.heard() == []  # once
        other.say(CommandCloseConsumer(consumer_id=1, request_id=8))
        await other.heard()
        assert [a.is_active for a in await one.heard()] == [True]


async def test_an_exclusive_consumer_gets_the_ranges_of_hashes_that_it_names() -> None:
    """As readers that share a topic do (`keyHashRange`)."""
    keys = [f"key-{number}" for number in range(20)]
    found: list[list[int]] = []
    for start, end in ((0, 32767), (32768, 65535)):
        async with sessions() as (one,):
            await one.connect()
            await one.ask(producer())
            for number, key in enumerate(keys):
                one.say(
                    CommandSend(producer_id=1, sequence_id=number), entry(b"x", key=key, sequence_id=number)
                )
            await one.heard()
            meta = KeySharedMeta(
                keySharedMode=KeySharedMode.STICKY, hashRanges=[IntRange(start=start, end=end)]
            )
            await one.ask(subscribe(durable=False, keySharedMeta=meta))
            one.say(CommandFlow(consumer_id=1, messagePermits=1000))
            ids = [message.message_id.entryId for message in await one.heard()]
            assert all(start <= sticky_hash(keys[number].encode()) <= end for number in ids)
            found.append(ids)
    assert sorted(found[0] + found[1]) == list(range(20))
    assert all(found)


async def test_the_end_of_a_topic_is_told_once_after_the_last_message() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        await one.ask(CommandSend(producer_id=1, sequence_id=0), entry(b"x"))
        await one.ask(subscribe())
        await one.bench.broker.topics.terminate(NAME)
        assert await one.heard() == []
        one.say(CommandFlow(consumer_id=1, messagePermits=10))
        message, end = await one.heard()
        assert (message.message_id.entryId, end.consumer_id) == (0, 1)
        assert type(end).__name__ == "CommandReachedEndOfTopic"
        one.say(CommandSend(producer_id=1, sequence_id=1), entry(b"y", sequence_id=1))
        (refused,) = await one.heard()
        assert refused.error == ServerError.TopicTerminatedError


async def test_unsubscribing_by_force_closes_the_others() -> None:
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        shared = subscribe(subType=CommandSubscribe.Shared)
        await one.ask(shared)
        await other.ask(shared)
        refused = await one.ask(CommandUnsubscribe(consumer_id=1, request_id=3))
        assert refused.error == ServerError.MetadataError
        one.say(CommandUnsubscribe(consumer_id=1, request_id=4, force=True))
        assert 4 in [a.request_id for a in await one.heard()]
        (closed,) = await other.heard()
        assert type(closed).__name__ == "CommandCloseConsumer"


async def test_requests_about_consumers_of_nobody() -> None:
    async with sessions() as (one,):
        await one.connect()
        for command in (
            CommandGetLastMessageId(consumer_id=9, request_id=1),
            CommandUnsubscribe(consumer_id=9, request_id=1),
        ):
            assert (await one.ask(command)).error == ServerError.ConsumerNotFound
        stats = await one.ask(CommandConsumerStats(request_id=1, consumer_id=9))
        assert stats.error_code == ServerError.ConsumerNotFound
        one.say(CommandFlow(consumer_id=9, messagePermits=1))
        assert await one.heard() == []
        assert not one.output.closed


async def test_there_are_no_transactions() -> None:
    async with sessions() as (one,):
        await one.connect()
        assert (await one.ask(CommandNewTxn(request_id=1))).error == ServerError.NotAllowedError


# -- topics of a namespace


async def make(one: ClientSession, *names: str) -> None:
    for name in names:
        await one.bench.broker.topics.create(NAME.sibling(name), 2 if name.endswith("2") else 0)


async def test_the_topics_of_a_namespace() -> None:
    async with sessions() as (one,):
        await one.connect()
        await make(one, "a", "b2", "c")
        command = CommandGetTopicsOfNamespace(request_id=1, namespace="public/default")
        answer = await one.ask(command)
        base = "persistent://public/default/"
        assert list(answer.topics) == [f"{base}{n}" for n in ("a", "b2-partition-0", "b2-partition-1", "c")]
        command.topics_hash = answer.topics_hash
        again = await one.ask(command)
        assert (again.changed, list(again.topics)) == (False, [])
        command.topics_pattern = "persistent://public/default/[ac]"
        found = await one.ask(command)
        assert (found.filtered, list(found.topics)) == (True, [f"{base}a", f"{base}c"])
        command.topics_pattern = "persistent://public/default/(a+)+$"
        found = await one.ask(command)
        assert (found.filtered, list(found.topics)) == (True, [f"{base}a"])
        command.topics_pattern = "persistent://public/default/(?=a).*"  # not matched here: the client's work
        assert not (await one.ask(command)).filtered


async def test_watching_the_topics_of_a_namespace() -> None:
    async with sessions() as (one,):
        await one.connect()
        await make(one, "wanted-1", "other")
        watch = CommandWatchTopicList(
            request_id=1, watcher_id=5, namespace="public/default", topics_pattern="public/default/wanted-.*"
        )
        began = await one.ask(watch)
        assert list(began.topic) == [str(NAME.sibling("wanted-1"))]
        await make(one, "wanted-3", "another")
        (update,) = await one.heard()
        assert (update.watcher_id, list(update.new_topics)) == (5, [str(NAME.sibling("wanted-3"))])
        await one.bench.broker.administration.delete_topic(NAME.sibling("wanted-1"))
        (update,) = await one.heard()
        assert list(update.deleted_topics) == [str(NAME.sibling("wanted-1"))]
        await one.ask(CommandWatchTopicListClose(request_id=2, watcher_id=5))
        await make(one, "wanted-5")
        assert await one.heard() == []


# -- schemas (PIP-43)

AVRO = b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
WIDER = b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]}'
OTHER = b'{"type": "record", "name": "R", "fields": [{"name": "z", "type": "string"}]}'


def avro(definition: bytes) -> Schema:
    return Schema(name="R", schema_data=definition, type=Schema.Avro)


async def test_getting_or_creating_schemas() -> None:
    async with sessions() as (one,):
        await one.connect()
        missing = await one.ask(CommandGetOrCreateSchema(request_id=1, topic=TOPIC, schema=avro(AVRO)))
        assert missing.error_code == ServerError.TopicNotFound
        made = await one.ask(producer(schema=avro(AVRO)))
        assert made.schema_version == bytes(8)
        for definition, version in ((AVRO, 0), (WIDER, 1), (AVRO, 0)):
            found = await one.ask(
                CommandGetOrCreateSchema(request_id=2, topic=TOPIC, schema=avro(definition))
            )
            assert found.schema_version == version.to_bytes(8, "big")
        refused = await one.ask(CommandGetOrCreateSchema(request_id=3, topic=TOPIC, schema=avro(OTHER)))
        assert refused.error_code == ServerError.IncompatibleSchema
        newest = await one.ask(CommandGetSchema(request_id=4, topic=TOPIC))
        assert (newest.schema.schema_data, newest.schema_version) == (WIDER, (1).to_bytes(8, "big"))
        first = await one.ask(CommandGetSchema(request_id=5, topic=TOPIC, schema_version=bytes(8)))
        assert first.schema.schema_data == AVRO
        unset = await one.ask(CommandGetSchema(request_id=6, topic=TOPIC, schema_version=b""))
        assert not unset.HasField("error_code")
        assert unset.schema.type == Schema.NoSchema


async def test_schemas_that_do_not_parse() -> None:
    async with sessions() as (one,):
        await one.connect()
        refused = await one.ask(producer(schema=avro(b"{")))
        assert refused.error == ServerError.IncompatibleSchema
        consumer = await one.ask(subscribe(schema=avro(b"no")))
        assert consumer.error == ServerError.IncompatibleSchema


async def test_large_commands_that_wait_count_as_what_they_are() -> None:
    async with sessions() as (one,):
        await one.connect()
        one.say(producer())  # waits for the topic
        large = CommandProducer(topic=TOPIC, producer_id=2, request_id=6, producer_name="x" * (1 << 20))
        for _ in range(7):
            one.say(large)
        assert one.session.waiting_bytes > 7 << 20
        assert not one.output.holds
        one.say(large)
        assert one.output.holds
        await one.heard()
        assert one.session.waiting_bytes == 0
        assert not one.output.holds


async def test_a_store_that_refuses_disconnects_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent behind the refused message is not stored either: it comes again, in order."""
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        topic = await one.bench.broker.topics.get(NAME)
        append = topic.append

        async def full(entries: Any) -> Any:
            raise PenstockError(ErrorKind.STORAGE_FULL, "the disk is full")

        monkeypatch.setattr(topic, "append", full)
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"a"))
        (answer,) = await one.heard()
        assert isinstance(answer, CommandCloseProducer)
        monkeypatch.setattr(topic, "append", append)
        one.say(CommandSend(producer_id=1, sequence_id=1), entry(b"b", sequence_id=1))
        assert await one.heard() == []  # on its way before the client knew
        assert topic.next_offset == 0
        assert not one.output.closed
        await one.ask(producer())
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"a"))
        one.say(CommandSend(producer_id=1, sequence_id=1), entry(b"b", sequence_id=1))
        assert [receipt.sequence_id for receipt in await one.heard()] == [0, 1]


async def test_a_text_that_is_none_ends_the_connection() -> None:
    async with sessions() as (one,):
        await one.connect()
        command = CommandLookupTopic.FromString(
            CommandLookupTopic(topic="topic", request_id=1)
            .SerializeToString()
            .replace(b"topic", b"\xff\xfeaaa")
        )
        one.say(command)
        await one.heard()
        assert "no UTF-8" in one.output.reason


async def test_a_connection_holds_no_more_than_its_bound() -> None:
    async with sessions() as (one,):
        await one.connect()
        bound = one.session.context.limits.max_connection_bytes_in_flight
        one.session.pend(bound - 1)
        assert not one.output.holds
        one.session.pend(1)
        assert one.output.holds == {"too much waits for the store"}
        one.session.stored(bound // 2 + 1)
        assert not one.output.holds
        one.session.stored(bound - bound // 2 - 1)
        assert one.session.pending_bytes == 0

"""Consumers attached to the owner of a partition, which is another process first, and then their own."""

from typing import Any

import pytest
from tests.support.attached_broker import AttachedBroker, Owner
from tests.support.server import RunningServer
from tests.support.waiting import until_async

from penstock.client.aio.context import Context
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.errors import ReadError
from penstock.client.options import ClientOptions, complete
from penstock.engines.attached.link import Attachment, LinkSink, Moved, OwnerLink, network_link
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.clock import LoopClock
from penstock.server.listeners import bind

TOPIC = TopicName.parse("t")


class NoLookup:
    """The lookup of a process that owns the partition itself."""

    async def link(self, topic: str) -> Any:
        raise Moved(topic)


class FarOwner(Owner):
    """The owner is reached over the network until it `comes`."""

    context: Context
    here = False

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        if self.here:
            return await super().link_to(wanted, sink)
        self.entries = network_link(self.context, wanted, sink)
        return self.entries

    entries: EntryConsumer

    def comes(self) -> None:
        """From now on this process is the owner; connections to the old one break."""
        self.here = True
        self.context.lookup = NoLookup()  # type: ignore[assignment]
        link = self.entries._link
        assert link is not None
        link.abort(ReadError("cut by the test"))


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_a_partition_comes_from_another_process_to_this_one(type: SubscriptionType) -> None:
    async with RunningServer.open(clock=LoopClock()) as server:
        bound = bind("127.0.0.1:0")
        url = f"pulsar://127.0.0.1:{bound.getsockname()[1]}"
        await server.app.binary.open(bound, url)
        broker = server.broker

        async def publish(*payloads: bytes) -> list[MessageId]:
            producer = await broker.producer(TOPIC)
            results = await producer.publish([OutMessage(payload=one) for one in payloads], batch=True)
            producer.close()
            return [one for one in results if isinstance(one, MessageId)]

        attached = AttachedBroker(broker)
        owner = attached.owner = FarOwner(broker)
        owner.context = Context(url, None, 20.0, complete(ClientOptions, "", {}), entry_metadata=True)
        consumer = await attached.subscribe([TOPIC], "s", ConsumerOptions(type=type, start=EARLIEST))
        first = await publish(b"a", b"b", b"c")
        await until_async(lambda: consumer.outbox)
        (delivery,) = consumer.take()
        assert (delivery.entry.offset, delivery.mask) == (0, 0b111)
        await consumer.acknowledge(first[0])
        await consumer.flush()

        owner.comes()
        await consumer.acknowledge(first[1])  # on its way as the partition moves
        await consumer.flush()
        second = await publish(b"d")
        await until_async(lambda: consumer.outbox)
        (more,) = consumer.take()
        assert more.entry.offset == 3  # "b" is done, and "c" is with the client
        assert consumer.unacked == 2
        assert await consumer.acknowledge_all([first[2], *second]) == 2
        await consumer.flush()
        (source,) = await broker.subscriptions.of(TOPIC, "s")
        assert source.backlog == 0
        await consumer.leave()
        await owner.tasks.close()
        await owner.context.close()

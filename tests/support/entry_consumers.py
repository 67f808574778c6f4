"""Consumers of whole entries for tests."""

import asyncio
from typing import Any
from uuid import uuid4

import penstock
from penstock.client import errors
from penstock.client.aio.context import Context
from penstock.client.entries.arrived import Arrived, Place
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.enums import ConsumerType, InitialPosition
from penstock.client.options import ClientOptions, complete
from penstock.client.session.commands import Subscription
from penstock.model.entry import Entry
from penstock.wire import entry as wire

from .waiting import until_async


class Taking:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.entries: list[Arrived] = []
        self.resets = 0
        self.forgets = (
            False  # what came, at the next reset: what comes after it may be there before a test looks
        )
        self.runs = 0
        self.actives: list[bool] = []
        self.ends = 0
        self.errors: list[Exception] = []

    def arrived(self, entries: list[Arrived]) -> None:
        self.runs += 1
        self.entries += entries

    def reset(self) -> None:
        self.resets += 1
        if self.forgets:
            self.entries.clear()

    def active(self, active: bool) -> None:
        self.actives.append(active)

    def end_reached(self) -> None:
        self.ends += 1

    def ended(self, error: errors.PulsarException) -> None:
        self.errors.append(error)

    @property
    def payloads(self) -> list[str]:
        found = []
        for one in self.entries:
            entry = Entry(one.ledger, one.entry_id, 0, one.count, one.publish_time, 0, one.data)
            found += [
                message.payload.decode()
                for at, message in enumerate(wire.decode(entry))
                if one.mask >> at & 1
            ]
        return found

    @property
    def places(self) -> list[Place]:
        return [one.place for one in self.entries]

    async def come(self, count: int) -> None:
        await until_async(lambda: len(self.entries) >= count)


class Consumers:
    """Consumers of entries of one server, and a topic of the test's own in `namespace`."""

    def __init__(self, service_url: str, namespace: str) -> None:
        self.context = Context(service_url, None, 20.0, complete(ClientOptions, "", {}), entry_metadata=True)
        self.client = penstock.aio.Client(service_url)
        self.local = f"{namespace}/t{uuid4().hex[:8]}"
        self.topic = f"persistent://{self.local}"

    async def publish(self, *payloads: str, batch: bool = False) -> None:
        producer = await self.client.create_producer(
            self.topic, batching_enabled=batch, batching_max_publish_delay_ms=200
        )
        await asyncio.gather(*(producer.send(one.encode()) for one in payloads))
        await producer.close()

    async def consume(
        self, kind: ConsumerType = ConsumerType.Exclusive, permits: int = 100, **options: Any
    ) -> tuple[EntryConsumer, Taking]:
        start, inclusive = options.pop("start", None), options.pop("inclusive", False)
        taking = Taking()
        how = Subscription(
            topic=self.topic,
            name=options.pop("name", "s"),
            consumer_name=f"c{uuid4().hex[:6]}",
            type=kind,
            initial_position=InitialPosition.Earliest,
            **options,
        )
        consumer = EntryConsumer(self.context, how, start, sink=taking, inclusive=inclusive)
        await consumer.start()
        if permits:
            consumer.flow(permits)
        return consumer, taking

    async def close(self) -> None:
        """Close the clients."""
        await self.client.close()
        await self.context.close()

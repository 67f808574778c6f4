"""Producers of whole entries, and what is on a topic, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import penstock
from penstock.client.aio.context import Context
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.options import ClientOptions, complete
from penstock.client.session.commands import Publication
from penstock.wire import entry as wire


@asynccontextmanager
async def client_context(service_url: str, timeout_s: float = 30.0) -> AsyncIterator[Context]:
    """What a client's producers share, without the client."""
    context = Context(service_url, None, timeout_s, complete(ClientOptions, "Client", {}))
    try:
        yield context
    finally:
        await context.close()


async def entry_producer(
    context: Context, topic: str, name: str | None = None, *, given: str = "", **more: Any
) -> EntryProducer:
    """A producer that has begun; `more` are of the publication, or of the producer."""
    options = {
        key: more.pop(key) for key in ("pending_bytes_max", "timeout_s", "on_ended", "once") if key in more
    }
    producer = EntryProducer(context, Publication(topic=topic, name=name, **more), given=given, **options)
    await producer.start()
    return producer


def outgoing(producer: EntryProducer, first: int, *payloads: bytes) -> Outgoing:
    """The entry of some payloads, from the sequence id `first` on."""
    made = wire.encode_plain(
        payloads, producer=producer.name, sequence_id=first, publish_time=1, schema_version=None
    )
    return Outgoing(made.data, first, made.sequence_id, made.count)


async def payloads_of(service_url: str, topic: str, count: int) -> list[bytes]:
    """The payloads on a topic, `count` of them and what is there beyond."""
    async with penstock.aio.Client(service_url) as client:
        reader = await client.create_reader(topic, penstock.MessageId.earliest)
        seen: list[bytes] = []
        while len(seen) < count or await reader.has_message_available():
            seen.append(
                (await reader.read_next(120_000)).data()
            )  # a broker that was killed reads its transactions first
        return seen

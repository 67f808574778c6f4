"""The client of a run: it reaches the server's binary endpoint, whose address the server tells over HTTP."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from penstock.client.access import Access
from penstock.client.aio import Client, Consumer, Producer
from penstock.client.authentication import Authentication, AuthenticationTLS, AuthenticationToken
from penstock.client.enums import ConsumerType, InitialPosition

SEND_TIMEOUT_S: Final = 30.0  # of a message without a receipt: the longest that the end of a run takes
SUBSCRIPTION: Final = "penstock-bench"


class Load(NamedTuple):
    """What is sent, and by how many."""

    topic: str
    size: int
    producers: int
    pending: int  # messages, or requests, of one producer whose end is not known
    keys: int = 0
    batch: int = 1
    batch_delay_ms: int = 1


@asynccontextmanager
async def connected(access: Access) -> AsyncIterator[Client]:
    """A client of the server."""
    authentication: Authentication | None = None
    if access.bearer():
        authentication = AuthenticationToken(access.bearer)
    elif access.cert_file:
        authentication = AuthenticationTLS(access.cert_file, access.key_file or access.cert_file)
    client = Client(access.url, authentication, ssl_context=access.tls())
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def producers(client: Client, load: Load) -> AsyncIterator[list[Producer]]:
    """The producers of a run."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(load.producers):
            producer = await client.create_producer(
                load.topic,
                batching_enabled=load.batch > 1,
                batching_max_messages=load.batch,
                batching_max_publish_delay_ms=load.batch_delay_ms,
                max_pending_messages=load.pending + 1,
                send_timeout_millis=int(SEND_TIMEOUT_S * 1000),
            )
            stack.push_async_callback(producer.close)
            made.append(producer)
        yield made


@asynccontextmanager
async def consumers(
    client: Client, topic: str, count: int, *, keep: bool = False
) -> AsyncIterator[list[Consumer]]:
    """Consumers of one subscription, which begins now where it is new, and is deleted at the end unless `keep`."""
    kind = ConsumerType.Exclusive if count == 1 else ConsumerType.Shared
    made: list[Consumer] = []
    try:
        for _ in range(count):
            one = await client.subscribe(
                topic, SUBSCRIPTION, consumer_type=kind, initial_position=InitialPosition.Latest
            )
            made.append(one)
        yield made
    finally:
        for one in made[1:]:
            await one.close()
        for one in made[:1]:
            await (one.close() if keep else one.unsubscribe())

"""The clients of a run, and those of Pulsar's protocol."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from penstock.client.access import Access
from penstock.client.aio import Client
from penstock.client.authentication import Authentication, AuthenticationTLS, AuthenticationToken
from penstock.client.enums import ConsumerType, InitialPosition

from .peers import SEND_TIMEOUT_S, SUBSCRIPTION, Load, Peers, Receiver, Sender, Wire, unsubscribe


@asynccontextmanager
async def connected(access: Access, wire: Wire) -> AsyncIterator[Peers]:
    """Clients of the server, by either protocol; where the binary endpoint is, the server says over HTTP."""
    if wire == "websocket":
        from .websocket import WebSocketPeers  # here: a run by the other protocol needs no library for it

        yield WebSocketPeers(access)
        return
    authentication: Authentication | None = None
    if access.bearer():
        authentication = AuthenticationToken(access.bearer)
    elif access.cert_file:
        authentication = AuthenticationTLS(access.cert_file, access.key_file or access.cert_file)
    client = Client(access.url, authentication, ssl_context=access.tls())
    try:
        yield PulsarPeers(client)
    finally:
        await client.close()


class PulsarPeers:
    """Producers and consumers of the Python client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @asynccontextmanager
    async def producers(self, load: Load) -> AsyncIterator[list[Sender]]:
        """The producers of a run."""
        async with AsyncExitStack() as stack:
            made: list[Sender] = []
            for _ in range(load.producers):
                producer = await self._client.create_producer(
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
    async def consumers(self, topic: str, count: int, *, keep: bool = False) -> AsyncIterator[list[Receiver]]:
        """Consumers of one subscription, which begins now where it is new, and is deleted at the end unless `keep`."""
        kind = ConsumerType.Exclusive if count == 1 else ConsumerType.Shared
        async with AsyncExitStack() as stack:
            first, *others = [
                await self._client.subscribe(
                    topic, SUBSCRIPTION, consumer_type=kind, initial_position=InitialPosition.Latest
                )
                for _ in range(count)
            ]
            if keep:
                stack.push_async_callback(first.close)
            else:
                stack.push_async_callback(unsubscribe, first.unsubscribe)
            for one in others:
                stack.push_async_callback(one.close)  # before the first one leaves
            yield [first, *others]

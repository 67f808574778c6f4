"""A broker in memory with the Kafka REST endpoint before it, and a client in the same process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from penstock.broker.settings import BrokerSettings
from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.memory import MemoryStore
from penstock.engines.embedded.topic import Topic
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.context import ServerContext
from penstock.protocols.kafka_rest.endpoint import KafkaRestEndpoint
from penstock.protocols.kafka_rest.framing import render
from penstock.protocols.limits import Limits
from penstock.testing.clock import ManualClock
from penstock.wire.entry import WireFormat

LOG = "/kafka/topics/foo/0"
FOO = TopicName.parse("foo")
X_KAFKA = {"accept": "application/x-kafka", "accept-encoding": "identity"}


def framed(*payloads: bytes) -> bytes:
    return render(payloads)[0]


class House:
    """The broker, its clock, the endpoint and a client."""

    def __init__(
        self, broker: Broker, clock: ManualClock, endpoint: KafkaRestEndpoint, client: httpx.AsyncClient
    ) -> None:
        self.broker = broker
        self.clock = clock
        self.endpoint = endpoint
        self.client = client

    async def publish(self, *payloads: bytes, topic: TopicName = FOO, batch: bool = True) -> list[MessageId]:
        """Publish as any other endpoint does."""
        producer = await self.broker.producer(topic)
        results = await producer.publish([OutMessage(payload=p) for p in payloads], batch=batch)
        producer.close()
        assert all(isinstance(r, MessageId) for r in results), results
        return [r for r in results if isinstance(r, MessageId)]

    async def log(self) -> Topic:
        return await self.broker.topics.get(FOO, create=False)

    async def get(
        self, range: str | None = None, *, status: int | Sequence[int] = 206, path: str = LOG, **headers: str
    ) -> httpx.Response:
        sent = {**X_KAFKA, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if range is not None:
            sent["range"] = f"bytes={range}"
        response = await self.client.get(path, headers=sent)
        assert response.status_code in ([status] if isinstance(status, int) else status), response.text
        return response

    async def post(
        self,
        body: bytes,
        type: str | None = "text/plain",
        *,
        status: int = 204,
        path: str = LOG,
        **headers: str,
    ) -> httpx.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if type is not None:
            sent["content-type"] = type
        response = await self.client.post(path, content=body, headers=sent)
        assert response.status_code == status, response.text
        return response


@asynccontextmanager
async def house(
    settings: BrokerSettings | None = None, limits: Limits | None = None, store: MemoryStore | None = None
) -> AsyncIterator[House]:
    """Open a house; with a `store` that lived in another, what it holds is there again."""
    clock = ManualClock()
    broker = Broker(store or MemoryStore(), MemoryStore(1 << 40), WireFormat(), clock, settings)
    await broker.start()
    endpoint = KafkaRestEndpoint(ServerContext(broker, limits))
    transport = httpx.ASGITransport(app=endpoint, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as client:
        yield House(broker, clock, endpoint, client)
    await endpoint.close()
    await broker.close()


def consumed(response: httpx.Response) -> tuple[int, int, int]:
    """First, last and size of a Content-Range."""
    unit, _, told = response.headers["content-range"].partition(" ")
    assert unit == "bytes"
    span, size = told.split("/")
    first, last = span.split("-")
    return int(first), int(last), int(size)

"""A server, and requests to its Kafka REST endpoint."""

from collections.abc import Sequence

import httpx

from penstock.engines.core.topic import Topic
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.kafka_rest.endpoint import KafkaRestEndpoint
from penstock.protocols.kafka_rest.framing import render
from tests.support.server import RunningServer

LOG = "/kafka/topics/foo/0"
FOO = TopicName.parse("foo")
X_KAFKA = {"accept": "application/x-kafka", "accept-encoding": "identity"}


def framed(*payloads: bytes) -> bytes:
    return render(payloads)[0]


class KafkaRestServer(RunningServer):
    """Requests to one log, whose status is checked."""

    @property
    def endpoint(self) -> KafkaRestEndpoint:
        return self.app.kafka_rest

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


def consumed(response: httpx.Response) -> tuple[int, int, int]:
    """First, last and size of a Content-Range."""
    unit, _, content_range = response.headers["content-range"].partition(" ")
    assert unit == "bytes"
    span, size = content_range.split("/")
    first, last = span.split("-")
    return int(first), int(last), int(size)

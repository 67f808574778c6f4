"""A broker that follows a script: what it answers to each type of command, over a real socket."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from penstock.wire.frames import Frame, FrameDecoder, encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse

from .broker import connected

Answer = Callable[[Frame], list[BaseCommand]]


class FakeBroker:
    """`heard` are the commands that came, by name. `script` holds answers of a test's own, by type."""

    def __init__(self, *, replies: bool = True) -> None:
        self.heard: list[str] = []
        self.frames: list[Frame] = []
        self.port = 0
        self.script: dict[int, Answer] = {}
        self._replies = replies
        self._protocols: list[_Protocol] = []

    def close_connections(self) -> None:
        for protocol in self._protocols:
            protocol.transport.abort()

    def say(self, *commands: BaseCommand) -> None:
        """Say something on the newest connection."""
        self._protocols[-1].transport.write(b"".join(map(encode, commands)))

    def answer(self, frame: Frame) -> bytes:
        kind = frame.command.type
        self.heard.append(BaseCommand.Type.Name(kind))
        self.frames.append(frame)
        if kind == BaseCommand.CONNECT:
            return connected(replies=self._replies)
        answer = self.script.get(kind, self._usual)
        return b"".join(map(encode, answer(frame)))

    def _usual(self, frame: Frame) -> list[BaseCommand]:
        command = frame.command
        kind = command.type
        out = BaseCommand()
        if kind == BaseCommand.PARTITIONED_METADATA:
            out.type = BaseCommand.PARTITIONED_METADATA_RESPONSE
            out.partitioned_metadata_response.request_id = command.partitioned_metadata.request_id
            out.partitioned_metadata_response.partitions = 0
        elif kind == BaseCommand.LOOKUP:
            out = self.lookup(frame)
        elif kind == BaseCommand.PRODUCER:
            out.type = BaseCommand.PRODUCER_SUCCESS
            out.producer_success.request_id = command.producer.request_id
            out.producer_success.producer_name = command.producer.producer_name or "given"
        elif kind == BaseCommand.SEND:
            return [receipt(frame)]
        elif kind in (BaseCommand.SUBSCRIBE, BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
            body = getattr(command, BaseCommand.Type.Name(kind).lower())
            out.type = BaseCommand.SUCCESS
            out.success.request_id = body.request_id
        else:
            return []
        return [out]

    def lookup(self, frame: Frame, *, redirect: bool = False, proxy: bool = False) -> BaseCommand:
        out = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
        body = out.lookup_response
        body.request_id = frame.command.lookup.request_id
        body.brokerServiceUrl = f"pulsar://127.0.0.1:{self.port}"
        body.brokerServiceUrlTls = f"pulsar+ssl://127.0.0.1:{self.port}"
        kinds = CommandLookupTopicResponse
        body.response = kinds.Redirect if redirect else kinds.Connect
        body.proxy_through_service_url = proxy
        body.authoritative = True
        return out


def receipt(frame: Frame) -> BaseCommand:
    out = BaseCommand(type=BaseCommand.SEND_RECEIPT)
    out.send_receipt.producer_id = frame.command.send.producer_id
    out.send_receipt.sequence_id = frame.command.send.sequence_id
    out.send_receipt.message_id.ledgerId = 1
    out.send_receipt.message_id.entryId = frame.command.send.sequence_id
    return out


def error(request_id: int, number: int, message: str = "no") -> BaseCommand:
    out = BaseCommand(type=BaseCommand.ERROR)
    out.error.request_id, out.error.message = request_id, message
    out.error.error = number  # type: ignore[assignment]
    return out


class _Protocol(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self._broker._protocols.append(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            self.transport.write(self._broker.answer(frame))


@asynccontextmanager
async def fake(*, replies: bool = True, tls: ssl.SSLContext | None = None) -> AsyncIterator[FakeBroker]:
    broker = FakeBroker(replies=replies)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Protocol(broker), "127.0.0.1", 0, ssl=tls
    )
    broker.port = server.sockets[0].getsockname()[1]
    try:
        yield broker
    finally:
        server.close()
        broker.close_connections()
        await server.wait_closed()

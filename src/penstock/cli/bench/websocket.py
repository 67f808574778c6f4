"""Producers and consumers of a run over Pulsar's WebSocket API."""

import asyncio
import itertools
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from penstock.client.access import Access, without_password
from penstock.client.errors import ConnectError, PulsarException, Timeout
from penstock.model.names import TopicName

from .peers import CONNECT_S, SUBSCRIPTION, Load, Receipt, Receiver, Sender, beside, unsubscribe

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class WebSocketPeers:
    """Sockets of a server."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @asynccontextmanager
    async def producers(self, load: Load) -> AsyncIterator[list[Sender]]:
        """The producers of a run."""
        parameters: dict[str, Any] = {"messageRoutingMode": "RoundRobinPartition"}
        if load.batch > 1:
            parameters |= {
                "batchingEnabled": "true",
                "batchingMaxMessages": load.batch,
                "batchingMaxPublishDelay": load.batch_delay_ms,
            }
        async with AsyncExitStack() as stack:
            made = [
                WebSocketProducer(
                    await stack.enter_async_context(self._open("producer", load.topic, "", parameters))
                )
                for _ in range(load.producers)
            ]
            await stack.enter_async_context(
                beside([work for one in made for work in (one.read(), one.write())])
            )
            yield list(made)

    @asynccontextmanager
    async def consumers(self, topic: str, count: int, *, keep: bool = False) -> AsyncIterator[list[Receiver]]:
        """Consumers of one subscription, which begins now where it is new, and is deleted at the end unless `keep`."""
        parameters = {"subscriptionType": "Exclusive" if count == 1 else "Shared"}
        async with self._open("consumer", topic, f"/{SUBSCRIPTION}", parameters) as first:
            async with AsyncExitStack() as stack:
                others = [
                    await stack.enter_async_context(
                        self._open("consumer", topic, f"/{SUBSCRIPTION}", parameters)
                    )
                    for _ in range(count - 1)
                ]
                yield [WebSocketConsumer(one) for one in (first, *others)]
            if not keep:
                await unsubscribe(WebSocketConsumer(first).unsubscribe)

    @asynccontextmanager
    async def _open(
        self, role: str, topic: str, below: str, parameters: dict[str, Any]
    ) -> AsyncIterator[ClientConnection]:
        name = TopicName.parse(topic)
        path = f"{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}{below}"
        url = f"ws{self._access.url.removeprefix('http')}/ws/v2/{role}/{path}?{urlencode(parameters)}"
        try:
            connection = await connect(
                url,
                additional_headers=self._access.headers(),
                ssl=self._access.tls(),
                compression=None,
                max_size=None,
                open_timeout=CONNECT_S,
            )
        except (OSError, WebSocketException) as error:
            raise ConnectError(f"{without_password(url)}: {error}") from error
        try:
            yield connection
        finally:
            await connection.close()


class WebSocketProducer:
    """Publishes over a socket; frames are answered in their order."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._receipts: deque[Receipt] = deque()
        self._replies: dict[str, asyncio.Future[None]] = {}
        self._numbers = itertools.count()

    def send_async(self, content: bytes, callback: Receipt, **options: Any) -> None:
        """Publish a message; `callback` is told what became of it."""
        key = {"key": options["partition_key"]} if options else {}
        self._post({"payload": b64encode(content).decode(), **key}, callback)

    async def request(self, content: bytes, timeout_ms: int) -> None:
        """Publish a request and wait for the reply. Raises PulsarException, TimeoutError."""
        number = str(next(self._numbers))
        reply = self._replies[number] = asyncio.get_running_loop().create_future()

        def stored(error: PulsarException | None, _: object) -> None:
            if error is not None and not reply.done():
                reply.set_exception(error)

        frame = {
            "payload": b64encode(content).decode(),
            "context": number,
            "requestTimeoutMillis": timeout_ms,
        }
        self._post(frame, stored)
        try:
            await reply
        finally:
            self._replies.pop(number, None)

    def _post(self, frame: dict[str, Any], callback: Receipt) -> None:
        self._receipts.append(callback)
        self._frames.put_nowait(_encode(frame))

    async def write(self) -> None:
        """Send what was posted, until the socket closes."""
        try:
            while True:
                await self._connection.send(await self._frames.get(), text=True)
        except WebSocketException as error:
            raise ConnectError(str(error)) from error

    async def read(self) -> None:
        """Tell receipts and replies, until the socket closes."""
        try:
            while True:
                self._take(_decode(await self._connection.recv()))
        except WebSocketException as error:
            raise ConnectError(str(error)) from error

    def _take(self, answer: dict[str, Any]) -> None:
        result = answer["result"]
        if answer.get("type") != "reply":
            self._receipts.popleft()(None if result == "ok" else PulsarException(answer["errorMsg"]), None)
            return
        reply = self._replies.get(answer["context"])
        if reply is None or reply.done():
            return
        if result == "ok":
            reply.set_result(None)
        else:
            reply.set_exception(TimeoutError("no reply") if result == "timeout" else PulsarException(result))


class WebSocketMessage:
    """A message as a socket delivers it."""

    request_expired = False  # what asks here waits longer than a run

    def __init__(self, frame: dict[str, Any]) -> None:
        self.id: str = frame["messageId"]
        self.is_request = "requestTimeoutMillis" in frame
        self._payload: str = frame["payload"]

    def data(self) -> bytes:
        """The payload."""
        return b64decode(self._payload)


class WebSocketConsumer:
    """Receives from a socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> WebSocketMessage:
        """Wait for a message. Raises ConnectError."""
        try:
            return WebSocketMessage(_decode(await self._connection.recv()))
        except WebSocketException as error:
            raise ConnectError(str(error)) from error

    async def acknowledge(self, message: WebSocketMessage, reply: bytes | None = None) -> None:
        """Acknowledge a message, or reply to a request."""
        frame = {"messageId": message.id}
        if reply is not None:
            frame["replyContent"] = b64encode(reply).decode()
        try:
            await self._connection.send(_encode(frame), text=True)
        except WebSocketException as error:
            raise ConnectError(str(error)) from error

    async def unsubscribe(self) -> None:
        """Delete the subscription; messages that still come are dropped. Raises PulsarException if it is refused."""
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connection.send(_encode({"type": "unsubscribe", "context": "end"}), text=True)
                while "result" not in (answer := _decode(await self._connection.recv())):
                    pass
        except TimeoutError:
            raise Timeout(f"no answer within {CONNECT_S:.0f} s") from None
        except WebSocketException:
            return  # the server, or the topic, is gone
        if answer["result"] != "ok":
            raise PulsarException(answer["result"])

"""A client's connections: each a `Connection` on a socket, and whose answers and messages come over it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final, Protocol, cast

from penstock.client.authentication import Authentication
from penstock.client.errors import (
    AlreadyClosed,
    ConnectError,
    NotConnected,
    PulsarException,
    ReadError,
    Timeout,
    server_error,
)
from penstock.client.session.commands import framed
from penstock.client.session.connection import Address, Connection, Hello
from penstock.wire.frames import FIELD, Frame
from penstock.wire.pulsar_pb2 import BaseCommand

from .tasks import log

CLOSE_S: Final = 1.0  # for a broker to answer that a connection is closed
# Answers that may say an error themselves.
_WITH_ERROR: Final = frozenset(
    (
        BaseCommand.ACK_RESPONSE,
        BaseCommand.TC_CLIENT_CONNECT_RESPONSE,
        BaseCommand.NEW_TXN_RESPONSE,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        BaseCommand.END_TXN_RESPONSE,
    )
)
LINGER_S: Final = 0.005  # how long a connection stays lent; moving it costs as much as sending a message


class Attached(Protocol):
    """A producer or consumer that uses a connection."""

    def received(self, frame: Frame) -> None:
        """A command that concerns it."""

    def lost(self, link: Link, error: PulsarException) -> None:
        """The connection is lost, or the broker asks to reconnect."""


class Link(asyncio.Protocol):
    """Opened by the pool; `ask` is for commands that have an answer, `write` for those that have none."""

    def __init__(self, hello: Hello) -> None:
        self._loop = asyncio.get_running_loop()
        self.session = Connection(hello, self._loop.time())
        self.producers: dict[int, Attached] = {}
        self.consumers: dict[int, Attached] = {}
        self.closed = False
        self.fileno = -1  # of a connection that is not encrypted
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._lent = self._borrowed = self._returning = False
        self._uses = 0
        self.poll: Any = None  # the borrower's
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._request_id = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._encrypted = False

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        socket = transport.get_extra_info("socket")
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        if socket is not None and not self._encrypted:
            self.fileno = socket.fileno()
        self._tick()

    def data_received(self, data: bytes) -> None:
        for frame in self.session.receive(data, self._loop.time()):
            try:
                self._dispatch(frame)
            except Exception:
                log.exception("a command of type %d could not be handled", frame.type)
        if self.session.ready and not self._ready.done():
            self._ready.set_result(None)
        self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed, self.fileno = True, -1
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
        why = self.session.broken or ReadError("the connection broke" + (f": {error}" if error else ""))
        if not self._ready.done():
            self._ready.set_exception(why)
            self._ready.exception()  # its waiter may be gone
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(why)
                answer.exception()
        self._answers.clear()
        for attached in [*self.producers.values(), *self.consumers.values()]:
            attached.lost(self, why)
        self.producers.clear()
        self.consumers.clear()

    # -- the client's side

    async def ready(self, timeout_s: float) -> None:
        """Wait for the broker's greeting. Raises what it says instead, or Timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.close()
            raise Timeout(f"the broker did not answer within {timeout_s:g} s") from None

    async def ask(self, command: Any, timeout_s: float | None) -> Any:
        """Send a command (its body, such as a `CommandSeek`) and wait for the answer. Raises what the broker says instead, or Timeout."""
        answer = self.request(command)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError as error:
            if isinstance(error, PulsarException):
                raise
            raise Timeout(f"the broker did not answer within {timeout_s:g} s") from None
        finally:
            self._answers.pop(command.request_id, None)

    def request(self, command: Any) -> asyncio.Future[Any]:
        """Send a command; the future gets the answer, or what the broker says instead."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self.closed:
            answer.set_exception(NotConnected("the connection is closed"))
            return answer
        self._request_id += 1
        command.request_id = self._request_id
        self._answers[self._request_id] = answer
        self.write([framed(command)])
        return answer

    def write(self, parts: list[bytes]) -> None:
        """Send frames."""
        if parts and self._transport is not None and not self.closed:
            self._transport.writelines(parts)
            if self._lent and not self._borrowed:
                self._take_back()

    def close(self) -> None:
        """Close the connection once all written bytes are sent."""
        if self._transport is not None:
            self._transport.close()

    async def ended(self, timeout_s: float) -> None:
        """Wait for the end of a connection that is closed, while the loop still exists: written bytes are sent, and of
        an encrypted one both sides say so. One that takes too long is cut."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._over.wait()
        except TimeoutError:
            self._transport.abort()
            await asyncio.sleep(0)

    def abort(self, error: PulsarException) -> None:
        """Give the connection up."""
        self.session.broken = self.session.broken or error
        if self._transport is not None:
            self._transport.abort()

    # -- lending: the blocking driver may read in a caller's thread, while the loop is paused

    def borrow(self) -> None:
        """The loop is not to read until `give_back`."""
        self._borrowed = True
        self._uses += 1
        if not self._lent and self._transport is not None:
            self._lent = True
            self._transport.pause_reading()

    def give_back(self, *, linger: bool) -> None:
        """Let the loop read again: after a moment, if only receipts are expected and another borrower may come first."""
        self._borrowed = False
        if self.consumers or not linger:
            self._take_back()
        elif not self._returning:
            self._returning = True
            self._loop.call_later(LINGER_S, self._return, self._uses)

    def _return(self, uses: int) -> None:
        if self._lent and uses != self._uses:
            self._loop.call_later(LINGER_S, self._return, self._uses)
        else:
            self._returning = False
            self._take_back()

    def _take_back(self) -> None:
        if self._lent:
            self._lent = False
            if self._transport is not None and not self.closed:
                self._transport.resume_reading()

    # -- in between

    def _tick(self) -> None:
        due = self.session.tick(self._loop.time())
        self._timer = self._loop.call_at(due, self._tick)
        self._settle()

    def _settle(self) -> None:
        self.write(self.session.take())
        if self.session.broken is not None and self._transport is not None:
            self._transport.abort()

    def _dispatch(self, frame: Frame) -> None:
        if frame.receipt is not None:
            _give(self.producers, frame.receipt.producer_id, frame)
            return
        kind = frame.type
        body: Any = getattr(frame.command, FIELD[kind])
        if kind == BaseCommand.SEND_ERROR:
            _give(self.producers, body.producer_id, frame)
        elif kind == BaseCommand.MESSAGE:
            _give(self.consumers, body.consumer_id, frame)
        elif kind == BaseCommand.REQUEST_RECEIPT:
            _give(self.producers, body.reply_to_producer_id, frame)
        elif kind == BaseCommand.CLOSE_PRODUCER:
            self._closed(self.producers, body.producer_id)
        elif kind == BaseCommand.CLOSE_CONSUMER:
            self._closed(self.consumers, body.consumer_id)
        elif kind == BaseCommand.ACTIVE_CONSUMER_CHANGE or kind == BaseCommand.REACHED_END_OF_TOPIC:
            _give(self.consumers, body.consumer_id, frame)
        elif kind == BaseCommand.PRODUCER_SUCCESS and not body.producer_ready:
            pass  # its turn to have the topic for itself comes later, with the same request id
        else:
            self._answer(kind, body)

    def _closed(self, attached: dict[int, Attached], number: int) -> None:
        gone = attached.pop(number, None)
        if gone is not None:
            gone.lost(self, NotConnected("the broker closed it"))

    def _answer(self, kind: int, body: Any) -> None:
        answer = self._answers.pop(body.request_id, None)
        if answer is None or answer.done():
            return
        if kind == BaseCommand.ERROR or (kind in _WITH_ERROR and body.HasField("error")):
            answer.set_exception(server_error(body.error, body.message))
        else:
            answer.set_result(body)


def _give(attached: dict[int, Attached], number: int, frame: Frame) -> None:
    found = attached.get(number)
    if found is not None:
        found.received(frame)


class Pool:
    """Opens connections as needed."""

    def __init__(
        self,
        authentication: Authentication,
        context: ssl.SSLContext | None,
        timeout_s: float,
        *,
        entry_metadata: bool = False,
    ) -> None:
        self._authentication = authentication
        self._entry_metadata = entry_metadata
        self._context = context
        self._timeout_s = timeout_s
        self._links: dict[tuple[Address, str | None], Link] = {}
        self._opening: dict[tuple[Address, str | None], asyncio.Lock] = {}
        self._closed = False

    async def link(self, address: Address, proxy_to: str | None = None) -> Link:
        """A connection to a broker, through a proxy if `proxy_to` names the broker. Raises ConnectError."""
        key = (address, proxy_to)
        async with self._opening.setdefault(key, asyncio.Lock()):
            found = self._links.get(key)
            if found is not None and not found.closed:
                return found
            if self._closed:
                raise AlreadyClosed("the client is closed")
            link = self._links[key] = await self._open(address, proxy_to)
            return link

    async def _open(self, address: Address, proxy_to: str | None) -> Link:
        hello = Hello(self._authentication, proxy_to, self._entry_metadata)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, link = await loop.create_connection(
                    lambda: Link(hello),
                    address.host,
                    address.port,
                    ssl=self._context if address.tls else None,
                )
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectError(f"{address.authority} cannot be reached: {reason}") from error
        try:
            await link.ready(self._timeout_s)
        except BaseException:  # no other code has it
            link.close()
            raise
        return link

    def __contains__(self, link: object) -> bool:
        """Whether it has opened this connection."""
        return any(one is link for one in self._links.values())

    @property
    def idle(self) -> bool:
        """Whether no producer or consumer uses any of them."""
        return not any(link.producers or link.consumers for link in self._links.values())

    async def close(self) -> None:
        """Close every connection: callers that wait for an answer get an error. Takes at most CLOSE_S."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()
        await asyncio.gather(*(link.ended(CLOSE_S) for link in links))

"""Another process of the service: a bounded number of connections to it, each with a session, kept for further requests."""

import asyncio
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from penstock.broker.fleet import FORWARDED, ForwardedRequest, Process, ProcessGoneError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

from .connection import Answer, Connection, ConnectionCutError
from .sessions import Asking, Proof, Welcome

CONNECTIONS_MAX: Final = 1000  # to one process; each long poll has one
LASTING_MAX: Final = 900  # of them, for requests that last as long as their clients want
CLIENT_MAX: Final = 500  # of them, for one client
READY_MAX: Final = 10  # in addition, for probes of readiness
READY: Final = b"/health/ready"
PATH: Final = b"/fleet/session"
OPEN_S: Final = 5.0  # to connect and to begin a session
FREE_S: Final = 5.0  # to wait for a free connection if there are too many
IDLE_S: Final = 30.0  # an idle connection is not used again after this
_IDEMPOTENT: Final = (b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS")
_WELCOME_BYTES_MAX: Final = 4096
# statuses of a server, or a proxy before it, that has too much to do
_BUSY: Final = frozenset((408, 429, 500, 502, 503, 504))


class Slots:
    """A request holds a slot until its answer was taken."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(CONNECTIONS_MAX)
        self._lasting = asyncio.Semaphore(LASTING_MAX)
        self._ready = asyncio.Semaphore(READY_MAX)
        self._clients: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, request: ForwardedRequest, free_s: float) -> AsyncIterator[None]:
        """Hold a slot for a request; raises TimeoutError if none is free within `free_s` seconds."""
        needed = self._needed(request)
        async with AsyncExitStack() as held:
            async with asyncio.timeout(free_s if any(each.locked() for each in needed) else None):
                for each in needed:
                    await held.enter_async_context(each)
            yield

    def _needed(self, request: ForwardedRequest) -> list[asyncio.Semaphore]:
        if request.target == READY and request.body == b"":
            return [self._ready]
        client = self._clients.get(request.client)
        if client is None:
            client = self._clients[request.client] = asyncio.Semaphore(CLIENT_MAX)
        return [client, self._lasting, self._all] if request.lasts else [client, self._all]


class _Link:
    """A connection, and its session."""

    __slots__ = ("asking", "connection", "idle_s")

    def __init__(self, connection: Connection, asking: Asking, idle_s: float) -> None:
        self.connection = connection
        self.asking = asking
        self.idle_s = min(idle_s, IDLE_S)


class Peer:
    """Sends requests to one process. `sent` and `failed` count them."""

    def __init__(
        self, process: Process, own: str, proof: Proof, tls: ssl.SSLContext | None, tasks: Tasks
    ) -> None:
        """`tls` verifies the certificate of an https address; None: the system's authorities do."""
        self.process = process
        self.sent = self.failed = 0
        self._own = own
        self._proof = proof
        self._tasks = tasks
        parts = urlsplit(process.url)
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc.encode()
        self._tls = tls_context(self._host, tls) if parts.scheme == "https" else None
        self._idle: deque[_Link] = deque()
        self._links: set[_Link] = set()
        self._slots = Slots()

    @asynccontextmanager
    async def send(self, request: ForwardedRequest, head_s: float) -> AsyncIterator[Answer]:
        """Send a request; its answer must begin within `head_s` seconds. Raises ProcessGoneError, UNAVAILABLE."""
        self.sent += 1
        async with AsyncExitStack() as held:
            try:
                await held.enter_async_context(self._slots.hold(request, FREE_S))
            except TimeoutError:
                raise self._unavailable(
                    "has too many requests of this process, or of one client, at once"
                ) from None
            link, answer = await self._answered(request, head_s)
            try:
                yield answer
            finally:
                self._release(link, answer)

    async def session(self) -> Asking:
        """A session for connections of another protocol. Raises ProcessGoneError, UNAVAILABLE."""
        link = await self._open()
        self._drop(link)
        return link.asking

    async def _answered(self, request: ForwardedRequest, head_s: float) -> tuple[_Link, Answer]:
        """The head of the answer. A request is sent twice at most: if an idle connection turns out to be closed and the
        request may be repeated, or if the process has forgotten the session and did not look at the request. A body that
        comes in parts cannot be sent again, and goes by a new connection."""
        again = isinstance(request.body, bytes)
        while True:
            link = self._take_idle() if again else None
            kept = link is not None
            link = link or await self._open()
            try:
                async with asyncio.timeout(head_s):
                    answer = await self._send(link, request)
            except ConnectionCutError as error:
                self._drop(link)
                if kept and again and not error.begun and _repeatable(request):
                    again = False
                    continue
                raise self._unavailable("closed the connection") from None
            except TimeoutError:
                self._drop(link)
                raise self._unavailable(f"did not answer within {head_s:g} s") from None
            except BaseException:
                self._drop(link)
                raise
            if any(name == FORWARDED for name, _ in answer.headers):  # the proof was refused
                self._drop(link)
                if kept and again:
                    again = False
                    continue
                raise self._unavailable("refuses requests of this process")
            return link, answer

    async def _send(self, link: _Link, request: ForwardedRequest) -> Answer:
        method, target, headers = request.method, request.target, request.headers
        proof = link.asking.sign(method, target, headers, request.caller)
        own = (b"host", self._authority), (FORWARDED, proof)
        return await link.connection.send(method, target, [*headers, *own], request.body)

    # -- connections

    def _take_idle(self) -> _Link | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            link = self._idle.pop()
            if not link.connection.closed and now - link.connection.idle_since < link.idle_s:
                return link
            self._drop(link)
        return None

    def _release(self, link: _Link, answer: Answer) -> None:
        if not answer.reusable or link.connection.closed or len(self._idle) >= CONNECTIONS_MAX:
            self._drop(link)
            return
        link.connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(link)

    def _drop(self, link: _Link) -> None:
        self._links.discard(link)
        link.connection.close()

    def look(self, now: float) -> None:
        """Close connections that were idle for too long; `now` is the loop's time."""
        while self._idle and now - self._idle[0].connection.idle_since >= self._idle[0].idle_s:
            self._drop(self._idle.popleft())

    async def _open(self) -> _Link:
        """A connection to the process itself, and to no other program; raises ProcessGoneError, UNAVAILABLE."""
        if not self._host:
            raise self._unavailable(
                "is on another machine, and has no address that others reach: set its http.advertise"
            )
        connection = Connection(self._tasks)
        try:
            async with asyncio.timeout(OPEN_S):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: connection, self._host, self._port, ssl=self._tls)
                link = await self._begin(connection)
        except ConnectionRefusedError:
            raise self._gone("nothing listens at its address") from None
        except TimeoutError:
            connection.close()
            raise self._unavailable("does not answer") from None
        except (OSError, UnicodeError, ConnectionCutError) as error:
            connection.close()
            raise self._unavailable(f"cannot be reached: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._links.add(link)
        return link

    async def _begin(self, connection: Connection) -> _Link:
        asking = Asking(self._proof, self._own, self.process.id)
        body = msgspec.json.encode(asking.hello)
        headers = [
            (b"host", self._authority),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
        ]
        answer = await connection.send(b"POST", PATH, headers, body)
        content = b""
        while part := await answer.part():
            content += part
            if len(content) > _WELCOME_BYTES_MAX:
                break
        if answer.status in _BUSY:
            connection.close()
            raise self._unavailable("accepts no requests now")
        welcome = _welcome_in(content) if answer.status == 200 and answer.reusable else None
        if welcome is None or not asking.welcomed(welcome):
            connection.close()
            raise self._gone("another program listens at its address")
        return _Link(connection, asking, welcome.idle_s)

    def close(self) -> None:
        """End all connections."""
        for link in list(self._links):
            self._drop(link)
        self._idle.clear()

    def _gone(self, why: str) -> ProcessGoneError:
        self.failed += 1
        return ProcessGoneError(f"process {self.process.id} has ended: {why}")

    def _unavailable(self, what: str) -> PenstockError:
        self.failed += 1
        return PenstockError(ErrorKind.UNAVAILABLE, f"process {self.process.id} {what}")


def _repeatable(request: ForwardedRequest) -> bool:
    """Whether a second time does nothing more; a consumer's GET of messages takes them."""
    return request.method in _IDEMPOTENT and not request.target.partition(b"?")[0].endswith(b"/messages")


def _welcome_in(content: bytes) -> Welcome | None:
    try:
        return msgspec.json.decode(content, type=Welcome)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def tls_context(host: str, tls: ssl.SSLContext | None) -> ssl.SSLContext:
    """Certificates seldom name loopback addresses. There the session alone proves the identity of the other process."""
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        return tls or ssl.create_default_context()
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context

"""One HTTP request and its answer: what every endpoint is given, whatever carries it."""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from penstock.broker.fleet import FORWARDED
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.holding import Holding, holding_of
from penstock.protocols.rates import SCOPE_KEY, Allowance
from penstock.protocols.trace import trace_of
from penstock.protocols.transport import PIECE_BYTES, send_in_pieces

from .answers import JSON_TYPE, Answer, BodyError, Header
from .compression import unfolded
from .decoding import DECODE_ERRORS, reason

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

_LENGTH_DIGITS: Final = 18  # a longer number is as good as this many of its digits: too large
NO_ANSWER: Final = 499  # a status: the peer hung up first; the number that proxies use

T = TypeVar("T")


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


class Named(NamedTuple):
    """The headers that are looked at in every request. `length` is -1 if none is announced, or no number; `forwarded` is the
    proof of another process that passes a request on."""

    authorization: bytes | None = None
    encoding: bytes | None = None
    length: int = -1
    traceable: bool = False
    forwarded: bytes | None = None

    @classmethod
    def of(cls, headers: Iterable[Header]) -> "Named":
        """Those among `headers`."""
        authorization = encoding = forwarded = None
        length, traceable = -1, False
        for name, value in headers:
            if name == b"content-length":
                length = _length_of(value)
            elif name == b"authorization":
                authorization = value
            elif name == b"content-encoding":
                encoding = value if encoding is None else encoding + b", " + value  # one list (RFC 9110 5.3)
            elif name == b"traceparent":
                traceable = True
            elif name == FORWARDED:
                forwarded = value
        return cls(authorization, encoding, length, traceable, forwarded)


class Exchange:
    """A request being answered. `started`: the head of an answer is out, and no other can follow.

    A server implements `receive_event` and `send_event`; it may have a whole body at hand (`buffered`), and write a
    whole answer at once (`whole`).
    """

    __slots__ = (
        "_headers",
        "authorization",
        "encoding",
        "forwarded",
        "length",
        "method",
        "scope",
        "shown",
        "size",
        "started",
        "status",
        "traceable",
        "unfolded_bytes",
    )

    def __init__(self, scope: Scope, named: Named | None = None) -> None:
        self.scope = scope
        self.started = False
        self.status = NO_ANSWER
        self.size = 0  # bytes of the answer's body so far
        self.unfolded_bytes = 0  # of a compressed body, counted as held until `release`
        self.shown: Sequence[Header] = ()  # headers that every answer to this request has
        self.method: str = scope["method"]
        self._headers: dict[str, str] | None = None
        named = named or Named.of(scope["headers"])
        self.authorization, self.encoding, self.length, self.traceable, self.forwarded = named

    # -- as ASGI has it: what comes and goes in parts passes here

    async def receive_event(self) -> Event:
        """ASGI's `receive`, from the client."""
        raise NotImplementedError

    async def send_event(self, event: Event) -> None:
        """ASGI's `send`, to the client."""
        raise NotImplementedError

    def buffered(self) -> bytes | None:
        """The whole body, if it is here already; `receive` then waits for the client's end."""
        return None

    def call_when_gone(self, callback: Callable[[], None] | None) -> bool:
        """Call `callback` when the client hangs up; None stops that. The body must have been read.

        False if only `receive` says so.
        """
        return False

    async def receive(self) -> Event:
        """ASGI's `receive`. A body counts in the allowance of its role."""
        event = await self.receive_event()
        body = event.get("body")
        if body and SCOPE_KEY in self.scope:
            await self.spend(len(body), more=event.get("more_body", False))
        return event

    async def send(self, event: Event) -> None:
        """ASGI's `send`. Large parts go in pieces, as fast as the client takes them; they count until then."""
        if event["type"] == "http.response.start":
            self.started = True
            self.status = event["status"]
            if self.shown:
                event = {**event, "headers": [*event["headers"], *self.shown]}
            await self.send_event(event)
            return
        size = len(event.get("body", b""))
        self.size += size
        if size > PIECE_BYTES:
            await send_in_pieces(self.scope, event, self.send_event)
        else:
            await self.send_event(event)
        if size and SCOPE_KEY in self.scope:
            await self.spend(size, more=event.get("more_body", False))

    async def spend(self, size: int, *, more: bool) -> None:
        """Count a body in the allowance of its role: a whole one after it was given, the parts of those that go on as
        fast as the role may have them."""
        allowance: Allowance = self.scope[SCOPE_KEY]
        if more:
            await allowance.spend(0, size)
        else:
            allowance.take(0, size)

    def count_unfolded(self, size: int, grown: int) -> None:
        """Count a decompressed body of `size` bytes: as held for the client until `release`, and in the
        allowance of its role by how much it has `grown`. Raises TOO_MANY_REQUESTS, UNAVAILABLE."""
        if grown > 0 and SCOPE_KEY in self.scope:
            allowance: Allowance = self.scope[SCOPE_KEY]
            allowance.take(0, grown)
        holding = self.holding
        if size and holding is not None:
            self.unfolded_bytes += size
            holding.receive(size)
            if holding.over:
                raise PenstockError(*holding.refuse())

    # -- the request

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name."""
        for found, value in self.scope["headers"]:
            if found == name:
                return str(value.decode("latin-1"))
        return None

    @property
    def address(self) -> str:
        """`scheme://host[:port]` by which the client reached the server; "" if it did not say."""
        host = self.header(b"host")
        return f"{self.scope.get('scheme', 'http')}://{host}" if host else ""

    @property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name; those given several times are one list."""
        if self._headers is None:
            self._headers = headers = dict[str, str]()
            for name, value in self.scope["headers"]:
                key, text = name.decode("latin-1"), value.decode("latin-1")
                headers[key] = f"{headers[key]}, {text}" if key in headers else text
        return self._headers

    def stream_body(self, *, whole: bool = False) -> None:
        """The client may send its body for as long as it wants, and read the answer in the meantime. The body ends when the server
        stops; with `whole` only if an answer has begun. Bytes that were taken count as held until `settle`."""

    def end_body(self) -> None:
        """Take no more of a streamed body: `receive` gives its end."""

    def settle(self, size: int) -> None:
        """So many bytes of a streamed body are held no more."""

    @property
    def holding(self) -> Holding | None:
        """What the server holds for the request's connection."""
        return holding_of(self.scope)

    def trace(self) -> dict[str, str] | None:
        """What carries on the request's trace in its messages (W3C Trace Context); None if nothing does."""
        return trace_of(self.scope["headers"]) if self.traceable else None

    async def body(self, bytes_max: int, *, encoded: bool = False) -> bytes:
        """The request's body, decompressed; raises TOO_LARGE as soon as it is known to be, ClientGoneError, BAD_MEDIA_TYPE,
        BAD_ENCODING, and what `Holding.refuse` says if there is no room for it.

        With `encoded` it is given as it was sent: its Content-Encoding is the caller's to see to, and to `count_unfolded`.
        """
        if self.length > bytes_max:
            raise _too_large(bytes_max)
        whole = self.buffered()
        if whole is None:
            body = await self._rest(bytes_max)
        else:
            body = whole
            if body and SCOPE_KEY in self.scope:
                await self.spend(len(body), more=False)
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        if self.encoding is not None and not encoded:
            found = await unfolded(self.encoding.decode("latin-1"), body, bytes_max)
            if found is not body:
                self.count_unfolded(len(found), len(found) - len(body))
            return found
        return body

    def release(self) -> None:
        """The request was served: its body is held no more."""
        held, self.unfolded_bytes = self.unfolded_bytes, 0
        if self.holding is not None:
            self.holding.receive(-held)

    async def _rest(self, bytes_max: int) -> bytes:
        """A body that has not come yet; raises TOO_LARGE, ClientGoneError."""
        parts: list[bytes] = []
        size = 0
        while size <= bytes_max:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)
            size += len(parts[-1])
        raise _too_large(bytes_max)

    async def json(self, decoder: msgspec.json.Decoder[T], bytes_max: int, *, empty: bytes = b"") -> T:
        """The request's body, or `empty` if there is none, as what the decoder is for; raises as `body`, BAD_JSON,
        BAD_PARAMETER."""
        return self.decoded(await self.body(bytes_max), decoder, empty)

    @staticmethod
    def decoded(body: bytes, decoder: msgspec.json.Decoder[T], empty: bytes = b"") -> T:
        """A body, or `empty` if there is none, as what the decoder is for; raises BAD_JSON, BAD_PARAMETER."""
        try:
            return decoder.decode(body or empty)
        except msgspec.ValidationError as error:
            raise BodyError(ErrorKind.BAD_PARAMETER, reason(error)) from None
        except DECODE_ERRORS as error:
            raise BodyError(ErrorKind.BAD_JSON, reason(error)) from None

    # -- the answer

    def answer(self, body: bytes, status: int = 200, *headers: Header) -> Awaitable[None]:
        """A whole answer in JSON."""
        return self.whole(status, (JSON_TYPE, *headers), body)

    async def give(self, answer: Answer) -> None:
        """A whole answer; of HEAD the length of its body only."""
        body, headers = answer.content()
        await self.whole(answer.status, headers, body)

    async def whole(self, status: int, headers: Sequence[Header], body: bytes | None) -> None:
        """A whole answer of any type, and its length; without either if the body is None."""
        if body is not None:
            headers = [*headers, (b"content-length", b"%d" % len(body))]
        await self.head(status, *headers)
        sent = b"" if body is None or self.method == "HEAD" else body
        await self.send({"type": "http.response.body", "body": sent})

    async def head(self, status: int, *headers: Header) -> None:
        """Begin an answer."""
        await self.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def part(self, body: bytes) -> None:
        """More of an answer that was begun; waits while the client is slow."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        """The end of an answer given in parts."""
        await self.send({"type": "http.response.body", "body": b""})


def _length_of(value: bytes) -> int:
    """The number of a Content-Length, as the parser of the connection reads it; -1 if it is invalid."""
    digits = value.strip(b" \t")
    return int(digits.lstrip(b"0")[:_LENGTH_DIGITS] or b"0") if digits.isdigit() else -1


def _too_large(bytes_max: int) -> PenstockError:
    return PenstockError(ErrorKind.TOO_LARGE, f"the body is larger than {bytes_max} bytes")

"""Records streamed in one request, and a result for each as soon as it is stored, in the same order.

One task reads and decodes, another publishes all that waits at once: a commit carries the records that came while the one before was made. Results go
out while records come in. If too much waits, reading pauses, and with it the client.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

import msgspec

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.backlog import Backlog
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import JSON_TYPE
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.rates import SCOPE_KEY, Allowance
from penstock.runtime.clock import Clock

from .json_values import BrokenJsonError, JsonValues, ShapeError, TooLongError
from .record_shapes import Failed, Record, Stored

log = logging.getLogger(__name__)

LASTS_MS: Final = 24 * 3_600_000  # the longest stream
WAITING_MAX: Final = 2_000  # records read and not published
WAITING_BYTES_MAX: Final = 4 << 20  # of them; one record more may overdraw it
GROUP_MAX: Final = 1_000  # records of one publication
READ_AT_ONCE: Final = 100  # records that are taken before others have their turn on the loop
EMPTY_BODY: Final = ConfluentCode(422, 42206)
STOPPING: Final = "the server is shutting down"

Outcome = Stored | Failed
Produce = Callable[[Sequence[Record | ShapeError]], Awaitable[Sequence[Outcome]]]

_DECODER: Final = msgspec.json.Decoder(Record)
_ENCODER: Final = msgspec.json.Encoder()


class Waiting(msgspec.Struct, gc=False):
    """A record that was read, or why it could not be, with its size in the body."""

    record: Record | ShapeError
    size: int
    arrived_ms: int = 0


class RecordStream:
    """One request. `produce` publishes records in their order and gives a result for each."""

    def __init__(
        self, exchange: Exchange, produce: Produce, clock: Clock, bytes_max: int, *, latin: bool
    ) -> None:
        """`bytes_max`: of one record; `latin`: the body is ISO-8859-1."""
        self._exchange = exchange
        self._produce = produce
        self._clock = clock
        self._latin = latin
        self._values = JsonValues(_DECODER, bytes_max)
        self._backlog: Backlog[Waiting] = Backlog(WAITING_MAX, WAITING_BYTES_MAX)
        self._publishing = 0  # bytes of the records that are being published
        self._held = 0  # bytes of the body that count as held
        self._gone = False
        self._last: Failed | None = None  # the last object of the answer
        self._lapsed: PenstockError | None = None

    async def run(self, caller: Caller, check: Callable[[], object]) -> None:
        """Serve until the body ends. `check` raises if the caller may not publish (any more). Raises ConfluentError for an empty
        body, UNAVAILABLE if the server stops before anything came, ClientGoneError."""
        exchange = self._exchange
        exchange.stream_body()
        watch = caller.watch(check, self._lapse)
        timer = self._clock.call_later(LASTS_MS, self._time_out)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish_all(), name="publish a stream")
                try:
                    await self._read_all(caller.context)
                finally:
                    self._backlog.close()
        finally:
            timer.cancel()
            if watch is not None:
                watch.close()
            exchange.settle(self._held)
        if self._gone:
            raise ClientGoneError
        if self._last is None and not self._values.complete:
            self._last = _half(stopping=caller.context.draining)
        if self._last is not None:
            await self._write([self._last])
        elif not exchange.started:
            if caller.context.draining:
                raise PenstockError(ErrorKind.UNAVAILABLE, STOPPING)
            raise ConfluentError(EMPTY_BODY, "Payload error. Request body is empty. Data is required.")
        await exchange.end()

    # -- the end

    def _lapse(self, error: PenstockError) -> None:
        """The caller may publish no more."""
        self._lapsed = error
        self._finish(Failed(error.kind.codes.status, error.message))

    def _time_out(self) -> None:
        text = "Streaming connection open for longer than allowed: Connection will be closed."
        self._finish(Failed(408, text))

    def _finish(self, last: Failed) -> None:
        self._last = self._last or last
        self._exchange.end_body()

    # -- reading

    async def _read_all(self, context: ServerContext) -> None:
        allowance: Allowance | None = self._exchange.scope.get(SCOPE_KEY)
        holding = self._exchange.holding
        more = True
        while more:
            event = await self._exchange.receive()
            if event["type"] == "http.disconnect":
                self._gone = True
                return
            more = event.get("more_body", False)
            data: bytes = event.get("body", b"")
            if not data:
                continue
            self._held += len(data)
            try:
                await self._take(data.decode("latin-1").encode() if self._latin else data, allowance, context)
            except BrokenJsonError as error:
                code = 413 if isinstance(error, TooLongError) else 400
                name = "Request Entity Too Large" if code == 413 else "Bad Request: Error processing message"
                self._finish(Failed(code, f"{name}: {error}"))
                return
            if holding is not None and holding.far_over:  # halves of records cannot wait for room
                kind, text = holding.refuse()
                self._finish(Failed(kind.codes.status, text))
                return

    async def _take(self, data: bytes, allowance: Allowance | None, context: ServerContext) -> None:
        """Have the records of a part of the body published; completes when there is room for more. Records that wait for the rate of
        the caller are left when the stream or the server ends. Raises BrokenJsonError."""
        found = self._values.feed(data)
        at_once = READ_AT_ONCE if allowance is None else 1  # none is published before its time
        broken: BrokenJsonError | None = None
        while broken is None:
            part: list[Waiting] = []
            try:
                for value, size in islice(found, at_once):
                    part.append(Waiting(value, size))
            except BrokenJsonError as error:  # after the records that precede it
                broken = error
            if not part:
                break
            self._backlog.extend(part, sum([one.size for one in part]))
            if allowance is not None:
                await allowance.spend(len(part), 0)
                if self._last is not None or context.draining:
                    break
            if self._backlog.full:
                await self._backlog.room()
            elif len(part) == at_once:
                await asyncio.sleep(0)
        self._settle()
        if broken is not None:
            raise broken

    def _settle(self) -> None:
        """Count what waits and is being published, no more."""
        held = min(self._held, self._backlog.size_bytes + self._publishing + self._values.size)
        self._exchange.settle(self._held - held)
        self._held = held

    # -- publishing

    async def _publish_all(self) -> None:
        while group := await self._backlog.take(GROUP_MAX):
            self._publishing = sum([one.size for one in group])
            results = await self._publish([one.record for one in group])
            self._publishing = 0
            del group  # it would stay while the next is waited for
            self._settle()
            if not self._gone:
                await self._write(results)

    async def _publish(self, records: Sequence[Record | ShapeError]) -> Sequence[Outcome]:
        if self._lapsed is not None:
            refused = Failed(self._lapsed.kind.codes.status, self._lapsed.message)
            return [refused] * len(records)
        try:
            return await self._produce(records)
        except Exception:
            log.exception("publishing a stream failed")
            return [Failed(500, "Internal Server Error")] * len(records)

    async def _write(self, results: Sequence[Outcome]) -> None:
        exchange = self._exchange
        if not exchange.started:
            await exchange.head(200, JSON_TYPE)
        await exchange.part(_ENCODER.encode_lines(results))


def _half(*, stopping: bool) -> Failed:
    """The result of a record of which the body has only a part."""
    if stopping:
        return Failed(503, STOPPING)
    return Failed(400, "Bad Request: Error processing message: Unexpected end of the body")

"""One idempotent producer for all that the process publishes: records out, offsets in.

librdkafka sends on its own threads. Delivery reports are polled on the loop, by a timer that runs while some are on
their way: a thread that asked would need the interpreter's lock once for each record, while the loop works.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Locks, Uncancellable

from .clients import Clients, CredentialsInUse
from .errors import ends_client, engine_error
from .record import RECORD_BYTES, At, Header, NewRecord
from .threads import aside, in_thread

Outcome = int | PenstockError  # the offset of a record, or why it was not stored
TIMEOUT_MS: Final = 30_000  # until a record that cannot be delivered is given up
LINGER_MS: Final = 2  # so long a batch waits for more
MISSING_MS: Final = 5_000  # a topic unknown to the brokers for so long is reported as missing
BYTES_MAX: Final = 64 << 20  # on their way; publishers wait then
RECORDS_MAX: Final = 200_000
FRAME_BYTES: Final = 64 << 10  # of a message's bound: the overhead of its payload
FIRST_S: Final = 0.003  # until it is first asked what became of records: batches linger, and need their time
NEXT_S: Final = 0.001  # until it is asked again; longer and longer while nothing became of any
NEXT_MAX_S: Final = 0.02
# librdkafka's, for a record that it does not take.
REFUSALS: Final = (KafkaException, BufferError, ValueError, TypeError)
REFRESH_S: Final = 5.0  # for the answer to a request for metadata
REFRESHED_MAX: Final = 1_000
CLOSE_S: Final = 2.5  # for records on their way, and then for those that are given up


class AnySent:
    """`future` gets the outcome of each record, in the order in which they were sent; `size` is about their bytes."""

    __slots__ = ("_left", "_outcomes", "_sender", "count", "future", "size", "what")

    def __init__(self, sender: "RecordProducer", what: str, count: int) -> None:
        self.what = what
        self.size = 0
        self.count = self._left = count
        self.future: asyncio.Future[list[Outcome]] = Uncancellable()
        self._sender = sender
        self._outcomes: list[Outcome] = []

    @property
    def held(self) -> int:
        """The bytes that they take on their way."""
        return self.size + self.count * RECORD_BYTES

    def _end(self) -> None:
        self._sender.ended(self)
        self.future.set_result(self._outcomes)


class Sent(AnySent):
    """Records of any kind: `delivered` is called with the place of each."""

    __slots__ = ()

    def __init__(self, sender: "RecordProducer", what: str, count: int) -> None:
        super().__init__(sender, what, count)
        self._outcomes = [-1] * count

    def delivered(self, place: int, error: KafkaError | None, message: Message) -> None:
        """What became of a record."""
        if error is None:
            self._outcomes[place] = message.offset()
        else:
            self._outcomes[place] = self._sender.failed(error, self.what)
        self._left -= 1
        if not self._left:
            self._end()

    def refuse(self, place: int, error: PenstockError) -> None:
        """A record could not be sent."""
        self._outcomes[place] = error
        self._left -= 1
        if not self._left:
            self._end()


class SentValues(AnySent):
    """Records that differ only in their values: a callback that is the same for all of them costs half as much.

    A partition stores records in the order in which they are sent, so that the offsets, in order, are those of the values.
    librdkafka reports them in that order, too. That is relied on only if some fail: unless their values agree, all have failed.
    """

    __slots__ = ("_failed", "_refused", "_values")

    def __init__(self, sender: "RecordProducer", what: str, values: Sequence[bytes | str | None]) -> None:
        super().__init__(sender, what, len(values))
        self._values = values
        self._failed: dict[int, bytes | None] = {}  # by when it was reported
        self._refused: list[Outcome] = []  # of the last records

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """What became of a record."""
        if error is None:
            self._outcomes.append(message.offset())
        else:
            self._failed[len(self._outcomes)] = message.value()
            self._outcomes.append(self._sender.failed(error, self.what))
        self._left -= 1
        if not self._left:
            self._end()

    def refuse_from(self, place: int, error: PenstockError) -> None:
        """The records from a place on could not be sent."""
        self._refused = [error] * (self.count - place)
        self._left -= len(self._refused)
        if not self._left:
            self._end()

    @property
    def failed(self) -> bool:
        """Whether some were not stored."""
        return bool(self._failed or self._refused)

    def _end(self) -> None:
        outcomes = self._outcomes
        if not self._failed:
            outcomes.sort()
        elif not self._in_order():
            outcomes[:] = [next(one for one in outcomes if isinstance(one, PenstockError))] * len(outcomes)
        outcomes += self._refused
        super()._end()

    def _in_order(self) -> bool:
        offsets = [one for one in self._outcomes if isinstance(one, int)]
        return offsets == sorted(offsets) and all(
            _bytes(self._values[at]) == (value or b"") for at, value in self._failed.items()
        )


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


_NO_HEADERS: Final[Iterable[list[Header] | None]] = repeat(None)


class RecordProducer:
    """Records of one partition are stored in the order in which they were sent. Made on the loop."""

    def __init__(self, clients: Clients, *, compression: str, message_bytes_max: int) -> None:
        self._clients = clients
        self._credentials = CredentialsInUse(clients)
        clients.on_renewal.append(self._renew)
        self._properties = {
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": LINGER_MS,
            "message.timeout.ms": TIMEOUT_MS,
            "message.max.bytes": message_bytes_max + FRAME_BYTES,
            "queue.buffering.max.messages": 2 * RECORDS_MAX,
            "topic.metadata.propagation.max.ms": MISSING_MS,
        }
        self._made: Any = None
        self._failed: list[Any] = []  # clients that failed, until their records are settled
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._delay_s = NEXT_S
        self._records = 0
        self._bytes = 0
        self._in_line = 0
        self._line = asyncio.Lock()
        self._less = asyncio.Event()
        self._closed = False
        self._refreshing: Locks[str] = Locks()
        self._refreshed: dict[str, float] = {}  # time of the last refresh, by the loop's clock

    # -- out

    @property
    def full(self) -> bool:
        """Whether senders have to wait with `room`."""
        return self._has_to_wait or self._in_line > 0

    @property
    def _has_to_wait(self) -> bool:
        if self._bytes >= BYTES_MAX or self._records >= RECORDS_MAX:
            return True
        # Records of one partition keep their order: wait until those of the client with old credentials are stored.
        return self._records > 0 and self._credentials.outdated

    async def room(self) -> None:
        """Wait until there is room for more, in order of arrival."""
        self._in_line += 1
        try:
            async with self._line:
                while self._has_to_wait:
                    self._less.clear()
                    await self._less.wait()
        finally:
            self._in_line -= 1

    def send(self, at: At, records: Sequence[NewRecord]) -> Sent:
        """Send records to one partition, at least one. Their outcomes are in the future of what this returns."""
        topic, partition = at
        sent = Sent(self, topic, len(records))
        sent.size = sum([record.size() for record in records])
        self._begin(sent)
        if self._closed:
            for place in range(len(records)):
                sent.refuse(place, _ending())
            return sent
        produce, delivered = self._client().produce, sent.delivered
        for place, record in enumerate(records):
            told = partial(delivered, place)
            try:
                produce(
                    topic, record.value, record.key, partition, told, None, record.timestamp, record.headers
                )
            except REFUSALS as error:
                sent.refuse(place, self._refusal(error, topic))
        self._ask_soon()
        return sent

    def send_values(
        self,
        at: At,
        values: Sequence[bytes | str | None],
        headers: Iterable[list[Header] | None] = _NO_HEADERS,
    ) -> SentValues:
        """The same for records without keys, faster; `headers` are those of each."""
        topic, partition = at
        sent = SentValues(self, topic, values)
        sent.size = sum([len(value) for value in values if value is not None])
        self._begin(sent)
        if self._closed:
            sent.refuse_from(0, _ending())
            return sent
        produce, delivered = self._client().produce, sent.delivered
        place = 0
        try:
            for value, some in zip(values, headers, strict=False):
                produce(topic, value, None, partition, delivered, None, 0, some)
                place += 1
        except REFUSALS as error:
            sent.refuse_from(place, self._refusal(error, topic))
        self._ask_soon()
        return sent

    async def refresh(self, topic: str) -> None:
        """Refresh the partitions of a topic: librdkafka refuses one that was added since its last refresh. Never fails."""
        asked = self._loop.time()
        async with self._refreshing.hold(topic):
            made = self._made
            if made is None or self._refreshed.get(topic, 0.0) > asked:
                return
            with contextlib.suppress(KafkaException):
                await in_thread(made.list_topics, topic, REFRESH_S)
            if len(self._refreshed) >= REFRESHED_MAX:
                self._refreshed.clear()
            self._refreshed[topic] = self._loop.time()

    def _begin(self, sent: AnySent) -> None:
        self._bytes += sent.held
        self._records += sent.count

    def _client(self) -> Any:
        if self._made is None:
            self._credentials.replaced()
            self._made = self._clients.poll_in_background(
                self._clients.producer("producer", self._properties)
            )
        return self._made

    def _renew(self) -> None:
        """Drop a client with old credentials once it has no record in flight; the next record creates another."""
        if not self._records and self._made is not None and self._credentials.outdated:
            left, self._made = [self._made], None
            aside(left.clear)  # the last reference

    def _refusal(self, error: Exception, topic: str) -> PenstockError:
        if isinstance(error, KafkaException):
            if ends_client(error):
                self._replace()
            return engine_error(error, topic)
        if isinstance(error, BufferError):
            return PenstockError(ErrorKind.UNAVAILABLE, f"{topic}: too many records are on their way")
        return PenstockError(ErrorKind.BAD_ENCODING, f"{topic}: a record that Kafka does not take: {error}")

    # -- in

    def failed(self, error: KafkaError, what: str) -> PenstockError:
        """The error of a record of a topic that was not stored."""
        if error.fatal():
            self._replace()
        refusal = self._clients.errors.refusal() if error.code() == KafkaError._MSG_TIMED_OUT else None
        if refusal is not None:
            return engine_error(refusal, what)
        return engine_error(error, what)

    def ended(self, sent: AnySent) -> None:
        """Every record of a call has its outcome."""
        self._bytes -= sent.held
        self._records -= sent.count
        self._less.set()
        self._renew()

    def _replace(self) -> None:
        """After an error that ends it, another producer takes its place: records in flight are given up."""
        made = self._made
        if made is not None:
            self._made = None
            self._failed.append(made)
            made.purge(blocking=False)

    def _ask_soon(self) -> None:
        if self._timer is not None:
            if self._delay_s <= FIRST_S:
                return
            self._timer.cancel()
        self._delay_s = NEXT_S
        self._timer = self._loop.call_later(FIRST_S, self._ask)

    def _ask(self) -> None:
        """Learn what became of records."""
        self._timer = None
        told = 0
        for one in (self._made, *self._failed):
            if one is not None:
                told += one.poll(0)
        if told:
            self._delay_s = NEXT_S
        else:
            self._delay_s = min(NEXT_MAX_S, 1.5 * self._delay_s)
        if self._records:
            self._timer = self._loop.call_later(self._delay_s, self._ask)
        else:
            self._failed.clear()

    async def close(self) -> None:
        """Wait a while for records in flight, give up the rest, and leave. Every record has its outcome then: callers that wait for
        one cannot be cancelled."""
        self._closed = True
        if not await self._settled(CLOSE_S):
            for one in (self._made, *self._failed):
                if one is not None:
                    one.purge(blocking=False)
            await self._settled(CLOSE_S)  # librdkafka's own threads give up: no broker is asked
        if self._timer is not None:
            self._timer.cancel()
        self._made = None
        self._failed.clear()

    async def _settled(self, timeout_s: float) -> bool:
        """Whether every record has its outcome within a time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._records:
                    self._less.clear()
                    await self._less.wait()
        except TimeoutError:
            return False
        return True


def _ending() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")

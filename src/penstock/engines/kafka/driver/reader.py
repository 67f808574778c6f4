"""Readers of partitions from any offset on: few, kept for a while, as the next read mostly continues an earlier one.

What a reader fetched ahead is there for the read that goes on.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .clients import REFUSED_S, Clients, CredentialsInUse
from .errors import engine_error, passes
from .positions import END
from .record import At, Record, contiguous

RECORDS_MAX: Final = 1000  # of one read: they are made entries on the loop
WAIT_S: Final = 0.25  # of one wait in a thread: a read that is given up leaves it soon
QUIET_S: Final = 30.0  # without an expected record; then the cluster counts as unreachable
FETCH_WAIT_MS: Final = 20  # the broker's at the end of the log; a reader that is moved waits for it
MISSING_MS: Final = 2000  # a topic unknown to the brokers for so long is reported as missing
AHEAD_KB: Final = 4096  # that is fetched ahead, about
# A full queue is looked at again after so long. librdkafka's default of 1 s halts a reader that empties its queue sooner.
QUEUE_BACKOFF_MS: Final = 10

T = TypeVar("T")

# What librdkafka mends by itself.
_PASSING: Final = frozenset((KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT))
READERS_MAX: Final = 16  # each has connections and a thread or two of librdkafka's, which sleep
IDLE_S: Final = 10.0  # then a reader leaves
AT_END_S: Final = 0.25  # a reader at the end of a log asks the broker again and again: then it rests
BUSY: Final = 4  # reads at the same time: each costs the brokers several requests


class OutOfRange(Exception):
    """The log does not have the next offset (any more)."""


class Found(msgspec.Struct, frozen=True, gc=False):
    """Records with offsets without gaps. Without records, the log ends at `end`, as far as this reader saw."""

    records: Sequence[Record]
    end: int


def fetching(wait_ms: int, ahead_kb: int) -> dict[str, Any]:
    """How consumers fetch that read alone: how long a request waits at the end of a log, and how much they fetch ahead, about."""
    return {
        "fetch.wait.max.ms": wait_ms,
        "queued.max.messages.kbytes": ahead_kb,
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
    }


def reading(**own: Any) -> dict[str, Any]:
    """How consumers are configured that belong to no group."""
    return {
        "group.id": "penstock",  # required, and never joined
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        "topic.metadata.propagation.max.ms": MISSING_MS,
        **own,
    }


def mends(error: KafkaError) -> bool:
    """Whether librdkafka gets over an error by itself."""
    return error.code() in _PASSING or passes(error)


def log_end(message: Message, what: str) -> int | None:
    """The end of the log, as a message with an error says it; None for an error that librdkafka mends. Raises OutOfRange, and other
    errors."""
    error = message.error()
    if error.code() == KafkaError._PARTITION_EOF:
        return int(message.offset())
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
        raise OutOfRange
    if not mends(error):
        raise engine_error(error, what)
    return None


def ask_for_leaders(consumer: Consumer, places: Iterable[At]) -> None:
    """Have a consumer ask for the leaders of partitions that it was assigned, in one request; the answer is not awaited. By itself
    librdkafka asks once a second."""
    with suppress(KafkaException):  # the timeout is zero
        consumer.offsets_for_times([TopicPartition(*place, END) for place in places], timeout=0)


class Reader:
    """Used by one read at a time."""

    def __init__(self, clients: Clients, executor: Executor) -> None:
        self.credentials = CredentialsInUse(clients)
        self.rests_s = self.leaves_s = 0.0  # when it rests and leaves, if it is not used
        self.place: At | None = None
        self.position = -1  # the offset that is expected next
        self._executor = executor
        self._held: list[Record] = []  # in order, from the position on
        self._end = -1  # the last seen end of the log
        self._running: Future[Any] | None = None
        self._errors = clients.errors
        self._consumer = clients.consumer("reader", reading(**fetching(FETCH_WAIT_MS, AHEAD_KB)))

    def covers(self, place: At, offset: int) -> bool:
        """Whether it goes on at `offset`."""
        return self.place == place and self.position <= offset <= self._first_held

    @property
    def _first_held(self) -> int:
        return self._held[0].offset() if self._held else self.position

    async def move(self, place: At, offset: int) -> None:
        """Go to a partition and an offset; raises the error that prevents it."""
        if self._running is not None and not self._running.done():  # it goes to rest
            await asyncio.wait((asyncio.wrap_future(self._running),))
        self.place, self.position = place, offset
        self._held.clear()
        self._end = -1
        await self._run(self._assign, place, offset)

    def _assign(self, place: At, offset: int) -> None:
        self._consumer.assign([TopicPartition(*place, offset)])
        ask_for_leaders(self._consumer, (place,))

    async def read(self, entries_max: int, bytes_max: int, until: int) -> Found:
        """Records from the position on, at least one, within both bounds, up to the first gap; empty at the end of the log, which is
        at `until` or later. Raises OutOfRange, UNAVAILABLE, TOPIC_NOT_FOUND and what the cluster refuses."""
        entries_max = min(entries_max, RECORDS_MAX)
        if len(self._held) < entries_max:
            self._take_in(self._consumer.consume(entries_max - len(self._held), 0))
        began = monotonic()
        while not self._held:
            if self._end >= until:
                self.position = self._end
                return Found((), self._end)
            waited = monotonic() - began
            refusal = self._errors.refusal(REFUSED_S) if waited > REFUSED_S else None
            if refusal is not None:
                raise engine_error(refusal, self._what)
            if waited > QUIET_S:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"the cluster did not deliver {self._what} in time"
                )
            self._take_in(await self._run(self._wait, entries_max))
        return self._give(entries_max, bytes_max)

    def _give(self, entries_max: int, bytes_max: int) -> Found:
        held = self._held
        first = held[0].offset()
        found = held[:entries_max]
        found = found[: contiguous(found, first)]
        if sum(map(len, found)) > bytes_max:
            size = 0
            for number, record in enumerate(found):
                size += len(record)
                if size > bytes_max and number:
                    found = found[:number]
                    break
        del held[: len(found)]
        self.position = first + len(found)
        return Found(found, -1)

    def _wait(self, count: int) -> list[Message]:
        first = self._consumer.poll(WAIT_S)
        return [] if first is None else [first, *self._consumer.consume(count, 0)]

    def _take_in(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.error() is None:
                self._held.append(message)
            elif (end := log_end(message, self._what)) is not None:
                self._end = end

    @property
    def _what(self) -> str:
        return "records" if self.place is None else f"{self.place[0]}, partition {self.place[1]}"

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        self._running = running = self._executor.submit(work, *arguments)
        try:
            return await asyncio.wrap_future(running)
        except KafkaException as error:
            raise engine_error(error, self._what) from None

    def rest(self) -> None:
        """Read nothing until it is moved."""
        self.place = None
        self._held.clear()
        self._running = self._executor.submit(self._consumer.unassign)

    def close(self) -> None:
        """Leave, in a thread; what still waits there ends first: no consumer is closed while it is used."""
        self.place = None
        self._held.clear()
        running = self._running
        if running is not None and not running.done():
            running.add_done_callback(lambda _: self._consumer.close())
        else:
            self._executor.submit(self._consumer.close)


class Readers:
    """Each reads for one caller at a time: it is taken, and kept again afterwards or closed."""

    def __init__(self, clients: Clients, executor: Executor) -> None:
        self._clients = clients
        clients.on_renewal.append(self._renew)
        self._executor = executor
        self._turns = asyncio.Semaphore(READERS_MAX)
        self._idle: list[Reader] = []  # that was used last is last
        self._count = 0
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweeps_s = 0.0
        self._closed = False

    @property
    def busy(self) -> bool:
        """Whether BUSY reads or more are under way."""
        return self._count - len(self._idle) >= BUSY

    async def read(self, place: At, offset: int, entries_max: int, bytes_max: int, until: int) -> Found:
        """As `Reader.read`, from `offset` on."""
        try:
            async with asyncio.timeout(QUIET_S):
                await self._turns.acquire()
        except TimeoutError:
            raise PenstockError(ErrorKind.UNAVAILABLE, "too many reads wait for the cluster") from None
        try:
            reader = self._take(place, offset)
            try:
                if not reader.covers(place, offset):
                    await reader.move(place, offset)
                found = await reader.read(entries_max, bytes_max, until)
            except BaseException:
                self._close(reader)
                raise
            at_end = not found.records or found.records[-1].offset() + 1 >= until
            self._keep(reader, rests=at_end)
            return found
        finally:
            self._turns.release()

    def _take(self, place: At, offset: int) -> Reader:
        """The reader that goes on there, else one that rests, else a new one, else the one that was not used for longest."""
        if self._closed:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        resting: int | None = None
        for at, reader in enumerate(self._idle):
            if reader.covers(place, offset):
                return self._idle.pop(at)
            if reader.place is None:
                resting = at
        if resting is not None:
            return self._idle.pop(resting)
        if self._count < READERS_MAX:
            made = Reader(self._clients, self._executor)
            self._count += 1
            return made
        return self._idle.pop(0)

    def _keep(self, reader: Reader, *, rests: bool) -> None:
        if self._closed or reader.credentials.outdated:
            self._close(reader)
            return
        now = monotonic()
        reader.rests_s = now + (AT_END_S if rests else IDLE_S)
        reader.leaves_s = now + IDLE_S
        self._idle.append(reader)
        self._sweep_at(reader.rests_s)

    def _sweep_at(self, due_s: float) -> None:
        if self._sweeping is None or due_s < self._sweeps_s:
            if self._sweeping is not None:
                self._sweeping.cancel()
            self._sweeps_s = due_s
            delay = max(0.0, due_s - monotonic())
            self._sweeping = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = monotonic()
        for reader in [one for one in self._idle if one.leaves_s <= now]:
            self._idle.remove(reader)
            self._close(reader)
        for reader in self._idle:
            if reader.place is not None and reader.rests_s <= now:
                reader.rest()
        if self._idle:
            self._sweep_at(min(one.leaves_s if one.place is None else one.rests_s for one in self._idle))

    def _renew(self) -> None:
        """Close idle readers, whose credentials are old; those in use are closed after their read."""
        while self._idle:
            self._close(self._idle.pop())

    def _close(self, reader: Reader) -> None:
        self._count -= 1
        reader.close()

    def close(self) -> None:
        """Let all leave."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        while self._idle:
            self._close(self._idle.pop())

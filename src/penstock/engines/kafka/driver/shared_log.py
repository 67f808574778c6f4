"""Topics of one partition that all processes of a service append to and read as a whole, in one order.

A thread reads, and hands records to the loop in batches. Written records count once they were read back, so that all
processes know all changes in one order. Each log has its own producer: that of messages waits for batches to fill.

- A *compacted topic* is a table: the last row of a key counts.
- A *journal* has neither compaction nor transactions: `cleanup.policy=delete` without retention keeps every record until `trim`
  deletes the oldest. So its offsets have no gaps. A reader that meets one was overtaken by a trim, or the topic was recreated or
  truncated: what the reader knew has to be built again.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore, Event, Thread
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from penstock.engines.shared.documents import UnknownVersion
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import Format, version_of

from .admin import KafkaAdmin
from .clients import CredentialsInUse
from .credentials import Properties
from .errors import ends_client, engine_error
from .record import At, Header
from .threads import in_thread

log = logging.getLogger(__name__)

POLL_S: Final = 0.2  # until the thread notices that it should end
BATCH_MAX: Final = 1000  # records that are handed to the loop at once
BATCHES_MAX: Final = 4  # that the loop has not processed yet
OUTCOME_S: Final = 0.02  # between checks for the outcome, which the poll of the loop may have received
RETRY_S: Final = 1.0  # until reading is tried again
FETCH_WAIT_MS: Final = 500

R = TypeVar("R")
# The key of a row and its value; None: deleted, `UnknownVersion`: of a version that this release does not know.
Row = tuple[str, bytes | None]
Write = tuple[bytes, bytes | None, Sequence[Header] | None]  # key, value and headers


class JournalRecord(msgspec.Struct, frozen=True):
    """A record as it was read."""

    offset: int
    key: bytes
    value: bytes
    headers: Sequence[Header]


class JournalReader(Protocol):
    """Receives the records of a journal, on the loop."""

    def read(self, records: Sequence[JournalRecord]) -> None:
        """Records came, in the order of the journal: those of this process and of others."""

    def restarted(self) -> None:
        """Records were skipped: forget everything. `read` continues with the first record that is left."""

    def failing(self, reason: str | None) -> None:
        """The journal cannot be read, for this reason; None: it can be read again."""


class SharedLog(ABC, Generic[R]):
    """`kind` names the clients in logs and metrics; `reading` are the consumer's own properties. `failing` is called on the loop with
    the reason while nothing can be read, and with None once reading works again."""

    dense: bool  # whether offsets have no gaps

    def __init__(
        self,
        admin: KafkaAdmin,
        topic: str,
        kind: str,
        reading: Properties,
        failing: Callable[[str | None], None],
    ) -> None:
        self.topic = topic
        self.position = 0  # everything before it was handed on
        self._admin = admin
        self._clients = clients = admin.clients
        self._timeout_s = admin.timeout_s
        self._place: At = (topic, 0)
        self._kind = kind
        self._reading = reading
        self._failing = failing
        self._producer: Any = None
        self._credentials = CredentialsInUse(clients)  # of the producer
        self._ending = Event()
        self._thread: Thread | None = None
        self._next: int | None = None  # the offset that the thread expects; None before the first
        self._unprocessed = BoundedSemaphore(BATCHES_MAX)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @abstractmethod
    def _decode(self, message: Any) -> R | None:
        """A record as it is handed on; None: it is left out. On the thread."""

    @abstractmethod
    def _received(self, records: list[R], position: int, *, restarted: bool) -> None:
        """Records up to `position` came; `restarted`: others before them were skipped."""

    async def start(self) -> None:
        """Read everything there is; raises UNAVAILABLE, TOPIC_NOT_FOUND."""
        end = (await self._admin.ends([self._place]))[self._place]
        loop = asyncio.get_running_loop()
        self._producer = self._new_producer()
        self._thread = Thread(target=self._read, args=(loop,), name=f"kafka {self._kind}", daemon=True)
        self._thread.start()
        await self.reached(end)

    async def close(self) -> None:
        """End the thread, and release both clients."""
        self._ending.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await in_thread(thread.join)
        self._producer = None

    # -- writing

    async def write(self, records: Sequence[Write]) -> int:
        """Write records, in order; returns the offset of the last one once all are durable and were handed on.

        Raises UNAVAILABLE, FORBIDDEN, TOO_LARGE; then a part of them may be written, or, after UNAVAILABLE, be written later.
        """
        offset = await self._clients.wait_unless_refused(in_thread(self._write, records))
        await self.reached(offset + 1)
        return offset

    def _new_producer(self) -> Any:
        own = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            "message.timeout.ms": int(self._timeout_s * 1000),
        }
        return self._clients.poll_in_background(self._clients.producer(self._kind, own))

    def _write(self, records: Sequence[Write]) -> int:
        """Produce and wait; on a thread."""
        if self._credentials.replaced():
            self._producer = self._new_producer()
        producer = self._producer
        outcomes: list[int | KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcomes.append(record.offset() if error is None else error)

        try:
            for key, value, headers in records:
                producer.produce(self.topic, value, key, partition=0, on_delivery=delivered, headers=headers)
        except KafkaException as error:
            raise self._refusal(error) from None
        except BufferError:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self.topic}: too much is being written") from None
        until = monotonic() + self._timeout_s + 1
        while len(outcomes) < len(records) and monotonic() < until:
            producer.poll(OUTCOME_S)
        if len(outcomes) < len(records):
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self.topic}: the cluster does not answer")
        last = -1
        for one in outcomes:
            if not isinstance(one, int):
                raise self._refusal(one)
            last = max(last, one)
        return last

    def _refusal(self, error: KafkaError | KafkaException) -> PenstockError:
        if ends_client(error):
            self._producer = self._new_producer()
        return engine_error(error, self.topic)

    # -- reading

    async def reached(self, offset: int) -> None:
        """Wait until everything before an offset was handed on; raises UNAVAILABLE."""
        if self.position >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = offset, future
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._clients.wait_unless_refused(future)
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE, f"{self.topic} cannot be read: the cluster does not answer"
            ) from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    def _arrived(self, records: list[R], position: int, restarted: bool) -> None:
        self._unprocessed.release()
        self._failing(None)
        self._received(records, position, restarted=restarted)
        self.position = position
        for waiting in [one for one in self._waiting if one[0] <= position]:
            self._waiting.remove(waiting)
            if not waiting[1].done():
                waiting[1].set_result(None)

    # -- the thread

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._read_on(loop)
                except (KafkaException, PenstockError) as error:  # continue with a new consumer
                    loop.call_soon_threadsafe(self._failing, str(error))
                    self._ending.wait(RETRY_S)
        except RuntimeError:
            pass  # the loop is closed

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        credentials, consumer = CredentialsInUse(self._clients), self._new_consumer()
        try:
            while not self._ending.is_set():
                if credentials.replaced():
                    old = consumer
                    try:
                        consumer = self._new_consumer()
                    except PenstockError as error:
                        log.warning("still reading %s with the old credentials: %s", self.topic, error)
                    else:
                        old.close()
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._hand_on(loop, [first, *consumer.consume(BATCH_MAX, 0)])
        finally:
            consumer.close()

    def _hand_on(self, loop: asyncio.AbstractEventLoop, events: Sequence[Any]) -> None:
        """Hand records to the loop; in a dense log a gap starts a new batch, before which the reader forgets what it knew."""
        errors: list[KafkaError] = []
        batch: list[R] = []
        restarted = moved = False
        for event in events:
            error = event.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                errors.append(error)
                continue
            offset = event.offset()
            if self.dense and self._next is not None and offset != self._next:
                if moved:
                    self._send(loop, batch, restarted)
                log.warning("%s continues at offset %d instead of %d", self.topic, offset, self._next)
                batch, restarted = [], True
            moved = True
            self._next = max(offset, 0 if self.dense else self._next or 0)
            if error is None:
                self._next = offset + 1
                record = self._decode(event)
                if record is not None:
                    batch.append(record)
        if moved:
            self._send(loop, batch, restarted)
        for error in errors:
            self._clients.errors.report(self._kind, error)
        if errors and not moved:
            loop.call_soon_threadsafe(self._failing, errors[0].str())
            self._ending.wait(RETRY_S)

    def _send(self, loop: asyncio.AbstractEventLoop, batch: list[R], restarted: bool) -> None:
        assert self._next is not None
        position = self._next
        while not self._unprocessed.acquire(timeout=POLL_S):
            if self._ending.is_set():
                return
        loop.call_soon_threadsafe(self._arrived, batch, position, restarted)

    def _new_consumer(self) -> Any:
        own = {
            "group.id": f"penstock-{self._kind}",  # required, and never joined
            "enable.auto.commit": False,
            # If the wanted offset does not exist: in a journal the gap shows that.
            "auto.offset.reset": "earliest",
            # The end is reached without a record if the log is empty, was trimmed up to its end, or ends with records that compaction
            # left out.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **self._reading,
        }
        consumer = self._clients.consumer(self._kind, own)
        offset = OFFSET_BEGINNING if self._next is None else self._next
        consumer.assign([TopicPartition(self.topic, 0, offset)])
        return consumer


class Journal(SharedLog[JournalRecord]):
    """Records are written one at a time."""

    dense = True

    def __init__(self, admin: KafkaAdmin, topic: str, reader: JournalReader) -> None:
        # No transactions are used: those of others, by mistake, block nothing.
        reading = {"socket.nagle.disable": True, "isolation.level": "read_uncommitted"}
        super().__init__(admin, topic, "cursors", reading, reader.failing)
        self.begin = 0  # the first offset that is left, as far as this process knows
        self._reader = reader

    async def start(self) -> None:
        self.begin = (await self._admin.begins([self._place]))[self._place]
        await super().start()

    async def append(self, key: bytes, value: bytes, headers: Sequence[Header] = ()) -> int:
        """As `write`, one record. Call it again only after it has returned."""
        return await self.write(((key, value, list(headers)),))

    async def trim(self, offset: int) -> None:
        """Delete the records before an offset; raises FORBIDDEN, UNAVAILABLE."""
        await self._admin.delete_records({self._place: offset})
        self.begin = max(self.begin, offset)

    def _decode(self, message: Any) -> JournalRecord:
        return JournalRecord(
            message.offset(), message.key() or b"", message.value() or b"", message.headers() or ()
        )

    def _received(self, records: list[JournalRecord], position: int, *, restarted: bool) -> None:
        if restarted:
            self.position = 0
            self.begin = records[0].offset if records else position
            self._reader.restarted()
        if records:
            self._reader.read(records)


class CompactedTopic(SharedLog[Row]):
    """`changed` is called on the loop with each batch of rows that was read, of this process and of others, in their order.

    `format_of` returns the format of a row's value by its key; written rows name its version.
    """

    dense = False

    def __init__(
        self,
        admin: KafkaAdmin,
        topic: str,
        changed: Callable[[list[Row]], None],
        format_of: Callable[[str], Format],
        wait_ms: int = FETCH_WAIT_MS,
        failing: Callable[[str | None], None] = lambda reason: None,
    ) -> None:
        reading = {"fetch.wait.max.ms": wait_ms, "isolation.level": "read_committed"}
        super().__init__(admin, topic, "documents", reading, failing)
        self._changed = changed
        self._format_of = format_of

    async def append(self, rows: Sequence[Row]) -> None:
        """As `write`, rows."""
        await self.write(self._encoded(rows))

    def _encoded(self, rows: Sequence[Row]) -> list[Write]:
        return [
            (key.encode(), value, None if value is None else self._format_of(key).headers())
            for key, value in rows
        ]

    async def catch_up(self, *, committed: bool = True) -> None:
        """Know everything that was written until now; with `committed` off, also what lies behind an open transaction. Raises
        UNAVAILABLE."""
        ends = self._admin.ends if committed else self._admin.last_ends
        await self.reached((await ends([self._place]))[self._place])

    def _decode(self, message: Any) -> Row | None:
        return row_of(message, self._format_of)

    def _received(self, records: list[Row], position: int, *, restarted: bool) -> None:
        if records:
            self._changed(records)


def row_of(message: Any, format_of: Callable[[str], Format]) -> Row | None:
    """The row of a record; None if it has no key."""
    if message.key() is None:
        return None
    key, value = message.key().decode(errors="replace"), message.value()
    if value is not None:
        try:
            format_of(key).check(version_of(message.headers()), key.replace("\0", " "))
        except PenstockError as error:
            value = UnknownVersion(error)
    return key, value

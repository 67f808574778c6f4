"""A journal: a topic of one partition whose records all processes read in one order.

`cleanup.policy=delete` without retention keeps every record until `trim` deletes the oldest. Records are written one at a time, by
the journal's own producer: the producer of messages waits for batches to fill, and a record would wait with them.

A partition that has neither compaction nor transactions numbers its records without gaps. So a reader that meets a gap was
overtaken by a trim, or its topic was recreated or truncated: what it knew has to be built again.
"""

import asyncio
import logging
from collections.abc import Sequence
from threading import BoundedSemaphore, Event, Thread
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .admin import KafkaAdmin
from .clients import Clients
from .errors import ends_client, engine_error
from .record import Header
from .threads import in_thread

log = logging.getLogger(__name__)

POLL_S: Final = 0.2  # until the thread notices that it should end
BATCH_MAX: Final = 1000  # records that are handed to the loop at once
BATCHES_MAX: Final = 4  # that the loop has not processed yet
OUTCOME_S: Final = (
    0.02  # between checks for the outcome: the loop polls the producer, too, and may have received it
)
RETRY_S: Final = 1.0  # until reading is tried again


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


class Journal:
    """`kind` is a name for logs and metrics of the clients."""

    def __init__(
        self,
        clients: Clients,
        admin: KafkaAdmin,
        topic: str,
        timeout_s: float,
        reader: JournalReader,
        kind: str = "cursors",
    ) -> None:
        self.topic = topic
        self.begin = 0  # the first offset that is left, as far as this process knows
        self.position = 0  # everything before it was handed to the reader
        self._clients = clients
        self._admin = admin
        self._timeout_s = timeout_s
        self._reader = reader
        self._kind = kind
        self._producer: Any = None
        self._generation = clients.generation  # of the producer
        self._ending = Event()
        self._thread: Thread | None = None
        self._next: int | None = None  # the offset that the thread expects; None before the first
        self._unprocessed = BoundedSemaphore(BATCHES_MAX)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        """Read everything there is; raises UNAVAILABLE, TOPIC_NOT_FOUND."""
        place = (self.topic, 0)
        self.begin = (await self._admin.begins([place]))[place]
        end = (await self._admin.ends([place]))[place]
        loop = asyncio.get_running_loop()
        self._producer = self._new_producer()
        self._thread = Thread(target=self._read, args=(loop,), name=f"kafka {self._kind}", daemon=True)
        self._thread.start()
        await self.reached(end)

    # -- writing

    async def append(self, key: bytes, value: bytes, headers: Sequence[Header] = ()) -> int:
        """Write a record; returns its offset once it is durable and was handed to the reader.

        Call it again only after it has returned. Raises UNAVAILABLE, FORBIDDEN, TOO_LARGE; after UNAVAILABLE the record may have
        been written, or may be written later.
        """
        offset = await self._clients.wait_unless_refused(in_thread(self._write, key, value, list(headers)))
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

    def _write(self, key: bytes, value: bytes, headers: list[Header]) -> int:
        """Produce and wait; on a thread."""
        if self._generation != self._clients.generation:
            self._generation = self._clients.generation
            self._producer = self._new_producer()
        producer = self._producer
        outcome: list[int | KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcome.append(record.offset() if error is None else error)

        try:
            producer.produce(self.topic, value, key, partition=0, on_delivery=delivered, headers=headers)
        except KafkaException as error:
            raise self._refusal(error) from None
        except BufferError:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self.topic}: too much is being written") from None
        until = monotonic() + self._timeout_s + 1
        while not outcome and monotonic() < until:
            producer.poll(OUTCOME_S)
        if not outcome:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self.topic}: the cluster does not answer")
        found = outcome[0]
        if not isinstance(found, int):
            raise self._refusal(found)
        return found

    def _refusal(self, error: KafkaError | KafkaException) -> PenstockError:
        if ends_client(error):
            self._producer = self._new_producer()
        return engine_error(error, self.topic)

    async def trim(self, offset: int) -> None:
        """Delete the records before an offset; raises FORBIDDEN, UNAVAILABLE."""
        await self._admin.delete_records({(self.topic, 0): offset})
        self.begin = max(self.begin, offset)

    # -- reading

    async def reached(self, offset: int) -> None:
        """Wait until everything before an offset was handed to the reader; raises UNAVAILABLE."""
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

    def _arrived(self, records: list[JournalRecord], position: int, restarted: bool) -> None:
        self._unprocessed.release()
        self._reader.failing(None)
        if restarted:
            self.position = 0
            self.begin = records[0].offset if records else position
            self._reader.restarted()
        if records:
            self._reader.read(records)
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
                    loop.call_soon_threadsafe(self._reader.failing, str(error))
                    self._ending.wait(RETRY_S)
        except RuntimeError:
            pass  # the loop is closed

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        generation, consumer = self._clients.generation, self._new_consumer()
        try:
            while not self._ending.is_set():
                if generation != self._clients.generation:
                    generation, old = self._clients.generation, consumer
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
        """Hand records to the loop; a gap starts a new batch, before which the reader forgets what it knew."""
        errors: list[KafkaError] = []
        batch: list[JournalRecord] = []
        restarted = moved = False
        for event in events:
            error = event.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                errors.append(error)
                continue
            offset = event.offset()
            if self._next is not None and offset != self._next:
                if moved:
                    self._send(loop, batch, restarted)
                log.warning("%s continues at offset %d instead of %d", self.topic, offset, self._next)
                batch, restarted = [], True
            moved = True
            self._next = offset
            if error is None:
                self._next = offset + 1
                headers = event.headers() or ()
                batch.append(JournalRecord(offset, event.key() or b"", event.value() or b"", headers))
        if moved:
            self._send(loop, batch, restarted)
        for error in errors:
            self._clients.errors.report(self._kind, error)
        if errors and not moved:
            loop.call_soon_threadsafe(self._reader.failing, errors[0].str())
            self._ending.wait(RETRY_S)

    def _send(self, loop: asyncio.AbstractEventLoop, batch: list[JournalRecord], restarted: bool) -> None:
        assert self._next is not None
        position = batch[-1].offset + 1 if batch else self._next
        while not self._unprocessed.acquire(timeout=POLL_S):
            if self._ending.is_set():
                return
        loop.call_soon_threadsafe(self._arrived, batch, position, restarted)

    def _new_consumer(self) -> Any:
        own = {
            "group.id": "penstock-cursors",  # required, and never joined
            "enable.auto.commit": False,
            # Where the wanted offset is not there: the gap shows that.
            "auto.offset.reset": "earliest",
            # The end is reached without a record if the journal is empty, or trimmed up to its end.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 500,
            "socket.nagle.disable": True,
            # There are no transactions: those of others, by mistake, block nothing.
            "isolation.level": "read_uncommitted",
        }
        consumer = self._clients.consumer(self._kind, own)
        offset = OFFSET_BEGINNING if self._next is None else self._next
        consumer.assign([TopicPartition(self.topic, 0, offset)])
        return consumer

    async def close(self) -> None:
        """End the thread, and release both clients."""
        self._ending.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await in_thread(thread.join)
        self._producer = None

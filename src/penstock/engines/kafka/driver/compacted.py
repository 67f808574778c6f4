"""A compacted topic of one partition as a table that every process has: written by appending, known by reading all of it.

A thread reads; what it reads is handed to the loop in batches. What is written counts once it is read back, so that all
processes see all changes in one order.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.engines.shared.versions import UnknownVersion
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import Format, version_of

from .clients import Clients, CredentialsInUse
from .errors import ends_client, engine_error
from .threads import in_thread

log = logging.getLogger(__name__)

# A key and its value; None: deleted, `UnknownVersion`: of a version that this release does not know.
Row = tuple[str, bytes | None]

POLL_S: Final = 0.2  # how soon the thread sees that it is to end
AT_ONCE: Final = 1000
AGAIN_S: Final = 1.0  # until reading is tried again, as after the topic was made again


class CompactedTopic:
    """`changed` is called on the loop with each batch of rows that was read, of this process and of others, in their order;
    `failing` with the reason while nothing can be read, and with None once reading works again.

    `format_of` returns the format of a row's value by its key; written rows name its version.
    """

    def __init__(
        self,
        clients: Clients,
        topic: str,
        timeout_s: float,
        changed: Callable[[list[Row]], None],
        format_of: Callable[[str], Format],
        wait_ms: int = 500,
        failing: Callable[[str | None], None] = lambda reason: None,
    ) -> None:
        self._clients = clients
        self._topic = topic
        self._timeout_s = timeout_s
        self._changed = changed
        self._format_of = format_of
        self._wait_ms = wait_ms
        self._failing = failing
        self._ending = Event()
        self._thread: Thread | None = None
        self._producer: Any = None
        self._credentials = CredentialsInUse(clients)  # of the producer
        self._read_to = 0  # everything before it was read; the thread's
        self._position = 0  # everything before it was handed on
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self, end: int) -> None:
        """Read all that there is, up to `end`; raises UNAVAILABLE."""
        loop = asyncio.get_running_loop()
        self._producer = self._new_producer()
        self._thread = Thread(target=self._read, args=(loop,), name="kafka documents", daemon=True)
        self._thread.start()
        await self.reached(end)

    def _new_producer(self) -> Any:
        own = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": int(self._timeout_s * 1000),
        }
        return self._clients.poll_in_background(self._clients.producer("documents", own))

    async def append(self, rows: Sequence[Row]) -> None:
        """Write rows, in their order; returns when they are durable and `changed` has been called with them.

        Raises UNAVAILABLE, FORBIDDEN, TOO_LARGE; then a part of them may be written.
        """
        offsets = await self._clients.wait_unless_refused(in_thread(self._write, rows))
        await self.reached(max(offsets) + 1)

    def _write(self, rows: Sequence[Row]) -> list[int]:
        """Produce in order and wait; on a thread."""
        if self._credentials.replaced():
            self._producer = self._new_producer()
        producer = self._producer
        done: list[int | KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            done.append(record.offset() if error is None else error)

        try:
            for key, value in rows:
                headers = None if value is None else self._format_of(key).headers()
                producer.produce(
                    self._topic, value, key.encode(), partition=0, on_delivery=delivered, headers=headers
                )
        except (KafkaException, BufferError) as error:
            if isinstance(error, BufferError):
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"{self._topic}: too much is being written"
                ) from None
            raise self._refusal(error) from None
        producer.flush(self._timeout_s + 1)
        if len(done) < len(rows):
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self._topic}: the cluster does not answer")
        for one in done:
            if not isinstance(one, int):
                raise self._refusal(one)
        return [one for one in done if isinstance(one, int)]

    def _refusal(self, error: KafkaError | KafkaException) -> PenstockError:
        if ends_client(error):
            self._producer = self._new_producer()
        return engine_error(error, self._topic)

    async def reached(self, offset: int) -> None:
        """Wait until everything before an offset was handed on; raises UNAVAILABLE."""
        if self._position >= offset:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = offset, future
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._clients.wait_unless_refused(future)
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE, f"{self._topic} cannot be read: the cluster does not answer"
            ) from None
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)

    # -- the thread

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while not self._ending.is_set():
                try:
                    self._read_on(loop)
                except (
                    KafkaException,
                    PenstockError,
                ) as error:  # continue with a new consumer, from the same offset
                    loop.call_soon_threadsafe(self._failing, str(error))
                    self._ending.wait(AGAIN_S)
        except RuntimeError:
            pass  # the loop is closed

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        credentials, consumer = CredentialsInUse(self._clients), self._consumer(self._read_to)
        try:
            while not self._ending.is_set():
                if credentials.replaced():
                    old = consumer
                    try:
                        consumer = self._consumer(self._read_to)
                    except PenstockError as error:
                        log.warning("still reading %s with the old certificates: %s", self._topic, error)
                    else:
                        old.close()
                first = consumer.poll(POLL_S)
                if first is None:
                    continue
                records = [first, *consumer.consume(AT_ONCE, 0)]
                rows, position = rows_of(records, self._format_of)
                if position >= 0:
                    self._read_to = position
                    loop.call_soon_threadsafe(self._arrived, rows, position)
                elif all(one.error() is not None for one in records):
                    for one in records:
                        self._clients.errors.report("documents", one.error())
                    loop.call_soon_threadsafe(self._failing, records[0].error().str())
                    self._ending.wait(AGAIN_S)
        finally:
            consumer.close()

    def _consumer(self, offset: int) -> Any:
        """A consumer that reads from an offset on."""
        own = {
            "group.id": "penstock-documents",  # required, and never joined
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": self._wait_ms,
            "isolation.level": "read_committed",
        }
        consumer = self._clients.consumer("documents", own)
        consumer.assign([TopicPartition(self._topic, 0, offset)])
        return consumer

    def _arrived(self, rows: list[Row], position: int) -> None:
        self._failing(None)
        if rows:
            self._changed(rows)
        self._position = max(self._position, position)
        for waiting in [one for one in self._waiting if one[0] <= self._position]:
            self._waiting.remove(waiting)
            if not waiting[1].done():
                waiting[1].set_result(None)

    async def close(self) -> None:
        """End the thread, and let go of both clients."""
        self._ending.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await in_thread(thread.join)
        self._producer = None


def rows_of(records: Sequence[Any], format_of: Callable[[str], Format]) -> tuple[list[Row], int]:
    """What records say, and the offset after them; -1 where nothing was read."""
    rows: list[Row] = []
    position = -1
    for record in records:
        error = record.error()
        if error is None:
            position = record.offset() + 1
            if record.key() is not None:
                key, value = record.key().decode(errors="replace"), record.value()
                rows.append((key, value if value is None else _value_of(key, value, record, format_of(key))))
        elif error.code() == KafkaError._PARTITION_EOF:
            position = max(position, record.offset())  # past what compaction left out at the end
    return rows, position


def _value_of(key: str, value: bytes, record: Any, format: Format) -> bytes:
    """The value of a row, or `UnknownVersion`."""
    try:
        format.check(version_of(record.headers()), key.replace("\0", " "))
    except PenstockError as error:
        return UnknownVersion(error)
    return value

"""Transactions: records in several partitions that readers of committed records see together, or never.

A transactional id has one producer: opening another one, in any process, ends what the one before had begun, and fences it off.
A producer that committed is kept for a while, as opening one takes half a second: nothing it sends is stored once it was fenced off.
librdkafka's calls wait for brokers, so that each is made in a thread.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from penstock.engines.staging.ports import Interrupted
from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import ends_client, engine_error, error_of
from .producer import FRAME_BYTES
from .record import At, NewRecord
from .threads import DaemonThreads

log = logging.getLogger(__name__)

KEPT_MAX: Final = 32  # producers between transactions
KEPT_S: Final = 60.0
AT_ONCE: Final = 8  # transactions of a process; the next ones wait
ABORT_S: Final = 5.0  # for an answer; the next producer of the id aborts it anyway
ROOM_S: Final = 0.1  # of one wait for records that are on their way
QUEUE_KB: Final = 16 << 10  # on their way, of one transaction
LINGER_MS: Final = 5
TIMEOUT_MS_MAX: Final = 900_000  # Kafka's transaction.max.timeout.ms, as brokers have it

T = TypeVar("T")

FENCED: Final = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
    )
)


class Stored(msgspec.Struct):
    """The records sent to one partition: the first and the last offset, and their number."""

    first: int
    last: int
    count: int


class _Kept(msgspec.Struct, frozen=True):
    producer: Any
    credentials: CredentialsInUse
    timeout_ms: int
    since_s: float


class Transactions:
    """What opens producers with transactional ids. Made on the loop."""

    def __init__(
        self, clients: Clients, *, compression: str, message_bytes_max: int, timeout_s: float
    ) -> None:
        self.clients = clients
        self.timeout_s = timeout_s
        self.turns = asyncio.Semaphore(AT_ONCE)
        self.executor = DaemonThreads(AT_ONCE, "kafka-commit")
        self._kept: dict[str, _Kept] = {}
        self._properties = {
            "compression.type": compression,
            "linger.ms": LINGER_MS,
            "message.max.bytes": message_bytes_max + FRAME_BYTES,
            "queue.buffering.max.kbytes": QUEUE_KB + 2 * message_bytes_max // 1024,
        }

    def configured(self, transactional_id: str, timeout_ms: int) -> dict[str, Any]:
        """The properties of a producer."""
        timeout_ms = min(timeout_ms, TIMEOUT_MS_MAX)
        return {
            **self._properties,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
        }

    def take(self, transactional_id: str, timeout_ms: int) -> Any:
        """The kept producer of an id; None if there is none with that transaction timeout."""
        kept = self._kept.pop(transactional_id, None)
        if kept is None or kept.timeout_ms < min(timeout_ms, TIMEOUT_MS_MAX):
            return None
        if kept.credentials.outdated:
            return None
        return kept.producer

    def keep(self, transactional_id: str, timeout_ms: int, producer: Any) -> None:
        """Keep a producer whose transaction is over."""
        self._kept[transactional_id] = _Kept(
            producer, CredentialsInUse(self.clients), timeout_ms, monotonic()
        )
        if len(self._kept) > KEPT_MAX:
            self._drop(next(iter(self._kept)))

    def sweep(self) -> None:
        """Let producers go that were not used lately."""
        before = monotonic() - KEPT_S
        for transactional_id, kept in list(self._kept.items()):
            if kept.since_s < before:
                self._drop(transactional_id)

    def _drop(self, transactional_id: str) -> None:
        # The last reference goes in a thread: it waits for librdkafka's.
        holder = [self._kept.pop(transactional_id)]
        self.executor.submit(holder.clear)

    def close(self) -> None:
        """No more calls."""
        for transactional_id in list(self._kept):
            self._drop(transactional_id)
        self.executor.shutdown(wait=False, cancel_futures=False)


class Transaction:
    """One transaction under a transactional id, as a context: aborted at its end unless committed.

    If it commits, no other producer of the id was opened since the one of this transaction was, and what those before had
    begun was over by then. Raises Interrupted, UNAVAILABLE, FORBIDDEN, and what the cluster refuses of records.
    """

    def __init__(self, of: Transactions, transactional_id: str, timeout_ms: int) -> None:
        self.stored: dict[At, Stored] = {}
        self._of = of
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._made: Any = None
        self._failed: KafkaError | None = None
        self._ended = False

    async def __aenter__(self) -> "Transaction":
        await self._of.turns.acquire()
        try:
            self._made = self._of.take(self._id, self._timeout_ms)
            await self._run(self._open)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._ended:
                self._of.keep(self._id, self._timeout_ms, self._made)
                self._made = None
            else:
                await asyncio.wrap_future(self._of.executor.submit(self._close))
        finally:
            self._of.turns.release()

    async def send(self, at: At, records: Sequence[NewRecord]) -> None:
        """Send records to a partition, behind those before; waits while much is on its way."""
        await self._run(lambda: self._send(at, records))

    async def flush(self) -> None:
        """Wait until all sent records are stored, so that `stored` has their offsets."""
        await self._run(self._flush)

    async def commit(self) -> None:
        """Have all that was sent seen. After an error it may be, or not: the next one of this id knows."""
        await self._run(self._commit)

    # -- in a thread

    def _open(self) -> None:
        if self._made is None:
            configured = self._of.configured(self._id, self._timeout_ms)
            self._made = self._of.clients.producer("transaction", configured)
            self._made.init_transactions(self._of.timeout_s)
        self._made.begin_transaction()

    def _send(self, at: At, records: Sequence[NewRecord]) -> None:
        topic, partition = at
        for record in records:
            while True:
                try:
                    self._made.produce(
                        topic,
                        record.value,
                        record.key,
                        partition,
                        self._delivered,
                        None,
                        record.timestamp,
                        record.headers,
                    )
                    break
                except BufferError:
                    self._made.poll(ROOM_S)
                self._check()
        self._made.poll(0)
        self._check()

    def _flush(self) -> None:
        while self._made.flush(ROOM_S):
            self._check()
        self._check()

    def _commit(self) -> None:
        self._flush()
        self._made.commit_transaction(self._of.timeout_s)
        self._ended = True

    def _close(self) -> None:
        made, self._made = self._made, None
        if made is None:
            return
        try:
            made.purge(blocking=False)
            made.abort_transaction(ABORT_S)
        except KafkaException as error:
            found = error_of(error)
            if found is None or not (ends_client(found) or found.code() in FENCED):
                log.warning("a transaction could not be aborted: %s", error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            # What follows the first error is purged for it.
            self._failed = self._failed or error
            return
        offset = message.offset()
        place = message.topic(), message.partition()
        found = self.stored.get(place)
        if found is None:
            self.stored[place] = Stored(offset, offset, 1)
        else:
            found.last = max(found.last, offset)
            found.first = min(found.first, offset)
            found.count += 1

    def _check(self) -> None:
        if self._failed is not None:
            raise KafkaException(self._failed)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._of.executor.submit(work))
        except KafkaException as error:
            raise _refusal(error) from None


def _refusal(error: KafkaException) -> PenstockError:
    found = error_of(error)
    refused = engine_error(error)
    if found is None or refused.kind is not ErrorKind.UNAVAILABLE:
        return refused
    over = found.code() in FENCED or found.txn_requires_abort() or ends_client(found)
    return (Interrupted if over else PenstockError)(
        refused.kind, f"the transaction failed: {refused.message}"
    )

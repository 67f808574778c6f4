"""Writing to a topic of one partition as the only writer: a process that takes over fences the former one off.

The writer is a transactional producer. Opening another one of its transactional id, in any process, has Kafka store nothing more of
it (decision 0118).
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import ends_client, engine_error, error_of
from .shared_log import Write
from .threads import DaemonThreads
from .transactions import FENCED

TRANSACTION_MS: Final = 10_000  # so long Kafka waits for a writer that ended within a transaction
ROOM_S: Final = 0.1  # of one wait for records that are on their way

T = TypeVar("T")


class FencedError(Exception):
    """Another writer was opened. It is not known whether the current write is stored."""


class FencedWriter:
    """Opened with the first `open`, and by that again after an error of `write`."""

    def __init__(self, clients: Clients, topic: str, transactional_id: str, timeout_s: float) -> None:
        self._clients = clients
        self._topic = topic
        self._own = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TRANSACTION_MS,
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
        self._timeout_s = timeout_s
        self._threads = DaemonThreads(1, "kafka-registry")
        self._producer: Any = None
        self._credentials = CredentialsInUse(clients)

    async def open(self) -> None:
        """Become the writer unless this process is it, as far as it knows. Raises UNAVAILABLE, FORBIDDEN."""
        if self._credentials.replaced():
            self._drop()
        if self._producer is None:
            self._producer = await self._run(self._open)

    async def write(self, records: Sequence[Write]) -> int:
        """Write records in one transaction; returns the offset of the last one. Raises FencedError, UNAVAILABLE, FORBIDDEN,
        TOO_LARGE."""
        producer = self._producer
        return await self._run(lambda: self._store(producer, records))

    def _open(self) -> Any:
        producer = self._clients.producer("registry", self._own)
        producer.init_transactions(self._timeout_s)
        return producer

    def _store(self, producer: Any, records: Sequence[Write]) -> int:
        outcomes: list[int | KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcomes.append(record.offset() if error is None else error)

        producer.begin_transaction()
        for key, value, headers in records:
            producer.produce(self._topic, value, key, partition=0, on_delivery=delivered, headers=headers)
        until = monotonic() + self._timeout_s
        while producer.flush(ROOM_S) and monotonic() < until:
            pass
        last = -1
        for found in outcomes:
            if not isinstance(found, int):
                raise KafkaException(found)
            last = max(last, found)
        producer.commit_transaction(self._timeout_s)
        if len(outcomes) < len(records):
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self._topic}: the cluster does not answer")
        return last

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._threads.submit(work))
        except (KafkaException, PenstockError) as error:
            self._drop()
            if isinstance(error, PenstockError):
                raise
            found = error_of(error)
            if found is not None and (found.code() in FENCED or ends_client(found)):
                raise FencedError from None
            raise engine_error(error, self._topic) from None

    def _drop(self) -> None:
        """Let the producer go: in the thread, as it waits for librdkafka's threads."""
        if self._producer is not None:
            holder = [self._producer]
            self._producer = None
            self._threads.submit(holder.clear)

    def close(self) -> None:
        """Write no more."""
        self._drop()
        self._threads.shutdown()

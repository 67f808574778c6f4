"""The records of this server's schema registry: the topic `_schemas`, which Confluent's registry and Karapace read and write, too.

One process writes at a time. It has a transactional producer, whose id is the topic's: a process that takes over opens another
one, and from then on Kafka stores nothing of the former (decision 0118). The transactions are for that alone. Confluent's registry reads
records that are not committed, so they count here as soon as they are in the log. Karapace reads committed records, and waits for one
at the very end of the log: behind each transaction stands a NOOP. A process that takes over writes again what no NOOP follows.

What only this registry knows is not in keys and values: facts about a record are in a header, and records with keys of our own are
documents, since Confluent's registry stops at a key type that it does not know.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException

from penstock.broker.registry import OWN_KEYS, OvertakenError, RegistryRecord
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.documents import Documents
from penstock.engines.kafka.driver.clients import CredentialsInUse
from penstock.engines.kafka.driver.errors import ends_client, engine_error, error_of
from penstock.engines.kafka.driver.shared_log import SharedLog
from penstock.engines.kafka.driver.threads import DaemonThreads
from penstock.engines.kafka.driver.transactions import FENCED
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks

log = logging.getLogger(__name__)

KIND: Final = "registry"  # of documents
CONFIG: Final = {"cleanup.policy": "compact"}
NOOP: Final = '{"keytype":"NOOP","magic":0}'
OWN: Final = "penstock-registry"  # a header: what only this registry knows of a record
PROCESS: Final = "penstock-process"  # a header: which process of ours wrote the record
TRANSACTION_MS: Final = 10_000  # so long Kafka waits for a writer that ended within a transaction
ROOM_S: Final = 0.1  # of one wait for records that are on their way


class _Read(msgspec.Struct, frozen=True):
    record: RegistryRecord
    process: str | None  # None: another registry's


class _SchemasTopic(SharedLog[_Read]):
    """`received` is called on the loop with each record."""

    dense = False

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        received: Callable[[_Read], None],
        failing: Callable[[str | None], None],
    ) -> None:
        super().__init__(cluster.admin, topic, "registry", {"isolation.level": "read_uncommitted"}, failing)
        self._take_in = received

    async def catch_up(self) -> None:
        """Know everything that was written until now, committed or not; raises UNAVAILABLE."""
        await self.reached((await self._admin.last_ends([self._place]))[self._place])

    def _decode(self, message: Any) -> _Read | None:
        if message.key() is None:
            return None
        headers = dict(message.headers() or ())
        process = headers.get(PROCESS)
        record = RegistryRecord(
            message.key().decode(errors="replace"),
            message.value() or None,  # Karapace deletes by an empty value
            headers.get(OWN) or b"",
        )
        return _Read(record, None if process is None else process.decode(errors="replace"))

    def _received(self, records: list[_Read], position: int, *, restarted: bool) -> None:
        for one in records:
            self._take_in(one)


class KafkaRegistryRecords:
    """`broker.RegistryRecords`. The topic is read from its first use on, and created with the first record."""

    def __init__(self, cluster: KafkaCluster, documents: Documents, tasks: Tasks, failures: Failures) -> None:
        self.writer = ""
        self.number_schemas: Callable[[], Awaitable[None]] | None = None
        self._cluster = cluster
        self._documents = documents
        self._topic = cluster.settings.schemas_topic
        self._tasks = tasks
        self._failures = failures
        self._log: _SchemasTopic | None = None
        self._starting = asyncio.Lock()
        self._learners: list[Callable[[RegistryRecord], None]] = []
        self._rows: dict[str, RegistryRecord] = {}  # in the order of their last change
        self._unsettled: dict[str, None] = {}  # keys of ours that no NOOP follows
        self._threads = DaemonThreads(1, "kafka-registry")
        self._producer: Any = None
        self._credentials = CredentialsInUse(cluster.clients)
        documents.listeners[KIND].append(self._learn_document)

    # -- reading

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        await self.catch_up()
        for key, document in (await self._documents.load_meta(KIND)).items():
            learn(RegistryRecord(key, document))
        for record in self._rows.values():
            learn(record)
        self._learners.append(learn)

    def _learn_document(self, key: str, document: bytes | None) -> None:
        for learn in self._learners:
            learn(RegistryRecord(key, document))

    def _received(self, found: _Read) -> None:
        record = found.record
        if record.key == NOOP:
            self._unsettled.clear()
            return
        if found.process is not None:
            self.writer = found.process
            self._unsettled[record.key] = None
        self._rows.pop(record.key, None)
        if record.value is not None:
            self._rows[record.key] = record
        for learn in self._learners:
            learn(record)

    def _failing(self, reason: str | None) -> None:
        if reason is None:
            self._failures.recovered(FailureKind.DOCUMENT, self._topic)
        else:
            self._failures.failed(FailureKind.DOCUMENT, self._topic, reason)

    async def catch_up(self) -> None:
        found = await self._reading()
        await asyncio.gather(self._documents.catch_up(), *(() if found is None else (found.catch_up(),)))

    async def _reading(self, *, create: bool = False) -> _SchemasTopic | None:
        """The topic, which is read from now on; None if it does not exist. Raises NOT_SUPPORTED for one that would lose schemas."""
        if self._log is not None:
            return self._log
        async with self._starting:
            if self._log is None:
                cluster = self._cluster
                found = await cluster.admin.describe(self._topic)
                if found is None and not create:
                    return None
                found = found or await cluster.have(self._topic, 1, CONFIG)
                policy = (await cluster.admin.configs(self._topic)).get("cleanup.policy", "compact")
                if found.partitions != 1 or policy != "compact":
                    raise PenstockError(
                        ErrorKind.NOT_SUPPORTED,
                        f"{self._topic} has {found.partitions} partitions and cleanup.policy {policy}: the schema registry"
                        " needs one partition, and compact",
                    )
                made = _SchemasTopic(cluster, self._topic, self._received, self._failing)
                await made.start()
                self._log = made
            return self._log

    # -- writing

    async def take(self) -> None:
        found = await self._reading(create=True)
        assert found is not None, "it was created"
        if self._producer is None or self._credentials.replaced():
            await self._drop()
            self._producer = await self._run(self._open)
        await self.catch_up()
        if self._unsettled:  # a writer ended before its NOOP, or was overtaken
            left = [self._rows.get(key, RegistryRecord(key, None)) for key in self._unsettled]
            await self._write(left, self.writer)

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        own = [(KIND, one.key, one.value) for one in records if one.key.startswith(OWN_KEYS)]
        await self._write([one for one in records if not one.key.startswith(OWN_KEYS)], process)
        if own:
            await self._documents.save_meta(own)

    async def _write(self, records: Sequence[RegistryRecord], process: str) -> None:
        if not records:
            return
        assert self._log is not None, "`take` was called"
        last = await self._run(lambda: self._store(records, process))
        await self._log.reached(last + 1)
        self._tasks.spawn(self._settle(self._log), "end a write of the schema registry")

    async def _settle(self, found: _SchemasTopic) -> None:
        try:
            await found.write([(NOOP.encode(), None, None)])
        except PenstockError as error:  # the next writer writes the records again
            log.info("a NOOP could not be written to %s: %s", self._topic, error.message)

    # -- in the thread

    def _open(self) -> Any:
        own = {
            "transactional.id": f"__penstock-registry-{self._topic}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
        producer = self._cluster.clients.producer("registry", own)
        producer.init_transactions(self._cluster.timeout_s)
        return producer

    def _store(self, records: Sequence[RegistryRecord], process: str) -> int:
        """Write records and commit; returns the offset of the last one."""
        producer = self._producer
        outcomes: list[int | KafkaError] = []

        def delivered(error: KafkaError | None, record: Any) -> None:
            outcomes.append(record.offset() if error is None else error)

        producer.begin_transaction()
        for one in records:
            headers = [(PROCESS, process.encode()), *([(OWN, one.own)] if one.own else [])]
            producer.produce(
                self._topic, one.value, one.key.encode(), partition=0, on_delivery=delivered, headers=headers
            )
        until = monotonic() + self._cluster.timeout_s
        while producer.flush(ROOM_S) and monotonic() < until:
            pass
        last = -1
        for found in outcomes:
            if not isinstance(found, int):
                raise KafkaException(found)
            last = max(last, found)
        producer.commit_transaction(self._cluster.timeout_s)
        if len(outcomes) < len(records):
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self._topic}: the cluster does not answer")
        return last

    async def _run(self, work: Callable[[], Any]) -> Any:
        """Raises OvertakenError, UNAVAILABLE, FORBIDDEN, TOO_LARGE; then another producer is needed."""
        try:
            return await asyncio.wrap_future(self._threads.submit(work))
        except (KafkaException, PenstockError) as error:
            await self._drop()
            if isinstance(error, PenstockError):
                raise
            found = error_of(error)
            if found is not None and (found.code() in FENCED or ends_client(found)):
                raise OvertakenError from None
            raise engine_error(error, self._topic) from None

    async def _drop(self) -> None:
        """Let the producer go: in the thread, as it waits for librdkafka's threads."""
        producer, self._producer = self._producer, None
        if producer is not None:
            holder = [producer]
            del producer
            self._threads.submit(holder.clear)

    async def close(self) -> None:
        """Read and write no more."""
        await self._drop()
        self._threads.shutdown()
        if self._log is not None:
            await self._log.close()

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
from typing import Any, Final

import msgspec

from penstock.broker.registry import OWN_KEYS, OvertakenError, RegistryRecord
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.documents import Documents
from penstock.engines.kafka.driver.fenced_writer import FencedError, FencedWriter
from penstock.engines.kafka.driver.shared_log import SharedLog
from penstock.engines.shared.registry_rows import RegistryRows
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks

log = logging.getLogger(__name__)

KIND: Final = "registry"  # of documents
CONFIG: Final = {"cleanup.policy": "compact"}
NOOP: Final = '{"keytype":"NOOP","magic":0}'
OWN: Final = "penstock-registry"  # a header: what only this registry knows of a record
PROCESS: Final = "penstock-process"  # a header: which process of ours wrote the record


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
        self.number_schemas: Callable[[], Awaitable[None]] | None = None
        self._cluster = cluster
        self._documents = documents
        self._topic = cluster.settings.schemas_topic
        self._tasks = tasks
        self._failures = failures
        self._log: _SchemasTopic | None = None
        self._starting = asyncio.Lock()
        self._rows = RegistryRows()
        self._documents_rows = RegistryRows()  # of records with keys of our own
        self._unsettled: dict[str, None] = {}  # keys of ours that no NOOP follows
        self._settling: asyncio.Task[None] | None = None  # writes the NOOP
        self._writer = FencedWriter(
            cluster.clients, self._topic, f"__penstock-registry-{self._topic}", cluster.timeout_s
        )
        documents.listeners[KIND].append(self._learn_document)

    @property
    def writer(self) -> str:
        return self._rows.writer

    # -- reading

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        self._documents_rows.open(learn)
        self._rows.open(learn)
        await self.catch_up()

    def _learn_document(self, key: str, document: bytes | None) -> None:
        self._documents_rows.learn(RegistryRecord(key, document))

    def _received(self, found: _Read) -> None:
        record = found.record
        if record.key == NOOP:
            self._unsettled.clear()
            return
        if found.process is not None:
            self._rows.writer = found.process
            self._unsettled[record.key] = None
        self._rows.learn(record)

    def _failing(self, reason: str | None) -> None:
        if reason is None:
            self._failures.recovered(FailureKind.DOCUMENT, self._topic)
        else:
            self._failures.failed(FailureKind.DOCUMENT, self._topic, reason)

    async def catch_up(self) -> None:
        found = await self._reading()
        await asyncio.gather(self._documents.catch_up(), *(() if found is None else (found.catch_up(),)))

    async def look(self) -> None:
        """Read the topic if another process has created it. Raises UNAVAILABLE."""
        if self._log is None:
            await self._reading()

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
        try:
            await self._writer.open()
        except FencedError:
            raise OvertakenError from None
        if self._settling is not None:
            await asyncio.wait([self._settling])
        await self.catch_up()
        if self._unsettled:  # a writer ended before its NOOP, or was overtaken
            await self._write([self._rows.get(key) for key in self._unsettled], self.writer)

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        own = [(KIND, one.key, one.value) for one in records if one.key.startswith(OWN_KEYS)]
        shared = [one for one in records if not one.key.startswith(OWN_KEYS)]
        if own:  # first: without them ids of deleted versions would be given again
            await self._documents.save_meta(own)
        try:
            await self._write(shared, process)
        except OvertakenError:
            await self.take()
            if not self._rows.have(shared):
                raise

    async def _write(self, records: Sequence[RegistryRecord], process: str) -> None:
        if not records:
            return
        assert self._log is not None, "`take` was called"
        named = (PROCESS, process.encode())
        rows = [
            (one.key.encode(), one.value, [named, (OWN, one.own)] if one.own else [named]) for one in records
        ]
        try:
            last = await self._writer.write(rows)
        except FencedError:
            raise OvertakenError from None
        await self._log.reached(last + 1)
        self._settling = self._tasks.spawn(self._settle(self._log), "end a write of the schema registry")

    async def _settle(self, found: _SchemasTopic) -> None:
        try:
            await found.write([(NOOP.encode(), None, None)])
        except PenstockError as error:  # the next writer writes the records again
            log.info("a NOOP could not be written to %s: %s", self._topic, error.message)

    async def close(self) -> None:
        """Read and write no more."""
        self._writer.close()
        if self._log is not None:
            await self._log.close()

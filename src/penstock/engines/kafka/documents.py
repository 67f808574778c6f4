"""What Kafka has no place for, as documents of a compacted topic: namespaces, policies, schemas, properties of topics, processes.

Every process reads all of them and hears of each change. Of two that write one document at a time the later one counts
everywhere; of a kind that is stored once, the first one, and the other process learns that it was late.

A row names the version of its document (`model/formats.py`). A document of an unknown version is an `UnknownVersion`: it
cannot be decoded, and is not overwritten.
"""

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from penstock.broker.fleet import Learned
from penstock.broker.topic import MetaStore
from penstock.engines.fleet.membership import KIND
from penstock.engines.shared.documents import DocumentReader, UnknownVersion
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import Format, document_format, with_unknown_fields
from penstock.model.names import TopicName
from penstock.runtime.failures import FailureKind, Failures

from .cluster import KafkaCluster
from .driver.shared_log import CompactedTopic, Row

log = logging.getLogger(__name__)

PROPERTIES: Final = "topic-properties"
_SEPARATOR: Final = "\0"
_ONCE: Final = "\1"  # before what makes a row its writer's
CONFIG: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class TopicProperties:
    """By the names of topics."""

    def __init__(self, documents: MetaStore, reader: DocumentReader) -> None:
        self._documents = documents
        self._reader = reader
        self._by_topic: dict[TopicName, dict[str, str]] = {}

    async def load(self) -> None:
        """Read the stored documents."""
        self._reader.read_all(PROPERTIES, await self._documents.load_meta(PROPERTIES), self.learned)

    def learned(self, key: str, document: bytes | None) -> None:
        """The properties of a topic are stored, or removed (None)."""
        name = TopicName.parse_known(key)
        if name is None:
            return
        if document is None:
            self._by_topic.pop(name, None)
        else:
            self._by_topic[name] = msgspec.json.decode(document, type=dict[str, str])

    def of(self, name: TopicName) -> dict[str, str]:
        """A topic's; empty if none are stored."""
        return self._by_topic.get(name, {})

    async def save(self, name: TopicName, properties: dict[str, str]) -> None:
        """Store a topic's, durably before they count; none removes them."""
        if properties or name in self._by_topic:
            document = msgspec.json.encode(properties) if properties else None
            await self._documents.save_meta([(PROPERTIES, str(name), document)])
            self.learned(str(name), document)


class Documents:
    """`broker.MetaStore`. `listeners` are called, by the kind, with the keys and documents that changed.

    `fields` are the fields that this release knows, by kind; unknown fields of a document stay when it is rewritten.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        *,
        once: Collection[str] = (),
        failures: Failures,
        fields: Mapping[str, Collection[str]] = {},
    ) -> None:
        self.reader = DocumentReader(failures)
        self._failures = failures
        self.listeners: defaultdict[str, list[Callable[[str, bytes | None], None]]] = defaultdict(list)
        self._cluster = cluster
        self._topic = topic
        self._documents: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._once = once
        self._fields = fields
        self._rows: dict[str, str] = {}  # of kinds that are stored once: the row that counts
        self._table: CompactedTopic | None = None

    async def start(self) -> None:
        """Read all documents; creates the topic. Raises UNAVAILABLE. If it may not be created, nothing is stored."""
        cluster = self._cluster
        if await cluster.admin.describe(self._topic) is None:
            try:
                await cluster.have(self._topic, 1, CONFIG)
            except PenstockError as error:
                if error.kind is not ErrorKind.FORBIDDEN:
                    raise
                extra = {"topic": self._topic, "reason": error.message, "follows": "nothing is administered"}
                log.warning("documents cannot be kept", extra=extra)
                return
        self._table = CompactedTopic(
            cluster.admin, self._topic, self._changed, _format_of, failing=self._failing
        )
        await self._table.start()

    async def configs(self) -> Mapping[str, str]:
        """The configuration of the topic: retention as the brokers say, for none is set; empty if it may not be read."""
        try:
            return await self._cluster.admin.configs(self._topic)
        except PenstockError as error:
            log.info("what Kafka keeps by default is not known", extra={"reason": error.message})
            return {}

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        """All documents of a kind."""
        return dict(self._documents[kind])

    async def catch_up(self) -> None:
        """Learn what every process has stored until now; raises UNAVAILABLE."""
        if self._table is not None:
            await self._table.catch_up()

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        """Store documents, in order; an error may leave the first of them.

        They are not one transaction: a process that is killed within one would keep every process from reading on until
        Kafka ends it. So documents that are stored together must make sense without the last ones.

        Raises ALREADY_EXISTS if another process stored a document first whose kind is stored once, and NEWER_FORMAT
        instead of overwriting or deleting a document of an unknown version.
        """
        if self._table is None:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED, f"the server may not create {self._topic} in the cluster"
            )
        rows = [
            (self._row(kind, key, value), self._whole(kind, key, value)) for kind, key, value in documents
        ]
        await self._write(rows)
        lost = [
            (row, None)
            for row, value in rows
            if value is not None and _ONCE in row and self._rows.get(row.partition(_ONCE)[0]) != row
        ]
        if lost:
            await self._write(lost)
            raise PenstockError(ErrorKind.ALREADY_EXISTS, "another process has stored it meanwhile")

    async def _write(self, rows: Sequence[Row]) -> None:
        if rows and self._table is not None:
            await self._table.append(rows)

    def _whole(self, kind: str, key: str, document: bytes | None) -> bytes | None:
        """The document to store, with the unknown fields of the one that it replaces."""
        before = self._documents[kind].get(key)
        if isinstance(before, UnknownVersion):
            raise before.new_error()
        if document is None or kind not in self._fields:
            return document
        return with_unknown_fields(document, before, self._fields[kind])

    def _row(self, kind: str, key: str, value: bytes | None) -> str:
        """The key of a document's row. Of a kind that is stored once each row has its own: of several the first counts."""
        row = f"{kind}{_SEPARATOR}{key}"
        if kind not in self._once:
            return row
        return self._rows.get(row, row) if value is None else f"{row}{_ONCE}{secrets.token_hex(8)}"

    def _changed(self, rows: list[Row]) -> None:
        for row, value in rows:
            name, once, _ = row.partition(_ONCE)
            if once:
                if self._rows.get(name, row) != row:
                    continue
                if value is None:
                    self._rows.pop(name, None)
                else:
                    self._rows[name] = row
            kind, _, key = name.partition(_SEPARATOR)
            if value is None:
                self._documents[kind].pop(key, None)
            else:
                self._documents[kind][key] = value
            for listener in self.listeners[kind]:
                self.reader.read(kind, key, value, listener)

    def _failing(self, reason: str | None) -> None:
        """Report why no document can be read, so that changes of other processes are missed; None: they can be read."""
        if reason is None:
            self._failures.recovered(FailureKind.DOCUMENT, self._topic)
        else:
            self._failures.failed(FailureKind.DOCUMENT, self._topic, reason)

    async def close(self) -> None:
        """Read no more."""
        if self._table is not None:
            await self._table.close()


def _format_of(row: str) -> Format:
    return document_format(row.partition(_SEPARATOR)[0])


class KafkaProcessDocuments:
    """`ProcessDocuments`."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def start(self, learned: Learned) -> None:
        def read(id: str, document: bytes | None) -> None:
            learned(id, None if isinstance(document, UnknownVersion) else document)
            if isinstance(document, UnknownVersion):
                raise document.new_error()

        self._documents.reader.read_all(KIND, await self._documents.load_meta(KIND), read)
        self._documents.listeners[KIND].append(read)

    async def write(self, id: str, document: bytes) -> None:
        await self._documents.save_meta([(KIND, id, document)])

    async def remove(self, id: str, last: bytes = b"") -> None:
        await self._documents.save_meta([*([(KIND, id, last)] if last else []), (KIND, id, None)])

    async def catch_up(self) -> None:
        await self._documents.catch_up()

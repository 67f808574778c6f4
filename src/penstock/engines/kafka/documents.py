"""What Kafka has no place for, as documents of a compacted topic: namespaces, policies, schemas.

Every process reads all of them and hears of each change; of two that write one document at a time, the later one counts
everywhere.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .cluster import KafkaCluster
from .driver.compacted import CompactedTopic, Row

log = logging.getLogger(__name__)

_SEPARATOR: Final = "\0"
CONFIG: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class Documents:
    """`broker.MetaStore`. `listeners` are called, by the kind, with the keys and documents that changed."""

    def __init__(self, cluster: KafkaCluster, topic: str, replication: int) -> None:
        self.listeners: defaultdict[str, list[Callable[[str, bytes | None], None]]] = defaultdict(list)
        self._cluster = cluster
        self._topic = topic
        self._replication = replication
        self._documents: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._table: CompactedTopic | None = None

    async def start(self) -> None:
        """Read all documents; creates the topic. Raises UNAVAILABLE. Where it may not be created, nothing is kept."""
        admin = self._cluster.admin
        if await admin.describe(self._topic) is None:
            try:
                await admin.create(self._topic, 1, self._replication, CONFIG)
            except PenstockError as error:
                if error.kind is ErrorKind.FORBIDDEN:
                    log.warning(
                        "documents cannot be kept",
                        extra={
                            "topic": self._topic,
                            "reason": error.message,
                            "follows": "nothing is administered",
                        },
                    )
                    return
                if error.kind is not ErrorKind.ALREADY_EXISTS:  # another process was quicker
                    raise
        table = CompactedTopic(self._cluster.properties, self._topic, self._cluster.timeout_s, self._changed)
        self._table = table
        place = (self._topic, 0)
        await table.start((await admin.ends([place]))[place])

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        """All documents of a kind."""
        return dict(self._documents[kind])

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        """Store documents, in order; an error may leave the first of them."""
        if self._table is None:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED, f"the server may not create {self._topic} in the cluster"
            )
        if documents:
            await self._table.append([(f"{kind}{_SEPARATOR}{key}", value) for kind, key, value in documents])

    def _changed(self, rows: list[Row]) -> None:
        for row, value in rows:
            kind, _, key = row.partition(_SEPARATOR)
            if value is None:
                self._documents[kind].pop(key, None)
            else:
                self._documents[kind][key] = value
            for listener in self.listeners[kind]:
                listener(key, value)

    async def close(self) -> None:
        """Read no more."""
        if self._table is not None:
            await self._table.close()

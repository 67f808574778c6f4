"""The topics of staged publishing: what is staged, where it lies, and what was committed. Each is made when it is needed."""

from collections.abc import Callable, Mapping
from typing import Final

from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.compacted import CompactedTopic, Row
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.internal import COMMITS, PARTS, STAGED
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import Format

PARTITIONS: Final = 8  # of what is staged
WAIT_MS: Final = 50  # until it is known that a table ends with the marker of a transaction
SEGMENT_MS: Final = 3_600_000
SEGMENT_BYTES: Final = 128 << 20
_TABLE: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


class Space:
    """Names begin with `prefix`; what is staged goes `timeout_ms` after it came."""

    def __init__(self, cluster: KafkaCluster, prefix: str, timeout_ms: int, message_bytes_max: int) -> None:
        self.cluster = cluster
        self.entries = prefix + STAGED  # the entries of parts
        self.parts = prefix + PARTS  # the positions of the parts' entries
        self.commits = prefix + COMMITS  # written in the transactions of the batches
        self.transactional_prefix = f"{prefix}-"
        self._timeout_ms = timeout_ms
        self._message_bytes_max = message_bytes_max

    async def create(self) -> None:
        """Make the topics that are missing. Raises UNAVAILABLE, also where this server may not."""
        await self._create(self.parts, 1, _TABLE)
        await self._create(self.commits, 1, _TABLE)
        entries = {
            "cleanup.policy": "delete",
            "retention.ms": str(2 * self._timeout_ms),  # no part of a batch is gone before the batch
            "retention.bytes": "-1",
            "segment.ms": str(max(60_000, min(self._timeout_ms, SEGMENT_MS))),
            "segment.bytes": str(SEGMENT_BYTES),
            "max.message.bytes": str(self._message_bytes_max + (64 << 10)),
        }
        await self._create(self.entries, PARTITIONS, entries)

    async def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        admin = self.cluster.admin
        try:
            if await admin.describe(topic) is not None:
                return
            await admin.create(topic, partitions, self.cluster.settings.replication_factor, config)
        except PenstockError as error:
            if error.kind is ErrorKind.FORBIDDEN:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE,
                    f"this server needs the topic {topic} for what is staged: {error.message}",
                ) from None
            if error.kind is not ErrorKind.ALREADY_EXISTS:  # another process was quicker
                raise
        await admin.created(topic, self.cluster.timeout_s)

    async def start_table(
        self, topic: str, changed: Callable[[list[Row]], None], format: Format
    ) -> CompactedTopic:
        """Read one of the two tables, and follow it. Raises UNAVAILABLE."""
        clients, timeout_s = self.cluster.clients, self.cluster.timeout_s
        table = CompactedTopic(clients, topic, timeout_s, changed, lambda _: format, WAIT_MS)
        place: At = (topic, 0)
        try:
            await table.start((await self.cluster.admin.ends([place]))[place])
        except BaseException:
            await table.close()
            raise
        return table

    async def catch_up(self, table: CompactedTopic, topic: str) -> None:
        """Know all that is in a table now. What lies behind an open transaction is waited for. Raises UNAVAILABLE."""
        place: At = (topic, 0)
        await table.reached((await self.cluster.admin.last_ends([place]))[place])

"""The writers of staged batches: whose they are, and what they committed last, in a table that transactions are written to.

What a writer's rows say changes in a transaction under the writer's own id. Whoever begins one reads the table to its end
first. If it commits, no other producer of the writer was opened meanwhile: what was read was all that there is.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from penstock.engines.kafka.driver.compacted import CompactedTopic, Row
from penstock.engines.kafka.driver.transactions import Transaction, Transactions
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.shared.versions import UnknownVersion
from penstock.engines.staging.writers import Claimed, KnownWriter
from penstock.model.formats import COMMITS
from penstock.model.stage import Commit, Target, Targets, Writer
from penstock.runtime.clock import Clock

from .committing import Changes, KafkaSession
from .parts import KafkaParts
from .space import Space

log = logging.getLogger(__name__)

# While a transaction is open, readers of its topics see nothing behind its first record: it is as short as its size allows, in
# steps, as a producer that is kept has the time that it was opened with.
STEP_MS: Final = 60_000
STEP_BYTES: Final = 60_000_000
FORGET_MS: Final = 3_600_000  # a writer whose commits are not to be kept

_keys: Final = msgspec.json.Decoder(
    tuple[str, Targets | None]
)  # a writer, and a set of topics; None: whose it is
_claims: Final = msgspec.json.Decoder(Claimed)
_commits: Final = msgspec.json.Decoder(Commit)


class KafkaWriters:
    """`staging.Writers`: every process has the table of all of them."""

    touch_ms = 0

    def __init__(
        self,
        space: Space,
        transactions: Transactions,
        parts: KafkaParts,
        topics: KafkaTopics,
        publishing: Publishing,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self._space = space
        self._transactions = transactions
        self._appending = parts, topics, publishing
        self._clock = clock
        self._forget_ms = max(timeout_ms, FORGET_MS)
        self._known: dict[str, KnownWriter] = {}
        self._newer: dict[str, dict[str, UnknownVersion]] = {}  # by writer: rows of unknown versions
        self._table: CompactedTopic | None = None

    async def start(self) -> None:
        self._table = await self._space.start_table(self._space.commits, self._changed, COMMITS)

    async def close(self) -> None:
        self._transactions.close()
        if self._table is not None:
            await self._table.close()

    async def sweep(self) -> None:
        self._transactions.sweep()

    def _changed(self, rows: list[Row]) -> None:
        for row, value in rows:
            if isinstance(value, UnknownVersion):
                self._note_unknown(row, value)
                continue
            name, targets = _keys.decode(row)
            newer = self._newer.get(name, {})
            newer.pop(row, None)
            if not newer:
                self._newer.pop(name, None)
            if value is None:
                self._apply(name, targets, None)
            else:
                self._apply(name, targets, (_claims if targets is None else _commits).decode(value))

    def _note_unknown(self, row: str, value: UnknownVersion) -> None:
        """Keep a row of an unknown version, so that its writer is refused."""
        try:
            name, _ = _keys.decode(row)
        except msgspec.DecodeError:
            name = ""  # the key cannot be decoded either
        if name not in self._newer:
            log.error("a staged commit has an unknown version", extra={"reason": value.error.message})
        self._newer.setdefault(name, {})[row] = value

    def _apply(self, name: str, targets: Targets | None, value: Any) -> None:
        known = self._known.setdefault(name, KnownWriter(name))
        if targets is None:
            known.claimed = value
        elif value is None:
            known.commits.pop(targets, None)
        else:
            known.commits[targets] = value
        if not known.exists:
            del self._known[name]

    async def _catch_up(self) -> None:
        """Know what all processes have committed until now. Raises UNAVAILABLE."""
        assert self._table is not None, "it was started"
        await self._space.catch_up(self._table, self._space.commits)

    def check(self, name: str) -> None:
        """Raise NEWER_FORMAT if the writer has rows of unknown versions."""
        for unknown in self._newer.get(name, {}).values():
            raise unknown.new_error()

    # -- what there is

    async def recall(self, name: str) -> Writer | None:
        self.check(name)
        known = self._known.get(name)
        return None if known is None else known.writer

    async def find(self, name: str) -> tuple[Writer, Sequence[Target]] | None:
        await self._catch_up()
        self.check(name)
        known = self._known.get(name)
        return None if known is None else (known.writer, known.targets)

    async def listed(
        self, after: str, owner: str | None, writers_max: int
    ) -> AsyncIterator[tuple[Writer, Sequence[Target]]]:
        await self._catch_up()
        for newer in sorted(self._newer):
            self.check(newer)
        for known in sorted(self._known.values(), key=lambda known: known.name):
            writer = known.writer
            if known.name > after and owner in (None, writer.owner):
                yield writer, known.targets

    async def idle(self) -> Sequence[Writer]:
        before = self._clock.now_ms() - self._forget_ms
        writers = [known.writer for name, known in self._known.items() if name not in self._newer]
        return [writer for writer in writers if not writer.keep and writer.at < before]

    # -- changes

    @asynccontextmanager
    async def open(self, name: str, size_bytes: int) -> AsyncIterator[KafkaSession]:
        self.check(name)  # before a newer process is fenced off
        own_id = self._space.transactional_prefix + name
        timeout_ms = STEP_MS * (1 + size_bytes // STEP_BYTES)

        def applied(changes: Changes) -> None:
            # Nobody else can have changed these rows since they were read: they need not be read back.
            for targets, value in changes.items():
                self._apply(name, targets, value)

        async with Transaction(self._transactions, own_id, timeout_ms) as transaction:
            await self._catch_up()
            self.check(name)
            known = self._known.get(name) or KnownWriter(name)
            commits = self._space.commits
            session = KafkaSession(name, known, transaction, commits, *self._appending, applied)
            yield session
            await session.end()

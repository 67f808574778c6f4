"""The writers of staged batches: whose they are, and what they committed last, in a table that transactions are written to.

What a writer's rows say changes in a transaction under the writer's own id. Whoever begins one reads the table to its end
first. If it commits, no other producer of the writer was opened meanwhile: what was read was all that there is.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from penstock.broker.staging import Caller
from penstock.engines.kafka.driver.compacted import CompactedTopic, Row
from penstock.engines.kafka.driver.record import At, NewRecord
from penstock.engines.kafka.driver.transactions import Interrupted, Transaction, Transactions
from penstock.engines.shared.versions import UnknownVersion
from penstock.engines.shared.writers import Claimed, KnownWriter
from penstock.model.formats import COMMITS
from penstock.model.stage import Commit, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .space import Space

T = TypeVar("T")

log = logging.getLogger(__name__)

# While a transaction is open, readers of its topics see nothing behind its first record: it is as short as its size allows, in
# steps, as a producer that is kept has the time that it was opened with.
STEP_MS: Final = 60_000
STEP_BYTES: Final = 60_000_000
PAUSE_S: Final = 0.3
ATTEMPTS: Final = 4  # at what another process gets in the way of

_keys: Final = msgspec.json.Decoder(
    tuple[str, Targets | None]
)  # a writer, and a set of topics; None: whose it is
_claims: Final = msgspec.json.Decoder(Claimed)
_commits: Final = msgspec.json.Decoder(Commit)


class Writers:
    """A change to a writer holds its lock."""

    def __init__(self, space: Space, transactions: Transactions, clock: Clock) -> None:
        self._space = space
        self._transactions = transactions
        self._clock = clock
        self._random = Random()
        self._locks: Locks[str] = Locks()
        self._known: dict[str, KnownWriter] = {}
        self._newer: dict[str, dict[str, UnknownVersion]] = {}  # by writer: rows of unknown versions
        self._table: CompactedTopic | None = None

    async def start(self) -> None:
        """Read the table; raises UNAVAILABLE."""
        table = self._space.table(self._space.commits, self._changed, COMMITS)
        self._table = table
        place: At = (self._space.commits, 0)
        await table.start((await self._space.cluster.admin.ends([place]))[place])

    async def close(self) -> None:
        """Read no more."""
        if self._table is not None:
            await self._table.close()

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
        known = self._known.get(name)
        if known is None:
            if value is None:
                return
            known = self._known[name] = KnownWriter(name)
        if targets is None:
            known.claimed = value
        elif value is None:
            known.commits.pop(targets, None)
        else:
            known.commits[targets] = value
        if known.claimed is None and not known.commits:
            del self._known[name]

    # -- what there is, as far as it was read

    @property
    def names(self) -> list[str]:
        """The names of all writers, in their order."""
        return sorted(self._known)

    @property
    def newer(self) -> list[str]:
        """The writers that have rows of unknown versions."""
        return sorted(self._newer)

    def check(self, name: str) -> None:
        """Raise NEWER_FORMAT if the writer has rows of unknown versions."""
        for unknown in self._newer.get(name, {}).values():
            raise unknown.new_error()

    def known(self, name: str) -> KnownWriter | None:
        """A writer; None where there is none."""
        return self._known.get(name)

    async def catch_up(self) -> None:
        """Know what all processes have committed until now. Raises UNAVAILABLE."""
        assert self._table is not None, "it was started"
        await self._space.catch_up(self._table, self._space.commits)

    # -- changes

    def hold(self, writer: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Have a writer for a while; not to be asked for again meanwhile."""
        return self._locks.hold(writer)

    async def alone(self, writer: str, work: Callable[[Transaction], Awaitable[T]], size_bytes: int = 0) -> T:
        """Do something that no other process does at the same time, while holding the lock; retried if another process
        did. Raises NEWER_FORMAT."""
        self.check(writer)  # before a newer process is fenced off
        timeout_ms = STEP_MS * (1 + size_bytes // STEP_BYTES)
        for left in reversed(range(ATTEMPTS)):
            try:
                async with self._opened(writer, timeout_ms) as transaction:
                    return await work(transaction)
            except Interrupted:
                if not left:
                    raise
                # Lest two processes that want the same writer go on in step.
                await asyncio.sleep(self._random.uniform(0, PAUSE_S))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.asynccontextmanager
    async def _opened(self, writer: str, timeout_ms: int) -> AsyncIterator[Transaction]:
        own_id = self._space.transactional_prefix + writer
        async with Transaction(self._transactions, own_id, timeout_ms) as transaction:
            await self.catch_up()
            self.check(writer)
            yield transaction

    async def commit(
        self, writer: str, transaction: Transaction, changes: Mapping[Targets | None, Claimed | Commit | None]
    ) -> None:
        """Change a writer's rows with the end of a transaction, and commit it; None: a row counts no more."""
        rows = [
            NewRecord(
                None if value is None else msgspec.json.encode(value),
                msgspec.json.encode((writer, targets)),
                None if value is None else COMMITS.headers(),
            )
            for targets, value in changes.items()
        ]
        await transaction.send((self._space.commits, 0), rows)
        await transaction.commit()
        # Nobody else can have changed them since they were read: they need not be read back.
        for targets, value in changes.items():
            self._apply(writer, targets, value)

    async def claim(self, writer: str, caller: Caller) -> None:
        """Make sure that a writer is the caller's, durably. Raises FORBIDDEN for another role's."""
        if not self.unclaimed(writer, caller):
            return

        async def claim(transaction: Transaction) -> None:
            if self.unclaimed(writer, caller):
                await self.commit(writer, transaction, {None: self.claim_of(caller)})

        async with self.hold(writer):
            if self.unclaimed(writer, caller):
                await self.alone(writer, claim)

    def unclaimed(self, writer: str, caller: Caller) -> bool:
        """Whether the caller should claim a writer that has no owner yet. Raises FORBIDDEN for another role's, NEWER_FORMAT."""
        self.check(writer)
        known = self._known.get(writer)
        if known is None:
            return True
        caller.check(known.writer)
        return known.claimed is None or (bool(caller.role) and not known.writer.owner)

    def claim_of(self, caller: Caller) -> Claimed:
        """What makes a writer the caller's."""
        return Claimed(caller.role, caller.origin, self._clock.now_ms())

    async def forget(self, writer: str) -> None:
        """Remove a writer."""

        async def remove(transaction: Transaction) -> None:
            known = self._known.get(writer)
            if known is not None:
                await self.commit(writer, transaction, {None: None, **dict.fromkeys(known.commits)})

        await self.alone(writer, remove)


def expired(writer: Writer, before: int) -> bool:
    """Whether a writer needs to be known no more: it did nothing since `before` (ms) that is to be kept."""
    return not writer.keep and writer.at < before

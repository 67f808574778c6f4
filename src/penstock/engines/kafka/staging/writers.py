"""The writers of staged batches: whose they are, and what they committed last, in a table that transactions are written to.

A writer's rows change in a transaction under the writer's own id. The process that begins one reads the table to its end
first. If it commits, no other producer of the writer was opened in between: it had read everything.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Expected
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.driver.record import At, NewRecord
from penstock.engines.kafka.driver.shared_log import CompactedTopic, Row
from penstock.engines.kafka.driver.transactions import Transaction, Transactions
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.shared.documents import UnknownVersion
from penstock.engines.staging.commits import counts_of
from penstock.engines.staging.ports import Over
from penstock.engines.staging.staging import Staging
from penstock.engines.staging.writers import Claimed, KnownWriter
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import COMMITS
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .parts import KafkaParts, Space, Staged

Changes = dict[Targets | None, Claimed | Commit | None]

SHOWN_S: Final = 10.0  # brokers take milliseconds
AGAIN_S: Final = 0.01  # poll interval: brokers send no notice

log = logging.getLogger(__name__)


# While a transaction is open, readers of its topics see nothing behind its first record: it is as short as its size allows, in
# steps, as a producer that is kept has the time that it was opened with.
STEP_MS: Final = 60_000
STEP_BYTES: Final = 60_000_000
FORGET_MS: Final = 3_600_000  # a writer whose commits are not to be kept
SWEEP_MS: Final = 60_000


class KafkaSession:
    """`staging.Session`: a transaction under the writer's own id, whose last records are the changed rows of the writer.

    `known` is what the table of commits says; `applied` is called with the rows, by sets of topics, once they are committed.
    A row None counts no more; that of the set None says whose the writer is.
    """

    def __init__(
        self,
        name: str,
        known: KnownWriter,
        transaction: Transaction,
        table: str,
        parts: KafkaParts,
        topics: KafkaTopics,
        publishing: Publishing,
        applied: Callable[[Changes], None],
    ) -> None:
        self._name = name
        self._known = known
        self._transaction = transaction
        self._table = table
        self._parts = parts
        self._topics = topics
        self._publishing = publishing
        self._applied = applied
        self._admitted: dict[str, KafkaTopic] = {}
        self._changes: Changes = {}

    @property
    def writer(self) -> Writer | None:
        return self._known.writer if self._known.exists else None

    async def last(self, targets: Targets) -> Commit | None:
        return self._known.commits.get(targets)

    async def targets(self) -> Sequence[Target]:
        return self._known.targets

    async def claim(self, writer: Writer) -> None:
        self._changes[None] = Claimed(writer.owner, writer.origin, writer.at)

    async def admit(self, name: TopicName, ledger: int) -> None:
        topic = await self._topics.get(name, create=False)
        topic.check_open()
        self._admitted[str(name)] = topic

    async def append(
        self,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        over: Over[Staged],
        tried: list[Commit],
    ) -> Commit:
        copying = _Copying(self._transaction, self._admitted, self._publishing, wanted.at)
        for each in stages:
            for attempt, part in held.parts_of(each.stage):
                async for name, entries in self._parts.entries_of(attempt, part):
                    await copying.append(name, entries)
        spans = await copying.spans()
        if counts_of(spans) != counts_of(held.won(stages)):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, "what is staged is not what was counted")
        made = msgspec.structs.replace(wanted, spans=spans)
        self._changes[made.topics] = made
        tried.append(made)
        await self.end()
        await copying.shown()
        return made

    async def repeat(self, commit: Commit, over: Over[Staged]) -> None:
        self._changes[commit.topics] = commit

    async def ledger_of(self, name: TopicName) -> int | None:
        return (await self._topics.get(name, create=False)).ledger

    async def forget(self, targets: Targets | None) -> bool:
        if targets is None:
            self._changes = {None: None, **dict.fromkeys(self._known.commits)} if self._known.exists else {}
        elif targets in self._known.commits:
            self._changes[targets] = None
        return bool(self._changes)

    async def end(self) -> None:
        """Commit the changes, if there are any."""
        if not self._changes:
            return
        rows = [
            NewRecord(
                None if value is None else msgspec.json.encode(value),
                msgspec.json.encode((self._name, targets)),
                None if value is None else COMMITS.headers(),
            )
            for targets, value in self._changes.items()
        ]
        await self._transaction.send((self._table, 0), rows)
        await self._transaction.commit()
        self._applied(self._changes)
        self._changes = {}


class _Copying:
    """Entries of a commit on their way to its topics."""

    def __init__(
        self, transaction: Transaction, topics: dict[str, KafkaTopic], publishing: Publishing, at: int
    ) -> None:
        self._transaction = transaction
        self._topics = topics
        self._publishing = publishing
        self._at = at
        self._counts: dict[At, tuple[KafkaTopic, list[int]]] = {}  # entries, messages and bytes

    async def append(self, name: str, entries: Sequence[NewEntry]) -> None:
        """Send entries to a topic or partition, each message as a record."""
        topic = self._topics[name]
        at = topic.place.topic, topic.place.partition
        records: list[NewRecord] = []
        messages = size = 0
        for entry in entries:
            entry.publish_time = self._at
            if entry.deliver_at:
                await self._publishing.check_delay(topic.place.topic, entry.deliver_at, self._at)
            made = await self._publishing.records_of(topic.name, entry, numbered=False)
            records += made
            messages += entry.count
            size += len(entry.data)
        _, counts = self._counts.setdefault(at, (topic, [0, 0, 0]))
        counts[0] += len(records)
        counts[1] += messages
        counts[2] += size
        await self._transaction.send(at, records)

    async def spans(self) -> tuple[Span, ...]:
        """The sent records, when all of them are stored."""
        await self._transaction.flush()
        found = []
        for at, (topic, (entries, messages, size)) in self._counts.items():
            stored = self._transaction.stored[at]
            last = topic.ledger, stored.last
            found.append(
                Span(str(topic.name), topic.ledger, stored.first, entries, stored.first, messages, size, last)
            )
        return tuple(found)

    async def shown(self) -> None:
        """It was committed: return when readers find it. Brokers answer a commit before its marker is in every partition. What
        lies behind an open transaction of another client is not waited for."""
        try:
            async with asyncio.timeout(SHOWN_S):
                await asyncio.gather(*map(self._shown, self._counts))
        except TimeoutError:
            log.warning("what was committed is not shown by the brokers yet")
        for topic, (_, messages, size) in self._counts.values():
            topic.published(messages, size, 0)

    async def _shown(self, at: At) -> None:
        topic, first = self._counts[at][0], self._transaction.stored[at].first
        try:
            end = await topic.end_now()
            while end == first:
                await asyncio.sleep(AGAIN_S)
                end = await topic.end_now()
            topic.stored(end)
        except PenstockError as error:  # it is committed all the same
            log.warning("where %s ends is not known: %s", topic.name, error.message)


# A writer, and a set of topics; None: whose it is.
_keys: Final = msgspec.json.Decoder(tuple[str, Targets | None])
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
        await self._table.catch_up(committed=False)

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
            # No other process can have changed these rows since they were read: they need not be read back.
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


def open_staging(
    cluster: KafkaCluster,
    own: BrokerSettings,
    publishing: Publishing,
    fetcher: Fetcher,
    topics: KafkaTopics,
    clock: Clock,
    tasks: Tasks,
) -> Staging[Staged]:
    """Staging of a server; nothing is asked of the cluster yet."""
    settings, timeout_ms = cluster.settings, own.stage_timeout_ms
    space = Space(cluster, settings.documents_topic, timeout_ms, own.max_message_bytes)
    transactions = Transactions(
        cluster.clients,
        compression=settings.compression,
        message_bytes_max=own.max_message_bytes,
        timeout_s=cluster.timeout_s,
    )
    parts = KafkaParts(space, publishing.records, fetcher, clock)
    writers = KafkaWriters(space, transactions, parts, topics, publishing, clock, timeout_ms)
    return Staging(parts, writers, clock, tasks, timeout_ms=timeout_ms, sweep_ms=SWEEP_MS)

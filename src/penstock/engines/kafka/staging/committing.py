"""Commits of batches: what is staged goes to its topics in one transaction, with the row that says so."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.staging import Expected
from penstock.engines.kafka.driver.record import At, NewRecord
from penstock.engines.kafka.driver.transactions import Transaction
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.staging.commits import counts_of
from penstock.engines.staging.ports import Over
from penstock.engines.staging.writers import Claimed, KnownWriter
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import COMMITS
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Target, Targets, Writer

from .parts import KafkaParts, Staged

Changes = dict[Targets | None, Claimed | Commit | None]

SHOWN_S: Final = 10.0  # brokers take milliseconds
AGAIN_S: Final = 0.01  # between two looks: brokers tell nobody

log = logging.getLogger(__name__)


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
        """What was sent, when all of it is stored."""
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
        lies behind an open transaction of somebody else's is not waited for."""
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

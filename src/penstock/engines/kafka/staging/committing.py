"""Commits of batches: what is staged goes to its topics in one transaction, with the row that says so."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.broker.staging import Caller, Expected
from penstock.engines.kafka.driver.record import At, NewRecord
from penstock.engines.kafka.driver.transactions import Transaction
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.shared.batches import (
    below,
    check_targets,
    counts_of,
    deleted_since,
    digest_of,
    skipped,
    superseded,
)
from penstock.engines.shared.staged import repeated
from penstock.engines.shared.writers import Claimed
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Targets
from penstock.runtime.clock import Clock

from .parts import Parts, Staged
from .writers import Writers

SHOWN_S: Final = 10.0  # brokers take milliseconds
AGAIN_S: Final = 0.01  # between two looks: brokers tell nobody
_GONE: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.BAD_PARAMETER)

log = logging.getLogger(__name__)


class Committing:
    """For one who holds the writer's lock."""

    def __init__(
        self, writers: Writers, parts: Parts, topics: KafkaTopics, publishing: Publishing, clock: Clock
    ) -> None:
        self._writers = writers
        self._parts = parts
        self._topics = topics
        self._publishing = publishing
        self._clock = clock

    async def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        caller: Caller,
        targets: Targets,
        *,
        keep: bool,
    ) -> tuple[Commit, bool]:
        """As `broker.Staging.commit`."""
        wanted = Commit(writer, batch, self._clock.now_ms(), targets, keep, digest_of(stages))
        tried: list[Commit] = []

        async def attempt(transaction: Transaction) -> tuple[Commit, bool]:
            known = self._writers.known(writer)
            if known is not None:
                caller.check(known.writer)
            commits = {} if known is None else known.commits
            last = commits.get(targets)
            if last is not None and last in tried:
                return last, True  # an attempt before was committed, and its answer got lost
            if last is not None and batch < last.batch:
                raise below(last, batch, targets)
            held = self._parts.batch(writer, batch)
            if last is not None and batch == last.batch:
                return await self._repeated(transaction, last, held, stages), False
            if last is None:
                check_targets(writer, len(commits))
            return await self._append(transaction, wanted, held, stages, caller, tried), True

        await self._parts.catch_up()
        size = sum(each.size_bytes for each in stages)
        made, new = await self._writers.alone(writer, attempt, size)
        if new:
            await self._clear(writer, batch, [each.stage for each in stages], targets)
        return made, new

    async def _append(
        self,
        transaction: Transaction,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        caller: Caller,
        tried: list[Commit],
    ) -> Commit:
        """Append what the stages hold; `tried` gets the commit before it is known to be one."""
        shares = held.won(stages)
        topics: dict[str, KafkaTopic] = {}
        for name in [TopicName.parse(text) for text in sorted({share.topic for share in shares})]:
            caller.may_produce(name)
            topic = await self._topics.get(name, create=False)
            topic.check_open()
            topics[str(name)] = topic
        changes: dict[Targets | None, Claimed | Commit] = {}
        if self._writers.unclaimed(wanted.writer, caller):
            changes[None] = self._writers.claim_of(caller)
        copying = _Copying(transaction, topics, self._publishing, wanted.at)
        for each in stages:
            for attempt, part in held.parts_of(each.stage):
                async for name_, entries in self._parts.entries_of(attempt, part):
                    await copying.append(name_, entries)
        spans = await copying.spans()
        if counts_of(spans) != counts_of(shares):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, "what is staged is not what was counted")
        made = msgspec.structs.replace(wanted, spans=spans)
        changes[wanted.topics] = made
        tried.append(made)
        await self._writers.commit(wanted.writer, transaction, changes)
        await copying.shown()
        return made

    async def _repeated(
        self, transaction: Transaction, last: Commit, held: Staged, stages: Sequence[Expected]
    ) -> Commit:
        """The last commit again. Raises BATCH_CONFLICT where something else is staged, or its topics are gone."""
        targets = last.topics or ()
        await self._check_there(last, targets)
        again, there = repeated(last, targets, held, stages)
        if again is not last:
            await self._writers.commit(last.writer, transaction, {last.topics: again})
            await self._clear(last.writer, last.batch, there, targets)
        skipped(again, targets)
        return again

    async def _check_there(self, last: Commit, targets: Targets) -> None:
        """Raise BATCH_CONFLICT unless each topic that the commit appended to still exists: else its messages are gone."""
        gone: set[str] = set()
        for span in last.spans:
            name = TopicName.parse(span.topic)
            try:
                topic = await self._topics.get(name, create=False)
            except PenstockError as error:
                if error.kind not in _GONE:
                    raise
                gone.add(str(name.base))
            else:
                if topic.ledger != span.ledger:
                    gone.add(str(name.base))
        if gone:
            raise deleted_since(last, targets, gone)

    async def _clear(self, writer: str, batch: int, taken: Sequence[str], targets: Targets) -> None:
        """Drop the stages that a commit took, and those for its topics that no commit will take. What fails here goes when its
        time is over."""
        try:
            over = superseded(self._parts.batch(writer, batch).batch, taken, targets)
            await self._parts.drop(writer, batch, over)
        except PenstockError as error:
            log.warning("batch %d of writer %s could not be cleared away: %s", batch, writer, error.message)


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

"""Staged publishing over Kafka's transactions (docs/decisions/0067).

What is staged lies in a topic that nobody else reads. A commit copies it to its topics in one transaction, with a row that says
what was committed: the row is seen if the messages are, whatever ends when.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeVar

from penstock.broker.staging import Caller, Expected, WriterState
from penstock.broker.topic import Topic
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.driver.producer import RecordProducer
from penstock.engines.kafka.driver.transactions import Transaction, Transactions
from penstock.engines.kafka.publishing import Publishing
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.shared.batches import declared, names_of, no_commit
from penstock.engines.shared.staged import no_writer, runs_of, still_staging, to_abort
from penstock.model.entry import NewEntry
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks, outcome

from .committing import Committing
from .parts import Parts
from .space import Space
from .writers import Writers, expired

T = TypeVar("T")

SWEEP_MS: Final = 60_000
FORGET_MS: Final = 3_600_000  # a writer whose commits are not to be kept

log = logging.getLogger(__name__)


class Staging:
    """`broker.Staging`. `entries` appends without a stage. What is staged is dropped `timeout_ms` after the last of its batch."""

    def __init__(
        self,
        space: Space,
        transactions: Transactions,
        records: RecordProducer,
        fetcher: Fetcher,
        topics: KafkaTopics,
        publishing: Publishing,
        clock: Clock,
        tasks: Tasks,
        timeout_ms: int,
    ) -> None:
        self._space = space
        self._transactions = transactions
        self._clock = clock
        self._tasks = tasks
        self._timeout_ms = timeout_ms
        self._parts = Parts(space, records, fetcher, clock)
        self._writers = Writers(space, transactions, clock)
        self._committing = Committing(self._writers, self._parts, topics, publishing, clock)
        self._starting = asyncio.Lock()
        self._started = False
        self._swept_ms = clock.monotonic_ms()

    async def _start(self) -> None:
        """Have the topics, and know what is in the tables: at the first use, as most servers never need it."""
        async with self._starting:
            if self._started:
                return
            await self._space.create()
            try:
                await self._parts.start()
                await self._writers.start()
            except BaseException:
                await self._parts.close()
                await self._writers.close()
                raise
            self._started = True

    async def close(self) -> None:
        """Leave all topics; what is staged stays."""
        self._transactions.close()
        await self._parts.close()
        await self._writers.close()

    async def sweep(self) -> None:
        """Drop what is too old, now and then."""
        now = self._clock.monotonic_ms()
        if not self._started or now < self._swept_ms + SWEEP_MS:
            return
        self._swept_ms = now
        self._transactions.sweep()
        try:
            before = self._clock.now_ms() - self._timeout_ms
            await self._parts.expire(before)
            await self._parts.trim()
            for name in self._writers.names:
                known = self._writers.known(name)
                if name in self._writers.newer:
                    continue
                if known is not None and expired(known.writer, min(before, self._clock.now_ms() - FORGET_MS)):
                    async with self._writers.hold(name):
                        await self._writers.forget(name)
        except PenstockError as error:
            log.warning("what is staged could not be swept: %s", error.message)

    # -- what there is

    async def writer(self, name: str, caller: Caller) -> WriterState | None:
        await self._catch_up()
        self._writers.check(name)
        self._parts.check(name)
        known = self._writers.known(name)
        if known is None:
            return None
        caller.check_own(known.writer)
        return self._state(known.writer, known.targets)

    def _state(self, writer: Writer, targets: Sequence[Target]) -> WriterState:
        batches = {
            number: staged.batch.shown() for number, staged in self._parts.batches(writer.name).items()
        }
        return WriterState(writer, targets, batches, self._parts.size_of(writer.name))

    async def writers(self, caller: Caller, after: str, writers_max: int) -> tuple[list[WriterState], bool]:
        await self._catch_up()
        for newer in self._writers.newer:
            self._writers.check(newer)
        found: list[WriterState] = []
        for name in self._writers.names:
            known = self._writers.known(name)
            if name <= after or known is None:
                continue
            if caller.role and not caller.superuser and known.writer.owner != caller.role:
                continue
            if len(found) == writers_max:
                return found, True
            found.append(self._state(known.writer, known.targets))
        return found, False

    async def _catch_up(self) -> None:
        await self._start()
        await self._parts.catch_up()
        await self._writers.catch_up()

    # -- staging

    async def stage(
        self,
        key: StageKey,
        part: int,
        checksum: int,
        entries: Sequence[tuple[Topic, Sequence[NewEntry]]],
        caller: Caller,
    ) -> None:
        runs = runs_of(entries)
        if runs:
            await self._start()
            await self._writers.claim(key.writer, caller)
            await self._parts.put(key, part, checksum, runs)

    # -- committing

    async def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        caller: Caller,
        *,
        topics: Sequence[TopicName] = (),
        keep: bool = True,
    ) -> tuple[Commit, bool]:
        targets = declared(topics, caller)
        await self._start()
        work = self._commit(writer, batch, stages, caller, targets, keep=keep)
        return await outcome(self._tasks, work, f"commit batch {batch} of {writer}")

    async def _commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        caller: Caller,
        targets: Targets,
        *,
        keep: bool,
    ) -> tuple[Commit, bool]:
        async with self._writers.hold(writer):
            return await self._committing.commit(writer, batch, stages, caller, targets, keep=keep)

    async def abort(self, writer: str, batch: int, caller: Caller, stage: str | None = None) -> int:
        await self._catch_up()
        async with self._writers.hold(writer):
            known = self._writers.known(writer)
            if known is not None:
                caller.check(known.writer)
            held = self._parts.batch(writer, batch)
            targets = [] if known is None else known.targets
            names = to_abort(writer, batch, held.batch, stage, targets, caller)
            if names:
                await self._parts.drop(writer, batch, names)
            return len(names)

    async def forget(
        self, writer: str, caller: Caller, topics: Sequence[TopicName] | None = None, *, force: bool = False
    ) -> None:
        await self._catch_up()
        work = self._forget(writer, caller, None if topics is None else names_of(topics), force=force)
        await outcome(self._tasks, work, f"forget {writer}")

    async def _forget(self, writer: str, caller: Caller, topics: Targets | None, *, force: bool) -> None:
        async with self._writers.hold(writer):
            known = self._writers.known(writer)
            if known is None:
                raise no_writer(writer)
            caller.check_own(known.writer)
            if topics is None:
                await self._drop_all(writer, force=force)
                return await self._writers.forget(writer)

            async def forget(transaction: Transaction) -> None:
                now = self._writers.known(writer)
                if now is None or topics not in now.commits:
                    raise no_commit(writer, topics)
                await self._writers.commit(writer, transaction, {topics: None})

            await self._writers.alone(writer, forget)

    async def _drop_all(self, writer: str, *, force: bool) -> None:
        self._parts.check(writer)
        batches = dict(self._parts.batches(writer))
        if batches and not force:
            raise still_staging(writer, len(batches), self._parts.size_of(writer))
        for batch, staged in batches.items():
            await self._parts.drop(writer, batch, staged.stages)

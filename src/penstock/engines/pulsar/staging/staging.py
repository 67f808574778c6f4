"""Staged publishing over the cluster's transactions (docs/decisions/0062).

What is staged lies in topics that nobody else reads. A commit copies it to its topics in one transaction, with a record
in the log of the writer: so the record says whether the batch is there, whatever ends when.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from penstock.broker.staging import Caller, Expected, StagedBatch, WriterState
from penstock.broker.topic import Topic
from penstock.client.aio.context import Context
from penstock.client.entries.transactions import Transactions
from penstock.client.errors import PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.shared.batches import declared, names_of, no_commit
from penstock.engines.shared.staged import no_writer, runs_of, still_staging, to_abort
from penstock.model.entry import NewEntry
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Targets
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks, outcome

from .committing import Committing
from .log import WriterLog
from .part_writers import PartWriters
from .parts import Staged, read_batch
from .records import Forgot
from .space import StagingSpace
from .splitting import check_splits
from .writers import Writers

T = TypeVar("T")


class Staging:
    """`broker.Staging`. `publishing` appends without a stage; `context` has the connections for the caller that is served."""

    def __init__(
        self,
        space: StagingSpace,
        topics: PulsarTopics,
        schemas: Schemas,
        context: Callable[[], Context],
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        transactions = Transactions(space.cluster.context)
        self._space = space
        self._tasks = tasks
        self._writers = Writers(space, transactions, clock)
        self._parts = PartWriters(space, clock)
        self._committing = Committing(
            space, transactions, self._writers, self._parts, topics, schemas, context, clock
        )

    async def sweep(self) -> None:
        """Leave topics that are not in use."""
        await self._writers.sweep()
        await self._parts.sweep()

    async def close(self) -> None:
        """Leave all topics; what is staged stays."""
        await asyncio.gather(self._parts.close(), self._writers.close())

    # -- what there is

    async def writer(self, name: str, caller: Caller) -> WriterState | None:
        state = await self._asked(self._writers.state(name))
        if state is None:
            return None
        caller.check_own(state.writer)
        found = {batch: await self._read(name, batch) for batch in await self._space.batches(name)}
        held = {number: staged.batch for number, staged in found.items() if staged.stages}
        batches = {number: batch.shown() for number, batch in held.items()}
        return WriterState(
            state.writer, state.targets, batches, sum(batch.size_bytes for batch in held.values())
        )

    async def writers(self, caller: Caller, after: str, writers_max: int) -> tuple[list[WriterState], bool]:
        found: list[WriterState] = []
        for name in await self._space.writers():
            if name <= after:
                continue
            state = await self._asked(self._writers.state(name))
            if state is None or (caller.role and not caller.superuser and state.writer.owner != caller.role):
                continue
            if len(found) == writers_max:
                return found, True
            batches = await self._space.batches(name)
            sizes = [await self._space.size_of(self._space.batch_of(name, batch)) for batch in batches]
            staged = {batch: StagedBatch(0, ()) for batch in batches}  # their parts are not read for a list
            found.append(WriterState(state.writer, state.targets, staged, sum(sizes)))
        return found, False

    async def _read(self, writer: str, batch: int) -> Staged:
        return await self._asked(read_batch(self._space, writer, batch))

    async def _asked(self, work: Coroutine[Any, Any, T]) -> T:
        """What the cluster answers, or its error in the words of this server."""
        try:
            return await work
        except PulsarException as error:
            raise engine_error(error) from None

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
        if self._space.cluster.numbered:
            for _, run in runs:
                for entry in run:
                    check_splits(entry)
        if runs:
            await self._writers.claim(key.writer, caller)
            await self._asked(self._put(key, part, checksum, runs))

    async def _put(
        self, key: StageKey, part: int, checksum: int, runs: Sequence[tuple[str, Sequence[NewEntry]]]
    ) -> None:
        writer = await self._parts.take(self._space.batch_of(key.writer, key.batch))
        try:
            await writer.put(key.stage, part, checksum, runs)
        finally:
            self._parts.give_back(writer)

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
        work = self._commit(writer, batch, stages, caller, targets, keep=keep)
        return await outcome(self._tasks, self._asked(work), f"commit batch {batch} of {writer}")

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
        work = self._asked(self._abort(writer, batch, caller, stage))
        return await outcome(self._tasks, work, f"abort {batch} of {writer}")

    async def _abort(self, writer: str, batch: int, caller: Caller, stage: str | None) -> int:
        async with self._writers.hold(writer):
            state = await self._writers.state(writer)
            if state is not None:
                caller.check(state.writer)
            held = await read_batch(self._space, writer, batch)
            targets = [] if state is None else state.targets
            names = to_abort(writer, batch, held.batch, stage, targets, caller)
            if names:
                await self._parts.drop(writer, batch, held, names)
            return len(names)

    async def forget(
        self, writer: str, caller: Caller, topics: Sequence[TopicName] | None = None, *, force: bool = False
    ) -> None:
        work = self._forget(writer, caller, None if topics is None else names_of(topics), force=force)
        await outcome(self._tasks, self._asked(work), f"forget {writer}")

    async def _forget(self, writer: str, caller: Caller, topics: Targets | None, *, force: bool) -> None:
        async with self._writers.hold(writer):
            state = await self._writers.state(writer)
            if state is None:
                raise no_writer(writer)
            caller.check_own(state.writer)
            if topics is None:
                return await self._remove(writer, force=force)

            async def forget(log: WriterLog) -> None:
                if topics not in log.state.commits:
                    raise no_commit(writer, topics)
                await log.append(Forgot(topics))

            await self._writers.on_log(writer, forget)

    async def _remove(self, writer: str, *, force: bool) -> None:
        batches = await self._space.batches(writer)
        held = {batch: await read_batch(self._space, writer, batch) for batch in batches}
        if not force and any(staged.stages for staged in held.values()):
            size = sum(staged.batch.size_bytes for staged in held.values())
            raise still_staging(writer, len(batches), size)
        for batch in batches:
            await self._space.delete(self._space.batch_of(writer, batch), force=True)
        await self._writers.leave(writer)
        await self._space.delete(self._space.log_of(writer), force=True)
        self._writers.forgotten(writer)

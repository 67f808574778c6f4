"""Staged publishing: parts are kept apart from their topics until one commit appends them all (docs/decisions/0018, 0099).

A writer's batches are committed in the order of their numbers, each once, for each set of topics on its own. Staged parts are
dropped by a commit, an abort, or `timeout_ms` after the last part of their batch.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Final, Generic, TypeVar

import msgspec

from penstock.broker.staging import Caller, Expected, WriterState
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Target, Targets, Writer
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.tasks import Locks, Tasks, outcome

from .batches import B, outline_of
from .commits import (
    below,
    check_kept,
    check_same,
    check_targets,
    counts_of,
    declared,
    deleted_since,
    digest_of,
    names_of,
    no_commit,
    no_writer,
    shown_topics,
    skipped,
    still_staging,
    superseded,
)
from .ports import Interrupted, Over, Parts, Session, Writers
from .writers import claimed_by

T = TypeVar("T")

ATTEMPTS: Final = 4  # at what another process gets in the way of
PAUSE_S: Final = 0.3
LISTED_BYTES_MAX: Final = 1 << 20  # of one answer, roughly; its last writer may exceed it
_TARGET_BYTES: Final = 100  # of a target in an answer, without its topics
# The errors of a log that no longer exists; BAD_PARAMETER if its name is that of a partitioned topic now.
_GONE: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.BAD_PARAMETER)

log = logging.getLogger(__name__)


class Staging(Generic[B]):
    """`broker.Staging`. A change to a writer holds its lock. A started change completes when its caller leaves."""

    def __init__(
        self,
        parts: Parts[B],
        writers: Writers[B],
        clock: Clock,
        tasks: Tasks,
        *,
        timeout_ms: int,
        sweep_ms: int,
    ) -> None:
        self._parts = parts
        self._writers = writers
        self._clock = clock
        self._tasks = tasks
        self._timeout_ms = timeout_ms
        self._sweep_ms = sweep_ms
        self._locks: Locks[str] = Locks()
        self._arriving: Counter[str] = Counter()  # parts by writer: it is not forgotten
        self._random = Random()
        self._starting = asyncio.Lock()
        self._started = False
        self._closed = False
        self._sweeping: Timer | None = None

    async def start(self) -> None:
        """Learn stages and commits; happens at the first use, if not before. Raises UNAVAILABLE."""
        if not self._started:
            async with self._starting:
                await self._start()

    async def _start(self) -> None:
        if not self._started:
            await self._parts.start()
            await self._writers.start()
            self._started = True
            self._expect_sweep()

    async def close(self) -> None:
        """Stop; staged parts stay."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        await asyncio.gather(self._parts.close(), self._writers.close())

    # -- what there is

    async def writers(self, caller: Caller, after: str, writers_max: int) -> tuple[list[WriterState], bool]:
        await self.start()
        owner = caller.role if caller.role and not caller.superuser else None
        found: list[tuple[Writer, Sequence[Target]]] = []
        size, more = 0, False
        async for writer, targets in self._writers.listed(after, owner, writers_max):
            more = len(found) == writers_max or size >= LISTED_BYTES_MAX
            if more:
                break
            found.append((writer, targets))
            size += sum(_TARGET_BYTES + sum(map(len, target.topics or ())) for target in targets)
        outlines = await self._parts.outlines([writer.name for writer, _ in found])
        return [WriterState(*one, *outline) for one, outline in zip(found, outlines, strict=True)], more

    async def writer(self, name: str, caller: Caller) -> WriterState | None:
        await self.start()
        found = await self._writers.find(name)
        if found is None:
            return None
        caller.check_own(found[0])
        return WriterState(*found, *outline_of(await self._parts.batches(name)))

    # -- staging

    async def stage(
        self,
        key: StageKey,
        part: int,
        checksum: int,
        entries: Sequence[tuple[Topic, Sequence[NewEntry]]],
        caller: Caller,
    ) -> None:
        for topic, _ in entries:
            check_kept(topic.name)
            topic.check_open()
        runs = [(topic, run) for topic, run in entries if run]
        if not runs:
            return
        await self.start()
        self._arriving[key.writer] += 1
        try:
            writer = await self._claim(key.writer, caller)
            await self._parts.put(key, part, checksum, runs, writer.origin)
        finally:
            self._arriving[key.writer] -= 1
            if not self._arriving[key.writer]:
                del self._arriving[key.writer]

    async def _claim(self, name: str, caller: Caller) -> Writer:
        """Make sure that a writer is the caller's, durably. Raises FORBIDDEN for another role's, and TOO_MANY_REQUESTS."""
        if (known := await self._own(name, caller)) is not None:
            return known
        async with self._locks.hold(name):
            if (known := await self._own(name, caller)) is not None:
                return known  # another part claimed it
            return await self._alone(name, lambda session: self._claim_in(session, name, caller))

    async def _own(self, name: str, caller: Caller) -> Writer | None:
        known = await self._writers.recall(name)
        return known if self._claimed(name, known, caller) is known else None

    async def _claim_in(self, session: Session[B], name: str, caller: Caller) -> Writer:
        known = session.writer
        claimed = self._claimed(name, known, caller)
        if claimed is not known:
            await session.claim(claimed)
        return claimed

    def _claimed(self, name: str, known: Writer | None, caller: Caller) -> Writer:
        return claimed_by(caller, name, known, self._clock.now_ms(), self._writers.touch_ms)

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
        await self.start()
        wanted = Commit(writer, batch, self._clock.now_ms(), targets, keep, digest_of(stages))
        work = partial(self._commit, wanted, targets, stages, caller)
        return await self._held(writer, work, f"commit batch {batch}")

    async def _commit(
        self, wanted: Commit, targets: Targets, stages: Sequence[Expected], caller: Caller
    ) -> tuple[Commit, bool]:
        tried: list[Commit] = []
        over: Over[B] = ()

        async def attempt(session: Session[B]) -> tuple[Commit, bool]:
            nonlocal over
            if session.writer is not None:
                caller.check(session.writer)
            last = await session.last(targets)
            if last is not None and last in tried:
                return last, True  # an attempt before was committed, and its answer was lost
            if last is not None and wanted.batch < last.batch:
                raise below(last, wanted.batch, targets)
            held = await self._parts.batch(wanted.writer, wanted.batch)
            if last is not None and wanted.batch == last.batch:
                done, over = await self._repeat(session, last, targets, held, stages)
                return done, False
            if last is None or last.topics != targets:
                check_targets(wanted.writer, len(await session.targets()))
            for topic, ledger in sorted({(share.topic, share.ledger) for share in held.won(stages)}):
                name = TopicName.parse(topic)
                caller.may_produce(name)
                await session.admit(name, ledger)
            await self._claim_in(session, wanted.writer, caller)
            known = self._parts.known(wanted.writer).values()
            over = superseded(known, held, [each.stage for each in stages], targets)
            return await session.append(wanted, held, stages, over, tried), True

        result = await self._alone(wanted.writer, attempt, sum(each.size_bytes for each in stages))
        for batch, names in over:
            try:
                await self._parts.drop(batch, names)
            except PenstockError as error:  # they expire
                about = f"batch {batch.number} of writer {batch.writer}"
                log.warning("%s could not be cleared away: %s", about, error.message)
        return result

    async def _repeat(
        self, session: Session[B], last: Commit, targets: Targets, held: B, stages: Sequence[Expected]
    ) -> tuple[Commit, Over[B]]:
        """The last commit again. Raises BATCH_CONFLICT if something else is staged, or its topics are gone."""
        await self._check_there(session, last, targets)
        there = [each.stage for each in stages if each.stage in held.stages]
        over: Over[B] = ()
        # The stages of a commit, or of a repeat, are gone with it: the same request again finds none of them.
        digest = digest_of(stages)
        if there or digest != last.stages:
            check_same(last, targets, counts_of(held.won(stages)))
            last = msgspec.structs.replace(last, stages=digest)
            over = [(held, there)] if there else []
            await session.repeat(last, over)
        skipped(last, targets)
        return msgspec.structs.replace(last, topics=targets), over

    async def _check_there(self, session: Session[B], last: Commit, targets: Targets) -> None:
        """Raise BATCH_CONFLICT unless each log that the commit appended to still exists: else its messages are gone."""
        gone: set[str] = set()
        created = True
        for span in last.spans:
            name = TopicName.parse(span.topic)
            try:
                if await session.ledger_of(name) in (None, span.ledger):
                    continue
            except PenstockError as error:
                if error.kind not in _GONE:
                    raise
                created &= error.kind is not ErrorKind.TOPIC_NOT_FOUND
            gone.add(str(name.base))
        if gone:
            raise deleted_since(last, targets, gone, again=created)

    async def abort(self, writer: str, batch: int, caller: Caller, stage: str | None = None) -> int:
        await self.start()
        return await self._held(writer, partial(self._abort, writer, batch, caller, stage), f"abort {batch}")

    async def _abort(self, writer: str, batch: int, caller: Caller, stage: str | None) -> int:
        found = await self._writers.find(writer)
        if found is not None:
            caller.check(found[0])
        held = await self._parts.batch(writer, batch)
        names = [name for name in held.stages if stage in (None, name)]
        if names:
            for topic in sorted(held.topics):
                caller.may_produce(TopicName.parse(topic))
            await self._parts.drop(held, names)
        elif found is not None and any(target.batch >= batch for target in found[1]):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, f"batch {batch} of {writer} is committed")
        return len(names)

    async def forget(
        self, writer: str, caller: Caller, topics: Sequence[TopicName] | None = None, *, force: bool = False
    ) -> None:
        await self.start()
        targets = None if topics is None else names_of(topics)
        await self._held(writer, partial(self._forget, writer, caller, targets, force), "forget")

    async def _forget(self, writer: str, caller: Caller, targets: Targets | None, force: bool) -> None:
        found = await self._writers.find(writer)
        if found is None:
            raise no_writer(writer)
        caller.check_own(found[0])
        if targets is None:
            batches = [held for held in (await self._parts.batches(writer)).values() if held.stages]
            if self._arriving[writer] or (batches and not force):
                raise still_staging(writer, len(batches), sum(held.size_bytes for held in batches))
            for held in batches:
                await self._parts.drop(held, list(held.stages))
        known = await self._alone(writer, lambda session: session.forget(targets))
        about = {"writer": writer, "by": caller.origin}
        if targets is None:
            log.info("forgot a writer", extra=about)
        elif known:
            log.info("forgot a writer's commit", extra={**about, "topics": shown_topics(targets)})
        else:
            raise no_commit(writer, targets)

    # -- one after the other

    async def _held(self, writer: str, work: Callable[[], Awaitable[T]], what: str) -> T:
        """Do something with a writer's lock; it goes on when its caller leaves."""

        async def alone() -> T:
            async with self._locks.hold(writer):
                return await work()

        return await outcome(self._tasks, alone(), f"{what} of {writer}")

    async def _alone(self, writer: str, work: Callable[[Session[B]], Awaitable[T]], size_bytes: int = 0) -> T:
        """Do something in a session, with the writer's lock; again if another process took the writer."""
        for left in reversed(range(ATTEMPTS)):
            try:
                async with self._writers.open(writer, size_bytes) as session:
                    return await work(session)
            except Interrupted:
                if not left:
                    raise
                # Otherwise two processes that want the same writer could go on in step.
                await asyncio.sleep(self._random.uniform(0, PAUSE_S))
        raise AssertionError("the last attempt returns or raises")

    # -- abandoned stages

    def _expect_sweep(self) -> None:
        self._sweeping = self._clock.call_later(self._sweep_ms, self._begin_sweep)

    def _begin_sweep(self) -> None:
        self._tasks.spawn(self._sweep(), "sweep stages")

    async def _sweep(self) -> None:
        try:
            await self._writers.sweep()
            await self.expire(self._clock.now_ms() - self._timeout_ms)
            await self._forget_idle()
            await self._parts.sweep()
        except PenstockError as error:
            log.warning("staged parts could not be swept: %s", error.message)
        if not self._closed:
            self._expect_sweep()

    async def expire(self, before: int) -> None:
        """Drop the batches without a further part since `before` (ms since the epoch)."""
        for held in self._parts.expired(before):
            async with self._locks.hold(held.writer):
                now = self._parts.known(held.writer).get(held.number)
                if now is not None and now.at <= before:
                    await self._parts.drop(now, list(now.stages))

    async def _forget_idle(self) -> None:
        more = True
        while more:
            more = False
            for writer in await self._writers.idle():
                async with self._locks.hold(writer.name):
                    found = await self._writers.find(writer.name)
                    staging = self._arriving[writer.name] or self._parts.known(writer.name)
                    if found is None or found[0] != writer or staging:
                        continue  # it is in use again
                    await self._alone(writer.name, lambda session: session.forget(None))
                    more = True
                if writer.keep:
                    log.info("a writer expired", extra={"writer": writer.name, "used_at": writer.at})

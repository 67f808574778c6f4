"""Staged publishing: what writers have staged, and its commit (docs/decisions/0018).

A writer's batches are committed in the order of their numbers, each once, for each set of topics on its own. What
is staged costs room in the store and a few numbers here; it goes with a commit, an abort, or after
`stage_timeout_ms` without a further part.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Caller, Expected, WriterState
from penstock.broker.topic import Topic as AnyTopic
from penstock.engines.core.ports import Store
from penstock.engines.core.topic.topic import Topic
from penstock.engines.shared.batches import (
    Batch,
    Share,
    bases_of,
    below,
    check_kept,
    declared,
    digest_of,
    names_of,
    skipped,
)
from penstock.engines.shared.staged import repeated, still_staging, to_abort
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets, Writer
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.tasks import Locks, finished

from .commits import check_there
from .staged import Batches, check_room
from .topics import Topics
from .writers import Writers


class Staging:
    """`broker.Staging`: the stages and commits of all writers. `spawn` starts a task that lives on."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        clock: Clock,
        settings: BrokerSettings,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._settings = settings
        self._spawn = spawn
        self._batches = Batches()
        self._writers = Writers(store, clock, settings)
        self._locks: Locks[StageKey] = Locks()
        self._sweep: Timer | None = None

    async def load(self) -> None:
        """Read what a server before this one left."""
        runs, writers = await self._store.load_stages()
        origins = {writer.name: writer.origin for writer in writers}
        for run in runs:
            self._batches.add(run, origins.get(run.key.writer, ""))
        if runs or await self._writers.any():
            self._expect_sweep()

    def close(self) -> None:
        """Sweep no more; what is staged stays for the next start."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    # -- what there is

    @property
    def size_bytes(self) -> int:
        """How much is staged, by all writers."""
        return self._batches.size_bytes

    async def writers(self, caller: Caller, after: str, writers_max: int) -> tuple[list[WriterState], bool]:
        found, more = await self._writers.page(caller, after, writers_max)
        return [self._state(*one) for one in found], more

    async def writer(self, name: str, caller: Caller) -> WriterState | None:
        found = await self._writers.find(name, caller)
        return None if found is None else self._state(*found)

    def _state(self, writer: Writer, targets: list[Target]) -> WriterState:
        held = sorted(self._batches.of(writer.name).items())
        batches = {number: batch.shown() for number, batch in held}
        return WriterState(writer, targets, batches, self._batches.size_of(writer.name))

    # -- staging

    async def stage(
        self,
        key: StageKey,
        part: int,
        checksum: int,
        entries: Sequence[tuple[AnyTopic, Sequence[NewEntry]]],
        caller: Caller,
    ) -> None:
        for topic, _ in entries:
            check_kept(topic.name)
            topic.check_open()
        with self._writers.staging(key.writer):
            origin = (await self._writers.claim(key.writer, caller)).origin
            async with self._locks.hold(key):
                held = self._batches.of(key.writer).get(key.batch)
                stage = None if held is None else held.stages.get(key.stage)
                known = None if stage is None else stage.checksums.get(part)
                if known is not None:
                    if known != checksum:
                        raise PenstockError(
                            ErrorKind.STAGE_CONFLICT,
                            f"part {part} of stage {key.stage} came before, and differs",
                        )
                    return
                size = sum(len(e.data) for _, run in entries for e in run)
                check_room(self._batches, self._settings, key, origin, size)
                now = self._clock.now_ms()
                runs = [StageRun(topic.ledger, str(topic.name), run) for topic, run in entries if run]
                await finished(self._store.stage(key, part, checksum, now, runs))
                for run in runs:
                    self._batches.add(_told(key, part, checksum, now, run), origin)
        self._expect_sweep()

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
        async with self._writers.hold(writer):
            await self._writers.check(writer, caller)
            last = await self._store.find_commit(writer, targets)
            if last is not None and batch < last.batch:
                raise below(last, batch, targets)
            held = self._batches.of(writer).get(batch) or Batch()
            if last is not None and batch == last.batch:
                return await self._repeated(last, targets, held, stages), False
            if last is None or last.topics != targets:
                await self._writers.check_targets(writer)
            won = held.won(stages)
            found: dict[int, Topic] = {}
            for share in won:
                if share.ledger not in found:
                    found[share.ledger] = await self._topic(share, caller)
            await self._writers.claim_held(writer, caller)
            names = [each.stage for each in stages if each.stage in held.stages]
            lost = self._lost(writer, batch, names, targets or bases_of(share.topic for share in won))
            wanted = Commit(writer, batch, self._clock.now_ms(), targets, keep, digest_of(stages))
            most = self._settings.max_writers_per_role
            made = await finished(self._store.commit_stages(wanted, names, lost, most))
            self._batches.drop([*(StageKey(writer, batch, name) for name in names), *lost])
            for span in made.spans:
                found[span.ledger].committed(span)
        self._expect_sweep()
        return made, True

    async def _repeated(
        self, last: Commit, targets: Targets, held: Batch, stages: Sequence[Expected]
    ) -> Commit:
        """The last commit again. Raises BATCH_CONFLICT where something else is staged, or its topics are gone."""
        await check_there(last, targets, self._topics)
        again, there = repeated(last, targets, held, stages)
        if again is not last:
            keys = [StageKey(last.writer, last.batch, name) for name in there]
            await finished(self._store.repeat_commit(again, keys))
            self._batches.drop(keys)
        skipped(again, targets)
        return msgspec.structs.replace(again, topics=targets)

    def _lost(
        self, writer: str, batch: int, names: Sequence[str], topics: Targets | set[str]
    ) -> list[StageKey]:
        """Stages for these topics that no commit will take: of this batch and those before it."""
        taken, wanted = set(names), set(topics)
        return [
            StageKey(writer, number, name)
            for number, held in self._batches.of(writer).items()
            if number <= batch
            for name, stage in held.stages.items()
            if not (number == batch and name in taken)
            and wanted & bases_of(share.topic for share in stage.shares.values())
        ]

    async def _topic(self, share: Share, caller: Caller) -> Topic:
        name = TopicName.parse(share.topic)
        caller.may_produce(name)
        topic = await self._topics.get(name, create=False)
        if topic.ledger != share.ledger:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was made anew since it was staged for")
        topic.check_open()
        topic.access.check_shared()
        if not topic.backlog.surely_room:
            await topic.backlog.admit()
            topic.check_open()
        return topic

    async def abort(self, writer: str, batch: int, caller: Caller, stage: str | None = None) -> int:
        async with self._writers.hold(writer):
            await self._writers.check(writer, caller)
            held = self._batches.of(writer).get(batch) or Batch()
            targets = await self._store.list_targets(writer)
            names = to_abort(writer, batch, held, stage, targets, caller)
            return await self._drop([StageKey(writer, batch, name) for name in names])

    async def forget(
        self, writer: str, caller: Caller, topics: Sequence[TopicName] | None = None, *, force: bool = False
    ) -> None:
        async with self._writers.hold(writer):
            if topics is not None:
                return await self._writers.forget(writer, names_of(topics), caller)
            if await self._writers.find(writer, caller) is not None:
                held = self._batches.of(writer)
                if self._writers.is_staging(writer) or (held and not force):
                    raise still_staging(writer, len(held), self._batches.size_of(writer))
                await self._drop([StageKey(writer, n, name) for n, b in held.items() for name in b.stages])
            await self._writers.forget(writer, None, caller)

    async def _drop(self, keys: Sequence[StageKey]) -> int:
        if keys:
            await self._store.drop_stages(keys)
            self._batches.drop(keys)
        return len(keys)

    # -- what was left behind

    def _expect_sweep(self) -> None:
        """Look again when the first of what is staged may be over, and now and then for writers."""
        if self._sweep is None:
            now, timeout = self._clock.now_ms(), self._settings.stage_timeout_ms
            waits = [batch.at + timeout - now for _, _, batch in self._batches]
            waits.append(self._writers.sweep_ms)
            self._sweep = self._clock.call_later(max(1, min(waits)), self._look)

    def _look(self) -> None:
        self._sweep = None
        self._spawn(self._sweep_out(), "sweep stages")

    async def _sweep_out(self) -> None:
        before = self._clock.now_ms() - self._settings.stage_timeout_ms
        for writer, number in [(writer, number) for writer, number, b in self._batches if b.at <= before]:
            async with self._writers.hold(writer):
                held = self._batches.of(writer).get(number)
                if held is not None and held.at <= before:
                    await self._drop([StageKey(writer, number, name) for name in held.stages])
        await self._writers.sweep(self._batches.of)
        if any(True for _ in self._batches) or await self._writers.any():
            self._expect_sweep()


def _told(key: StageKey, part: int, checksum: int, at: int, run: StageRun) -> StagedRun:
    messages = sum(entry.count for entry in run.entries)
    size = sum(len(entry.data) for entry in run.entries)
    return StagedRun(key, part, checksum, at, run.ledger, run.topic, messages, size)

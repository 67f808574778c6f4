"""Staged publishing over a store: its parts, its writers, and commits."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Expected
from penstock.engines.core.ports import Store
from penstock.engines.core.topic.topic import Topic
from penstock.engines.staging.batches import Batch, Share, Stage, outline_of
from penstock.engines.staging.ports import Outline, Over, Runs
from penstock.engines.staging.staging import Staging
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun, Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks, Tasks, finished

from .topics import Topics

# Of one role, or of one address without authentication, so that one cannot take the room of all.
BATCHES_MAX: Final = 10_000
PIECES_MAX: Final = 2_000_000  # parts, and logs of stages: about 100 bytes of memory each
TRANSIENT_MS: Final = 3_600_000  # a writer without a commit to keep is known for so long after its last use
TOUCH_MS: Final = 900_000
_IDLE_MAX: Final = 1_000  # looked at together
_MINUTE_MS: Final = 60_000


class StoredParts:
    """`staging.Parts` of a store with no other writer."""

    def __init__(self, store: Store, clock: Clock, settings: BrokerSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._locks: Locks[StageKey] = Locks()
        self._by_writer: dict[str, dict[int, Batch]] = {}
        self._sizes: Counter[str] = Counter()  # by writer
        self._counts: Counter[str] = Counter()  # batches by origin
        self._pieces: Counter[str] = Counter()  # numbers in memory by origin, as `Stage.pieces`
        self.size_bytes = 0

    async def start(self) -> None:
        runs, writers = await self._store.load_stages()
        origins = {writer.name: writer.origin for writer in writers}
        for run in runs:
            self._add(run, origins.get(run.key.writer, ""))

    async def put(self, key: StageKey, part: int, checksum: int, runs: Runs, origin: str) -> None:
        async with self._locks.hold(key):
            if (await self.batch(key.writer, key.batch)).has_part(key.stage, part, checksum):
                return
            self._check_room(key, origin, sum(len(entry.data) for _, run in runs for entry in run))
            now = self._clock.now_ms()
            stored = [StageRun(topic.ledger, str(topic.name), run) for topic, run in runs]
            await finished(self._store.stage(key, part, checksum, now, stored))
            for run in stored:
                messages = sum(entry.count for entry in run.entries)
                size = sum(len(entry.data) for entry in run.entries)
                self._add(StagedRun(key, part, checksum, now, run.ledger, run.topic, messages, size), origin)

    async def batch(self, writer: str, number: int) -> Batch:
        return self.known(writer).get(number) or Batch(writer, number)

    async def batches(self, writer: str) -> Mapping[int, Batch]:
        return self.known(writer)

    def known(self, writer: str) -> Mapping[int, Batch]:
        return self._by_writer.get(writer, {})

    async def outlines(self, writers: Sequence[str]) -> Sequence[Outline]:
        return [outline_of(self.known(name)) for name in writers]

    async def drop(self, held: Batch, stages: Collection[str]) -> None:
        keys = [StageKey(held.writer, held.number, name) for name in stages if name in held.stages]
        if keys:
            await self._store.drop_stages(keys)
            self.dropped(keys)

    def expired(self, before: int) -> Sequence[Batch]:
        batches = [batch for batches in self._by_writer.values() for batch in batches.values()]
        return [batch for batch in batches if batch.at <= before]

    async def sweep(self) -> None: ...

    async def close(self) -> None: ...

    # -- what it takes

    def _add(self, run: StagedRun, origin: str) -> None:
        batches = self._by_writer.setdefault(run.key.writer, {})
        batch = batches.get(run.key.batch)
        if batch is None:
            batch = batches[run.key.batch] = Batch(run.key.writer, run.key.batch, origin)
            self._counts[origin] += 1
        stage = batch.stages.setdefault(run.key.stage, Stage())
        before = stage.pieces
        stage.add(run.part, run.checksum, Share(run.ledger, run.topic, run.messages, run.size_bytes))
        self._pieces[batch.origin] += stage.pieces - before
        batch.at = max(batch.at, run.at)
        self._sizes[run.key.writer] += run.size_bytes
        self.size_bytes += run.size_bytes

    def dropped(self, keys: Iterable[StageKey]) -> None:
        """Stages were deleted from the store."""
        for key in keys:
            batch = self.known(key.writer).get(key.batch)
            stage = None if batch is None else batch.stages.pop(key.stage, None)
            if batch is None or stage is None:
                continue
            self.size_bytes -= stage.size_bytes
            self._sizes[key.writer] -= stage.size_bytes
            self._pieces[batch.origin] -= stage.pieces
            if not batch.stages:
                self._forget(key.writer, key.batch, batch)

    def _forget(self, writer: str, number: int, batch: Batch) -> None:
        del self._by_writer[writer][number]
        self._counts[batch.origin] -= 1
        if not self._counts[batch.origin]:
            del self._counts[batch.origin], self._pieces[batch.origin]
        if not self._by_writer[writer]:
            del self._by_writer[writer], self._sizes[writer]

    def _check_room(self, key: StageKey, origin: str, size: int) -> None:
        """Raise TOO_MANY_REQUESTS, TOO_LARGE or STORAGE_FULL unless `size` more bytes may be staged."""
        settings = self._settings
        new = key.batch not in self.known(key.writer)
        if new and self._counts[origin] >= BATCHES_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{BATCHES_MAX} batches are being staged by {origin or 'writers'}",
            )
        if self._pieces[origin] >= PIECES_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"{PIECES_MAX} parts are being staged by {origin or 'writers'}"
            )
        held = self._sizes[key.writer]
        if held + size > settings.max_staged_bytes_per_writer:
            raise PenstockError(
                ErrorKind.TOO_LARGE,
                f"writer {key.writer} has staged {held} bytes; broker.max_staged_bytes_per_writer is"
                f" {settings.max_staged_bytes_per_writer}",
            )
        if self.size_bytes + size > settings.max_staged_bytes:
            raise PenstockError(
                ErrorKind.STORAGE_FULL,
                f"{self.size_bytes} bytes are staged by all writers; broker.max_staged_bytes is"
                f" {settings.max_staged_bytes}",
            )


def open_staging(
    store: Store, topics: Topics, clock: Clock, settings: BrokerSettings, tasks: Tasks
) -> Staging[Batch]:
    """Staging of a broker, to be started with it."""
    timeout_ms = settings.stage_timeout_ms
    parts = StoredParts(store, clock, settings)
    writers = StoredWriters(store, topics, parts, clock, settings)
    sweep_ms = min(writers.transient_ms, writers.expiry_ms or timeout_ms)
    return Staging(parts, writers, clock, tasks, timeout_ms=timeout_ms, sweep_ms=sweep_ms)


class StoredWriters:
    """`staging.Writers`: all of it is in the store, so that memory does not grow with the number of writers."""

    touch_ms = TOUCH_MS

    def __init__(
        self, store: Store, topics: Topics, parts: StoredParts, clock: Clock, settings: BrokerSettings
    ) -> None:
        self._store = store
        self._topics = topics
        self._parts = parts
        self._clock = clock
        self._writers_max = settings.max_writers_per_role
        self.transient_ms = min(TRANSIENT_MS, settings.stage_timeout_ms)
        self.expiry_ms = settings.writer_expiry_minutes * _MINUTE_MS

    async def start(self) -> None: ...

    @asynccontextmanager
    async def open(self, name: str, size_bytes: int) -> AsyncIterator["StoreSession"]:
        writer = await self._store.find_writer(name)
        yield StoreSession(self._store, self._topics, self._parts, name, writer, self._writers_max)

    async def recall(self, name: str) -> Writer | None:
        return await self._store.find_writer(name)

    async def find(self, name: str) -> tuple[Writer, Sequence[Target]] | None:
        known = await self._store.find_writer(name)
        return None if known is None else (known, await self._store.list_targets(name))

    async def listed(
        self, after: str, owner: str | None, writers_max: int
    ) -> AsyncIterator[tuple[Writer, Sequence[Target]]]:
        for writer in await self._store.list_writers(after, owner, writers_max + 1):
            yield writer, await self._store.list_targets(writer.name)

    async def idle(self) -> Sequence[Writer]:
        found: list[Writer] = []
        for keep, age_ms in ((False, self.transient_ms), (True, self.expiry_ms)):
            if age_ms:
                found += await self._store.idle_writers(keep, self._clock.now_ms() - age_ms, _IDLE_MAX)
        return found

    async def sweep(self) -> None: ...

    async def close(self) -> None: ...


class StoreSession:
    """`staging.Session`: a change is stored at once, each in one transaction."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        parts: StoredParts,
        name: str,
        writer: Writer | None,
        writers_max: int,
    ) -> None:
        self.writer = writer
        self._store = store
        self._topics = topics
        self._parts = parts
        self._name = name
        self._writers_max = writers_max
        self._admitted: dict[int, Topic] = {}

    async def last(self, targets: Targets) -> Commit | None:
        return await self._store.find_commit(self._name, targets)

    async def targets(self) -> Sequence[Target]:
        return await self._store.list_targets(self._name)

    async def claim(self, writer: Writer) -> None:
        if not await finished(self._store.save_writer(writer, self._writers_max)):
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{writer.origin or 'this server'} has {self._writers_max} writers (broker.max_writers_per_role);"
                " forget those that are not needed",
            )

    async def admit(self, name: TopicName, ledger: int) -> None:
        topic = await self._topics.get(name, create=False)
        if topic.ledger != ledger:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was made anew since it was staged for")
        topic.check_open()
        topic.access.check_shared()
        if not topic.backlog.surely_room:
            await topic.backlog.admit()
            topic.check_open()
        self._admitted[ledger] = topic

    async def append(
        self,
        wanted: Commit,
        held: Batch,
        stages: Sequence[Expected],
        over: Over[Batch],
        tried: list[Commit],
    ) -> Commit:
        names = [each.stage for each in stages if each.stage in held.stages]
        taken = {StageKey(held.writer, held.number, name) for name in names}
        lost = [key for key in _keys(over) if key not in taken]
        made = await finished(self._store.commit_stages(wanted, names, lost, self._writers_max))
        tried.append(made)
        self._parts.dropped([*taken, *lost])
        for span in made.spans:
            self._admitted[span.ledger].committed(span)
        return made

    async def repeat(self, commit: Commit, over: Over[Batch]) -> None:
        await finished(self._store.repeat_commit(commit, _keys(over)))
        self._parts.dropped(_keys(over))

    async def ledger_of(self, name: TopicName) -> int | None:
        return (await self._topics.get(name, create=False)).ledger

    async def forget(self, targets: Targets | None) -> bool:
        if targets is not None:
            return await self._store.forget_commit(self._name, targets)
        await self._store.forget_writers([self._name])
        return True


def _keys(over: Over[Batch]) -> list[StageKey]:
    return [StageKey(batch.writer, batch.number, name) for batch, names in over for name in names]

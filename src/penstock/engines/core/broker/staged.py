"""Staged parts, in the store by writer and in memory as numbers, and how many there may be."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.engines.core.ports import Store
from penstock.engines.staging.batches import Batch, Share, Stage, outline_of
from penstock.engines.staging.ports import Outline, Runs
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StagedRun, StageKey, StageRun
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks, finished

# Of one role, or of one address without authentication, so that one cannot take the room of all.
BATCHES_MAX: Final = 10_000
PIECES_MAX: Final = 2_000_000  # parts, and logs of stages: about 100 bytes of memory each


class StoredParts:
    """`staging.Parts` of a store that nobody else writes to."""

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

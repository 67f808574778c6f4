"""Staged publishing over the store of a broker: its transactions commit stages at once, and nobody else has its writers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Expected
from penstock.engines.core.ports import Store
from penstock.engines.core.topic.topic import Topic
from penstock.engines.staging.batches import Batch
from penstock.engines.staging.ports import Over
from penstock.engines.staging.staging import Staging
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks, finished

from .staged import StoredParts
from .topics import Topics

TRANSIENT_MS: Final = 3_600_000  # a writer without a commit to keep is known for so long after its last use
TOUCH_MS: Final = 900_000
_IDLE_MAX: Final = 1_000  # looked at together
_MINUTE_MS: Final = 60_000


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

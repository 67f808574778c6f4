"""The writers of staged batches: whose they are, what they committed last, and when they are forgotten.

A writer belongs to the role that first staged or committed under its name. All of it is in the store: memory does
not grow with the number of writers.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Caller
from penstock.engines.core.ports import Store
from penstock.engines.shared.batches import no_commit, shown_topics
from penstock.engines.shared.staged import no_writer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks, finished

TARGETS_MAX: Final = 1_000  # of one writer; an answer tells of them all
LISTED_BYTES_MAX: Final = 1 << 20  # of one answer, roughly; its last writer may exceed it
_TARGET_BYTES: Final = 100  # of a target in an answer, beside its topics
TRANSIENT_MS: Final = (
    3_600_000  # a writer that has no commit to be kept is known for so long after its last use
)
TOUCH_MS: Final = 900_000  # how exactly the time of the last use is known, where nothing is committed
_SWEPT_MAX: Final = 1_000  # looked at together
_MINUTE_MS: Final = 60_000

log = logging.getLogger(__name__)


class Writers:
    """The writers that there are. A change to one holds its lock."""

    def __init__(self, store: Store, clock: Clock, settings: BrokerSettings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._locks: Locks[str] = Locks()
        self._staging: Counter[str] = Counter()  # calls that are under way
        self.transient_ms = min(TRANSIENT_MS, settings.stage_timeout_ms)
        self.expiry_ms = settings.writer_expiry_minutes * _MINUTE_MS

    @property
    def sweep_ms(self) -> int:
        """How often to look for writers whose time is over."""
        return min(self.transient_ms, self.expiry_ms or self.transient_ms)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """Have a writer for a while; not to be asked for again meanwhile."""
        async with self._locks.hold(name):
            yield

    @contextmanager
    def staging(self, name: str) -> Iterator[None]:
        """While something is staged, its writer is not forgotten."""
        self._staging[name] += 1
        try:
            yield
        finally:
            self._staging[name] -= 1
            if not self._staging[name]:
                del self._staging[name]

    # -- whose it is

    async def check(self, name: str, caller: Caller) -> Writer | None:
        """The writer, None where there is none. Raises FORBIDDEN for another role's."""
        known = await self._store.find_writer(name)
        if known is not None:
            caller.check(known)
        return known

    async def claim(self, name: str, caller: Caller) -> Writer:
        """Make sure that the writer is the caller's, durably; `stage` asks without its lock.

        Raises FORBIDDEN for another role's, and TOO_MANY_REQUESTS for one too many.
        """
        known = await self.check(name, caller)
        if known is not None and not self._changes(known, caller):
            return known
        async with self.hold(name):
            return await self.claim_held(name, caller)

    async def claim_held(self, name: str, caller: Caller) -> Writer:
        """The same for one who holds the lock."""
        known = await self.check(name, caller)
        if known is not None and not self._changes(known, caller):
            return known
        now, most = self._clock.now_ms(), self._settings.max_writers_per_role
        if known is None:
            wanted = Writer(name, caller.role, caller.origin, now)
        elif known.owner or not caller.role:
            wanted = msgspec.structs.replace(known, at=now)
        else:
            wanted = msgspec.structs.replace(known, at=now, owner=caller.role, origin=caller.origin)
        if not await finished(self._store.save_writer(wanted, most)):
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"{caller.origin or 'this server'} has {most} writers (broker.max_writers_per_role);"
                " forget those that are not needed",
            )
        return wanted

    def _changes(self, known: Writer, caller: Caller) -> bool:
        taken = bool(caller.role) and not known.owner
        return taken or self._clock.now_ms() - known.at >= TOUCH_MS

    async def check_targets(self, name: str) -> None:
        """Raise TOO_MANY_REQUESTS where the writer cannot commit to a further set of topics."""
        if len(await self._store.list_targets(name)) >= TARGETS_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS,
                f"writer {name} has committed to {TARGETS_MAX} sets of topics; use another, or forget some",
            )

    # -- what there is

    async def page(
        self, caller: Caller, after: str, writers_max: int
    ) -> tuple[list[tuple[Writer, list[Target]]], bool]:
        """Writers behind a name, in their order, and whether there are more: the caller's own, or all."""
        owner = caller.role if caller.role and not caller.superuser else None
        found = await self._store.list_writers(after, owner, writers_max + 1)
        listed: list[tuple[Writer, list[Target]]] = []
        size = 0
        for writer in found[:writers_max]:
            if size >= LISTED_BYTES_MAX:
                break
            targets = await self._store.list_targets(writer.name)
            listed.append((writer, targets))
            size += sum(_TARGET_BYTES + sum(map(len, target.topics or ())) for target in targets)
        return listed, len(listed) < len(found)

    async def find(self, name: str, caller: Caller) -> tuple[Writer, list[Target]] | None:
        """A writer and its targets, None where there is none. Raises FORBIDDEN unless it is the caller's."""
        known = await self._store.find_writer(name)
        if known is None:
            return None
        caller.check_own(known)
        return known, await self._store.list_targets(name)

    # -- the end

    def is_staging(self, name: str) -> bool:
        """Whether something is on its way into a stage of the writer."""
        return name in self._staging

    async def forget(self, name: str, topics: Targets | None, caller: Caller) -> None:
        """Forget a writer, or its commit to some topics, for one who holds the lock.

        Raises NOT_FOUND, and FORBIDDEN unless it is the caller's.
        """
        known = await self._store.find_writer(name)
        if known is None:
            raise no_writer(name)
        caller.check_own(known)
        if topics is None:
            await self._store.forget_writers([name])
            log.info("forgot a writer", extra={"writer": name, "by": caller.origin})
        elif await self._store.forget_commit(name, topics):
            names = shown_topics(topics)
            log.info("forgot a writer's commit", extra={"writer": name, "topics": names, "by": caller.origin})
        else:
            raise no_commit(name, topics)

    async def any(self) -> bool:
        """Whether there is any writer."""
        return bool(await self._store.list_writers("", None, 1))

    async def sweep(self, staged: Callable[[str], object]) -> None:
        """Forget writers that were not in use for their time; `staged` says which have something staged."""
        for keep, age_ms in ((False, self.transient_ms), (True, self.expiry_ms)):
            if not age_ms:
                continue
            before, gone = self._clock.now_ms() - age_ms, True
            while gone:
                gone = False
                for writer in await self._store.idle_writers(keep, before, _SWEPT_MAX):
                    async with self.hold(writer.name):
                        found = await self._store.find_writer(writer.name)
                        if found != writer or staged(writer.name) or self.is_staging(writer.name):
                            continue  # it came back
                        await self._store.forget_writers([writer.name])
                        gone = True
                    if keep:
                        log.info("a writer expired", extra={"writer": writer.name, "used_at": writer.at})

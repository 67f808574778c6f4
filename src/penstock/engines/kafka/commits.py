"""The commits of one group: one on its way at a time, and what is to be committed meanwhile goes together with the next."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

from penstock.model.errors import PenstockError
from penstock.runtime.tasks import Tasks

from .cursors import committed_cursor
from .driver.groups import Committed
from .driver.record import At
from .subscription import GroupSubscription

Send = Callable[[Mapping[At, Committed]], Awaitable[None]]


class _Round:
    """What is committed together; `errors` are by subscription, once it is done."""

    def __init__(self) -> None:
        self.sources: dict[GroupSubscription, None] = {}
        self.done = asyncio.Event()
        self.errors: dict[GroupSubscription, PenstockError] = {}


class Commits:
    """`send` commits; `check` raises for a subscription that this process may not commit for."""

    def __init__(
        self, group: str, tasks: Tasks, send: Send, check: Callable[[GroupSubscription], None]
    ) -> None:
        self.left_out = (
            0  # acknowledged messages that did not fit into commits: they come again after a restart
        )
        self._group = group
        self._tasks = tasks
        self._send = send
        self._check = check
        self._next: _Round | None = None
        self._sending = asyncio.Lock()

    async def save(self, sources: Iterable[GroupSubscription]) -> None:
        """Commit the cursors of these; raises the error of the first that could not be committed."""
        wanted = tuple(sources)
        joined = self._next
        if joined is None:
            joined = self._next = _Round()
            self._tasks.spawn(self._commit(joined), f"commit for group {self._group}")
        joined.sources.update(dict.fromkeys(wanted))
        await joined.done.wait()
        for source in wanted:
            if source in joined.errors:
                raise joined.errors[source]

    async def _commit(self, now: _Round) -> None:
        try:
            async with self._sending:
                self._next = None
                await self._commit_all(now)
        finally:
            now.done.set()

    async def _commit_all(self, now: _Round) -> None:
        changes: dict[GroupSubscription, Committed] = {}
        left = 0
        for source in now.sources:
            committed, some = committed_cursor(source.cursor, source.type)
            if committed == source.saved:
                continue
            try:
                self._check(source)
            except PenstockError as error:
                now.errors[source] = error
                continue
            changes[source] = committed
            left += some
        if not changes:
            return
        try:
            await self._send({source.at: one for source, one in changes.items()})
        except PenstockError as error:
            now.errors |= dict.fromkeys(changes, error)
            return
        self.left_out += left
        for source, one in changes.items():
            source.saved = one

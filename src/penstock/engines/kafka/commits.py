"""The commits of one group: one on its way at a time, and what is to be committed meanwhile goes together with the next."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

from .cursors import committed_cursor
from .driver.groups import Committed
from .driver.member import Rebalanced
from .driver.record import At
from .subscription import GroupSubscription

Send = Callable[[Mapping[At, Committed]], Awaitable[None]]


AGAIN_S: Final = 0.05  # between two tries of a commit that met a rebalance
COMMIT_S: Final = 15.0  # then a commit that meets rebalances has failed


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
        self._group = group
        self._tasks = tasks
        self._send = send
        self._check = check
        self._next: _Round | None = None
        self._rounds: set[_Round] = set()
        self._sending = asyncio.Lock()
        # Not set while partitions are given back, with a last commit: until then it is open what of theirs is committed.
        self.settled = asyncio.Event()
        self.settled.set()

    async def save(self, sources: Iterable[GroupSubscription]) -> None:
        """Commit the cursors of these; raises the error of the first that could not be committed."""
        wanted = tuple(sources)
        joined = self._next
        if joined is None:
            joined = self._next = _Round()
            self._rounds.add(joined)
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
            self._rounds.discard(now)
            now.done.set()

    async def confirm(self, source: GroupSubscription) -> None:
        """Commit where a subscription stands, committed already or not: a group refuses that to who is no member any more."""
        async with self._sending:
            await self.settled.wait()
            if not source.doubted:
                return
            committed, source.acks_left_out = committed_cursor(source.cursor, source.type)
            await self._send({source.at: committed})
            source.saved = committed

    def end(self, source: GroupSubscription) -> None:
        """The partition of a subscription is gone: who waits for what is not committed of it is refused."""
        if self.changes([source], {}, check=False):
            error = PenstockError(
                ErrorKind.UNAVAILABLE,
                f"{source.topic.name} went to another process before the acknowledgement was committed",
            )
            for one in self._rounds:
                if source in one.sources:
                    one.errors[source] = error
            source.lose(error)
        source.commits = False

    async def _commit_all(self, now: _Round) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + COMMIT_S
        while True:
            await self.settled.wait()
            changes = self.changes(now.sources, now.errors)
            if not changes:
                return
            try:
                await self._send({source.at: one for source, one in changes.items()})
            except Rebalanced as error:  # what this process has still is sent again
                if loop.time() > until:
                    now.errors |= dict.fromkeys(changes, error)
                    return
                await asyncio.sleep(AGAIN_S)
            except PenstockError as error:
                now.errors |= dict.fromkeys(changes, error)
                return
            else:
                for source, one in changes.items():
                    source.saved = one
                return

    def changes(
        self,
        sources: Iterable[GroupSubscription],
        errors: dict[GroupSubscription, PenstockError] | None = None,
        *,
        check: bool = True,
    ) -> dict[GroupSubscription, Committed]:
        """What is not committed yet; `errors` gets those that this process may not commit for."""
        found: dict[GroupSubscription, Committed] = {}
        for source in sources:
            if not source.commits:
                continue
            committed, left = committed_cursor(source.cursor, source.type)
            if committed == source.saved:
                continue
            try:
                if check:
                    self._check(source)
            except PenstockError as error:
                if errors is not None:
                    errors[source] = error
                continue
            found[source] = committed
            source.acks_left_out = left
        return found

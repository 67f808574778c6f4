"""The members of consumer groups that this process has, and their keeper.

The keeper polls members between their fetches, so that they take part in rebalances at once, and stay members for as long as they are
open.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from penstock.runtime.tasks import Tasks

from .clients import Clients
from .group_consumer import GroupConsumer
from .threads import DaemonThreads

THREADS_MAX: Final = 256  # each waits for one fetch; further fetches take turns
KEEP_S: Final = 0.5  # between two polls of a member without a fetch: others wait so long for a rebalance
KEPT_AT_ONCE: Final = 32  # members that are polled by one thread


class GroupConsumers:
    """The members of this process."""

    def __init__(self, clients: Clients, tasks: Tasks) -> None:
        self._clients = clients
        self._tasks = tasks
        self._executor = DaemonThreads(THREADS_MAX, "kafka-member")
        self._members: set[GroupConsumer] = set()
        self._keeping = False

    def make(self, group: str, *, client_id: str, reset: str, auto_commit: bool) -> GroupConsumer:
        """As `GroupConsumer`."""
        made = GroupConsumer(
            self._clients, self._executor, group, client_id=client_id, reset=reset, auto_commit=auto_commit
        )
        self._members.add(made)
        if not self._keeping:
            self._keeping = True
            self._tasks.spawn(self._keep(), "keep members of groups")
        return made

    async def _keep(self) -> None:
        """Poll idle members, until there are none."""
        try:
            while self._members:
                await asyncio.sleep(KEEP_S)
                self._members = {one for one in self._members if not one.closed}
                idle = [one for one in self._members if one.idle]
                for first in range(0, len(idle), KEPT_AT_ONCE):
                    some = idle[first : first + KEPT_AT_ONCE]
                    running = self._executor.submit(_keep_all, some)
                    for one in some:
                        one.lend(running)
        finally:
            self._keeping = False

    async def close(self) -> None:
        """Close all members: they leave their groups."""
        await asyncio.gather(*(one.close() for one in self._members if not one.closed))
        self._executor.shutdown(wait=False)


def _keep_all(members: Sequence[GroupConsumer]) -> None:
    for one in members:
        one.keep()

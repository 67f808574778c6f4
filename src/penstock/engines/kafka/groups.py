"""Consumer groups as this process takes part in them: one member for each group that it has consumers of."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.engines.subscription.store import CursorChange
from penstock.model.errors import PenstockError
from penstock.runtime.tasks import Tasks

from .cursors import Cursor
from .driver.groups import Committed, KafkaGroups
from .driver.member import Members
from .driver.record import At
from .group import Group
from .stalls import Stalls
from .subscription import GroupSubscription

log = logging.getLogger(__name__)


class Move(Protocol):
    """Moves a subscription whose partition is not here."""

    async def __call__(self, source: GroupSubscription, offset: int, *, skip: bool) -> None: ...


class Groups:
    """Every group that this process has to do with; `store.CursorWriter` of their subscriptions."""

    elsewhere: Move

    def __init__(self, members: Members, outside: KafkaGroups, tasks: Tasks, prefix: str = "") -> None:
        self.outside = outside
        self.prefix = prefix  # of the groups' names
        self.stalls = Stalls(self._doubt)
        self._members = members
        self._tasks = tasks
        self._groups: dict[str, Group] = {}
        self._sources: dict[tuple[int, str], GroupSubscription] = {}

    def of(self, subscription: str) -> Group:
        """The group of a subscription."""
        found = self._groups.get(subscription)
        if found is None:
            name = self.prefix + subscription
            found = self._groups[subscription] = Group(name, self._members, self.outside, self._tasks)
        return found

    @property
    def stalled(self) -> bool:
        """As `subscription.Membership.stalled`."""
        return self.stalls.stalled

    def _doubt(self) -> None:
        log.warning("this process stood still: its groups are asked what it has")
        for group in self.all:
            group.doubt()

    @property
    def all(self) -> list[Group]:
        """Every group."""
        return list(self._groups.values())

    def know(self, source: GroupSubscription) -> None:
        """A subscription is made."""
        self._sources[source.topic.ledger, source.name] = source

    def forget(self, source: GroupSubscription) -> None:
        """A subscription is gone here."""
        self._sources.pop((source.topic.ledger, source.name), None)
        group = self._groups.get(source.name)
        if group is not None:
            group.forget(source)
            self._tasks.spawn(self._settle(group), f"leave group {group.name}")

    async def stand(
        self,
        sources: Sequence[GroupSubscription],
        committed: Mapping[At, tuple[Committed, Cursor]] | None = None,
    ) -> None:
        """As `subscription.Membership.stand`, for subscriptions of one name; `committed` where that was asked for already."""
        if committed is None:
            committed = await self.of(sources[0].name).committed([source.at for source in sources])
        await asyncio.gather(*(source.topic.refresh() for source in sources))
        for source in sources:
            await source.read_properties()
            if not source.suspended or (source.consumers and source.commits):
                continue  # the partition is here, or goes, and its last commit is under way
            if source.at in committed:
                source.load(committed[source.at][1], committed[source.at][0])
            elif not source.consumers:
                source.load(Cursor(source.topic.first_offset), None)

    async def move(self, source: GroupSubscription, offset: int, *, skip: bool) -> None:
        """As `subscription.Membership.move`."""
        await self.elsewhere(source, offset, skip=skip)

    def emptied(self, source: GroupSubscription) -> None:
        """As `subscription.Membership.emptied`."""
        group = self._groups.get(source.name)
        if group is not None:
            self._tasks.spawn(self._settle(group), f"leave group {group.name}")

    async def _settle(self, group: Group) -> None:
        try:
            await group.settle()
        except PenstockError as error:
            log.info("group %s: %s", group.name, error.message)
        for name, one in list(self._groups.items()):
            if one is group and one.unused:
                del self._groups[name]

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        """Commit these cursors; raises the first error, when all were tried."""
        by_group: dict[str, list[GroupSubscription]] = {}
        for change in changes:
            source = self._sources.get((change.ledger, change.subscription))
            if source is not None:
                by_group.setdefault(source.name, []).append(source)
        saves = (self.of(name).commits.save(sources) for name, sources in by_group.items())
        for result in await asyncio.gather(*saves, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        """Nothing: a subscription is deleted for all partitions of a topic (`Subscriptions.delete`)."""

    async def close(self) -> None:
        """Leave every group; cursors are committed first."""
        self.stalls.close()
        await self._members.close()

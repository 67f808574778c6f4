"""One consumer group as this process takes part in it.

The group gives partitions to processes; each deals those that it has to its own consumers. What a process commits is refused once it
is no member any more, and it commits nothing for a partition that was taken away.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import SubscriptionType
from penstock.runtime.tasks import Tasks

from .commits import Commits
from .cursors import Cursor, cursor_of
from .driver.groups import Committed, KafkaGroups
from .driver.groups import Member as GroupMember
from .driver.member import Member, Members
from .driver.record import At
from .subscription import GroupSubscription

log = logging.getLogger(__name__)

JOIN_S: Final = (
    30.0  # until a group has given out its partitions; brokers wait some seconds for the first members
)
RETRY_S: Final = 1.0  # after a cursor could not be read


class Group:
    """One group; `driver.member.Listener`. `sources` are the subscriptions that have, or had, consumers here."""

    def __init__(self, name: str, members: Members, outside: KafkaGroups, tasks: Tasks) -> None:
        self.name = name
        self.sources: dict[At, GroupSubscription] = {}
        self.assigned_at: dict[
            At, int
        ] = {}  # the partitions that this process has, and since which rebalance
        self._members = members
        self._outside = outside
        self._tasks = tasks
        self._member: Member | None = None
        self._was = ""  # the member that left last: the coordinator may show it still
        self._topics: frozenset[str] = frozenset()
        self._changing = asyncio.Lock()
        self._turn = 0
        self._turned: asyncio.Future[None] | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self.commits = Commits(name, tasks, self._send, self._check)

    # -- taking part

    async def enter(self, sources: Sequence[GroupSubscription]) -> None:
        """Have the partitions of these, as far as the group gives them to this process; raises UNAVAILABLE, FORBIDDEN."""
        for source in sources:
            self.sources[source.at] = source
        await self.settle()
        self._take([source.at for source in sources if source.at in self.assigned_at])
        if self._taking:
            await asyncio.wait(self._taking, timeout=JOIN_S)

    async def settle(self) -> None:
        """Have the membership be what the consumers need."""
        async with self._changing:
            wanted = frozenset(at[0] for at, source in self.sources.items() if source.consumers)
            if wanted == self._topics:
                return
            if not wanted:
                await self._leave()
                return
            if self._member is None:
                self._member = self._members.join(self.name, self)
            grows = bool(wanted - self._topics)
            turned = self._turned = asyncio.get_running_loop().create_future()
            await self._member.subscribe(wanted)
            self._topics = wanted
            if not grows:
                return
            try:
                async with asyncio.timeout(JOIN_S):
                    await self._members.clients.wait_unless_refused(turned)
            except TimeoutError:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE,
                    f"group {self.name} has not given out its partitions in {JOIN_S:.0f} s",
                ) from None

    async def _leave(self) -> None:
        member, self._member, self._topics = self._member, None, frozenset()
        if member is not None:
            self._was = member.id
            await self._members.leave(member)

    async def look(self, topic: str) -> None:
        """Have partitions assigned that a topic got."""
        if self._member is not None and topic in self._topics:
            await self._member.look()

    def forget(self, source: GroupSubscription) -> None:
        """A subscription is gone."""
        if self.sources.get(source.at) is source:
            del self.sources[source.at]

    @property
    def unused(self) -> bool:
        return not (self.sources or self._member or self._changing.locked())

    # -- partitions come and go

    def assigned(self, places: Sequence[At]) -> None:
        self._turn += 1
        self.assigned_at |= dict.fromkeys(places, self._turn)
        self._take(places)
        self._end_turn(None)

    def revoking(self, places: Sequence[At]) -> Mapping[At, Committed]:
        sources = [self.sources[at] for at in places if at in self.sources]
        changes = self.commits.changes([source for source in sources if not source.suspended])
        for source in sources:
            source.give_up()
        self._drop(places)
        self.commits.settled.clear()
        return {source.at: one for source, one in changes.items()}

    def revoked(self, places: Sequence[At], committed: Mapping[At, Committed]) -> None:
        for at, one in committed.items():
            if at in self.sources and self.sources[at].suspended:
                self.sources[at].saved = one
        self._ended(places)
        self.commits.settled.set()

    def lost(self, places: Sequence[At]) -> None:
        log.warning("group %s: partitions were taken away without notice", self.name)
        self._drop(places)
        for at in places:
            if at in self.sources:
                self.sources[at].give_up()
        self._ended(places)

    def doubt(self) -> None:
        """This process stood still, and others may have its partitions: nothing is delivered until a commit shows that they do not."""
        held = [source for source in self.sources.values() if source.consumers and not source.suspended]
        for source in held:
            source.doubted = True
        if held:
            self._tasks.spawn(self._confirm(held), f"ask what group {self.name} gives this process")

    async def _confirm(self, held: Sequence[GroupSubscription]) -> None:
        while doubted := [source for source in held if source.doubted]:  # it ends as the partition goes, too
            try:
                await self.commits.confirm(doubted[0])  # of the member, which has all of them or none
            except PenstockError as error:
                log.info("group %s does not say what this process has: %s", self.name, error.message)
                await asyncio.sleep(RETRY_S)
            else:
                for source in doubted:
                    source.doubted = False
                    source.wake()

    def _ended(self, places: Sequence[At]) -> None:
        """What is not committed of these never will be."""
        for at in places:
            source = self.sources.get(at)
            if source is not None and source.suspended:
                self.commits.end(source)

    def refused(self, error: PenstockError) -> None:
        self._end_turn(error)
        for source in list(self.sources.values()):
            for consumer in list(source.consumers):
                consumer.close(error)

    def _drop(self, places: Sequence[At]) -> None:
        for at in places:
            self.assigned_at.pop(at, None)

    def _end_turn(self, error: PenstockError | None) -> None:
        turned = self._turned
        if turned is not None and not turned.done():
            if error is None:
                turned.set_result(None)
            else:
                turned.set_exception(error)

    def _take(self, places: Iterable[At]) -> None:
        """Go on with what consumers wait for, from its cursors."""
        sources = [
            source
            for at in places
            if (source := self.sources.get(at))
            and source.suspended
            and source.consumers
            and not source.taking
        ]
        if not sources:
            return
        for source in sources:
            source.taking = True
        task = self._tasks.spawn(self._take_over(sources), f"read cursors of group {self.name}")
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take_over(self, sources: Sequence[GroupSubscription]) -> None:
        try:
            since = {source.at: self.assigned_at.get(source.at) for source in sources}
            committed: dict[At, Committed] = {}
            while any(self.assigned_at.get(at) == turn for at, turn in since.items() if turn):
                try:
                    committed = await self._outside.committed(self.name, since)
                    for source in sources:
                        await source.topic.refresh()
                    break
                except PenstockError as error:
                    log.info("the cursors of group %s cannot be read now: %s", self.name, error.message)
                await asyncio.sleep(RETRY_S)
            else:
                return
        finally:
            for source in sources:
                source.taking = False
        for source in sources:
            turn = since[source.at]
            if turn is None or self.assigned_at.get(source.at) != turn:
                continue
            saved = committed.get(source.at)
            cursor = None if saved is None else cursor_of(saved)
            if cursor is None:
                saved, cursor = None, Cursor(source.topic.first_offset)
            source.take_over(cursor, saved)
        self._take(
            [source.at for source in sources if source.at in self.assigned_at]
        )  # assigned again meanwhile

    # -- what is committed

    def _check(self, source: GroupSubscription) -> None:
        if self._topics and source.at not in self.assigned_at and source.consumers:
            source.check_committable()

    async def _send(self, changes: Mapping[At, Committed]) -> None:
        held = {at for at in changes if at in self.assigned_at}
        member = self._member
        if member is None or not held:
            await self.commit_outside(changes)
            return
        await member.commit(changes)

    async def commit_outside(self, changes: Mapping[At, Committed]) -> None:
        """Commit for partitions that no process has; raises SUBSCRIPTION_BUSY."""
        try:
            await self._outside.commit(self.name, changes)
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_BUSY or self._member is None:
                raise
            if await self.others(changes):
                raise
            await self._member.commit(changes)

    async def elsewhere(self) -> list[GroupMember]:
        """The members at other processes."""
        found, own = await self._outside.describe(self.name), (self._was, self.member_id)
        return [] if found is None else [one for one in found.members if one.id not in own]

    async def others(self, places: Iterable[At]) -> list[str]:
        """Those that have any of these partitions."""
        wanted = set(places)
        return [one.id for one in await self.elsewhere() if one.assigned & wanted]

    @property
    def member_id(self) -> str:
        return self._member.id if self._member else ""

    async def committed(self, places: Iterable[At]) -> dict[At, tuple[Committed, Cursor]]:
        """What is committed for partitions, but for those of a deleted subscription."""
        found = await self._outside.committed(self.name, places)
        cursors = ((at, one, cursor_of(one)) for at, one in found.items())
        return {at: (one, cursor) for at, one, cursor in cursors if cursor is not None}

    async def check_alone(
        self, places: Sequence[At], kind: SubscriptionType, *, joined: bool = False
    ) -> None:
        """Raise SUBSCRIPTION_BUSY where members elsewhere have these partitions, and one of them or of ours is exclusive.

        `joined`: both found the other absent; then the one whose name comes first stays.
        """
        others = await self.others(places)
        if not others or (joined and min(others) > self.member_id):
            return
        kinds = {cursor.type for _, cursor in (await self.committed(places)).values()} - {None}
        if SubscriptionType.EXCLUSIVE in (kind, *kinds):
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "Exclusive consumer is already connected")
        if kinds and not joined and kind not in kinds:
            (other, *_) = kinds
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY,
                f"subscription {self.name} is of type {other.value if other else ''}, not {kind.value}",
            )

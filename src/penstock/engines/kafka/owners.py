"""What is done with a subscription through any process: where the process is that has the partition, or here where nobody has it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .calls import Action, Call, Calls
from .cursors import DELETED
from .driver.groups import Committed
from .driver.record import At
from .group import Group
from .hosting import Hosting
from .subscription import GroupSubscription
from .topics import KafkaTopics

DONE_S: Final = 20.0  # twice what it takes until the partitions of a process that was killed are another's
AGAIN_S: Final = 0.1  # until it is looked again who has a partition
_AGAIN: Final = (ErrorKind.SUBSCRIPTION_BUSY, ErrorKind.UNAVAILABLE)


class Owners:
    """Finds who has a partition and has it done there; `perform` does here what other processes ask for."""

    calls: Calls

    def __init__(self, topics: KafkaTopics, hosting: Hosting) -> None:
        self._topics = topics
        self._hosting = hosting
        hosting.groups.elsewhere = self.move

    # -- asked for here

    async def move(self, source: GroupSubscription, offset: int, *, skip: bool) -> None:
        """As `subscription.Membership.move`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + DONE_S
        while True:
            try:
                async with asyncio.timeout_at(until):
                    await self._move_once(source, offset, skip=skip)
                return
            except TimeoutError:
                why = "no answer"
            except PenstockError as error:
                if error.kind not in _AGAIN:
                    raise
                why = error.message
            if loop.time() + AGAIN_S > until:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE,
                    f"the process that has {source.topic.name} of subscription {source.name} did not move it "
                    f"in {DONE_S:.0f} s, and may still do so: {why}",
                )
            await asyncio.sleep(AGAIN_S)

    async def _move_once(self, source: GroupSubscription, offset: int, *, skip: bool) -> None:
        group = self._hosting.groups.of(source.name)
        if not source.waiting:
            try:
                return await self._move_here(source, offset, skip=skip)
            except PenstockError as error:  # a group that has members takes commits from them alone
                if error.kind is not ErrorKind.SUBSCRIPTION_BUSY:
                    raise
        to = await self._member(group, [source.at])
        if to is None:
            raise PenstockError(ErrorKind.UNAVAILABLE, "no process has it")
        async with self._calling(group, [to], "skip" if skip else "move", [source], offset):
            await self._hosting.groups.stand([source])

    async def _move_here(self, source: GroupSubscription, offset: int, *, skip: bool) -> None:
        await source.topic.refresh()
        if source.suspended:
            await self._hosting.groups.stand([source])
        await source.move_here(offset, skip=skip)

    async def _member(self, group: Group, places: Iterable[At]) -> str | None:
        """The process elsewhere that has one of these partitions, or else any that is in the group; None: none is."""
        wanted, members = set(places), await group.elsewhere()
        having = [one.client_id for one in members if one.assigned & wanted]
        return next(iter(having or sorted(one.client_id for one in members)), None)

    @asynccontextmanager
    async def deleting(self, sources: Sequence[GroupSubscription]) -> AsyncIterator[None]:
        """Have all processes let the consumers of subscriptions of a topic go, and none come until the end."""
        group = self._hosting.groups.of(sources[0].name)
        to = {one.client_id for one in await group.elsewhere()}
        if not to:
            yield
            return
        async with self._calling(group, to, "dissolve", sources):
            yield

    async def forget(self, group: Group, source: GroupSubscription, places: Collection[At]) -> None:
        """Have commits say that their subscription is deleted; by a member, where there are any."""
        try:
            await group.commit_outside(dict.fromkeys(places, Committed(0, DELETED)))
        except PenstockError as error:
            to = await self._member(group, ()) if error.kind is ErrorKind.SUBSCRIPTION_BUSY else None
            if to is None:
                raise
            async with self._calling(group, [to], "forget", [source], places=places):
                pass

    @asynccontextmanager
    async def _calling(
        self,
        group: Group,
        to: Collection[str],
        action: Action,
        sources: Sequence[GroupSubscription],
        offset: int = 0,
        places: Collection[At] = (),
    ) -> AsyncIterator[None]:
        numbers = tuple(number for _, number in (places or [source.at for source in sources]))
        topic = str(sources[0].topic.name.base)
        call = Call(tuple(to), action, topic, sources[0].name, numbers, offset)

        async def there() -> list[str]:
            return [one.client_id for one in await group.elsewhere()]

        try:
            async with asyncio.timeout(DONE_S) as limit, self.calls.calling(call, there):
                limit.reschedule(None)
                yield
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"another process with consumers of subscription {sources[0].name} does not answer",
            ) from None

    async def over(self, name: TopicName, subscription: str) -> None:
        """Wait until a subscription that is being deleted is gone."""
        await self.calls.over(str(name.base), subscription)

    # -- asked for by another process

    async def perform(self, call: Call) -> None:
        """As `Calls.perform`."""
        topics = await self._topics.all_of(TopicName.parse(call.topic), create=False)
        named = [one for one in topics if one.place.partition in call.places]
        if not named:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{call.topic} has no such partition here")
        sources = [self._hosting.durable(one, call.subscription) for one in named]
        group = self._hosting.groups.of(call.subscription)
        match call.action:
            case "dissolve":
                await self.dissolve(group, sources)
            case "forget":
                places = [source.at for source in sources]
                await group.commit_outside(dict.fromkeys(places, Committed(0, DELETED)))
            case _:
                for source in sources:
                    if source.waiting:
                        raise PenstockError(ErrorKind.UNAVAILABLE, "this process has it no more, or not yet")
                    await self._move_here(source, call.offset, skip=call.action == "skip")

    async def dissolve(self, group: Group, sources: Sequence[GroupSubscription]) -> None:
        """Let the consumers of deleted subscriptions go, and their partitions."""
        why = PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, f"subscription {sources[0].name} was deleted")
        for source in sources:
            source.deleted = True
            source.dissolve(why)
        await group.settle()
        for source in sources:
            source.host.removed(source)

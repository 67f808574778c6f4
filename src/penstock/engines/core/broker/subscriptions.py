"""The subscriptions that run in this process: opened, created and ended. `consumers` keeps their consumers."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, cast

from penstock.engines.core.ports import Cursors, Held, Lease
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Locks

from .hosting import Host, Means, S, T

log = logging.getLogger(__name__)


class RunningSubscriptions(Generic[T, S]):
    """A durable subscription is opened when it is first used, and runs until this process loses its log, or the log is deleted.

    `kind` makes one, given whether its topic is held; None: it is not durable. `moved` is called when a cursor moved, `removed` when a
    subscription was deleted.
    """

    def __init__(
        self,
        lease: Lease[T],
        cursors: Cursors[T],
        means: Means,
        kind: Callable[..., S],
        *,
        moved: Callable[[T, S], None],
        removed: Callable[[T, S], None],
    ) -> None:
        self._lease = lease
        self._cursors = cursors
        self._means = means
        self._kind = kind
        self._moved = moved
        self._removed = removed
        self._locks: Locks[tuple[int, str]] = Locks()
        self._creating: set[tuple[int, str]] = set()  # durable ones, which are not stored yet

    def alone(self, topic: T, name: str) -> AbstractAsyncContextManager[None]:
        """While this is held, no subscription of that name is opened or created."""
        return self._locks.hold((topic.ledger, name))

    async def find(self, topic: T, name: str) -> S | None:
        """A durable subscription, if it exists. Raises SUBSCRIPTION_BUSY if readers have a subscription of this name, and as the ports
        do."""
        running = topic.served.get(name)
        if running is not None and running.durable:
            self._lease.hold(topic)
            return cast(S, running)
        async with self.alone(topic, name):
            return await self._find(topic, name)

    async def open_all(self, topic: T) -> None:
        """Open the durable subscriptions of a topic that has been refreshed; one that cannot be opened is logged."""
        for name in sorted({*self._cursors.names(topic)} - topic.served.keys()):
            try:
                async with self.alone(topic, name):
                    await self._find(topic, name, refreshed=True)
            except PenstockError as error:
                log.debug("subscription %s of %s is not opened: %s", name, topic.name, error.message)

    async def create(
        self, topic: T, name: str, mark: int, properties: Mapping[str, str] | None = None
    ) -> tuple[S, bool]:
        """A durable subscription, and whether it is new: then everything below `mark` counts as acknowledged, durably. Raises as
        `find`, and TOO_MANY_SUBSCRIPTIONS."""
        async with self.alone(topic, name):
            self._creating.add((topic.ledger, name))
            try:
                return await self._create(topic, name, mark, dict(properties or {}))
            finally:
                self._creating.discard((topic.ledger, name))

    async def _create(self, topic: T, name: str, mark: int, properties: dict[str, str]) -> tuple[S, bool]:
        found = await self._find(topic, name)
        if found is not None:
            return found, False
        self._check_room(topic)
        held = self._lease.hold(topic)
        await self._cursors.create(topic, name, mark, properties)
        made = self._run(topic, name, OffsetSet(mark), held, properties)
        topic.rewound()
        return made, True

    def transient(self, topic: T, name: str, mark: int, properties: Mapping[str, str] | None = None) -> S:
        """A subscription in memory, which ends with its consumers, and which any process may run. Raises SUBSCRIPTION_BUSY if a durable
        one has this name, or is being created, and TOO_MANY_SUBSCRIPTIONS."""
        found = topic.served.get(name)
        durable = (topic.ledger, name) in self._creating or self._cursors.has(topic, name)
        if found is None and not durable:
            self._check_room(topic)
            return self._run(topic, name, OffsetSet(mark), None, dict(properties or {}))
        if found is None or found.durable:
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} is durable")
        return cast(S, found)

    def _check_room(self, topic: T) -> None:
        if topic.policies.max_subscriptions:
            topic.check_subscriptions(len({*topic.served, *self._cursors.names(topic)}))

    async def _find(self, topic: T, name: str, *, refreshed: bool = False) -> S | None:
        held = self._lease.hold(topic)
        found = topic.served.get(name)
        if found is None:
            opened = await self._cursors.open(topic, name, refreshed=refreshed)
            return None if opened is None else self._run(topic, name, opened.cursor, held, opened.properties)
        if not found.durable:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} has consumers that are not durable"
            )
        return cast(S, found)

    def _run(
        self, topic: T, name: str, cursor: OffsetSet, held: Held | None, properties: dict[str, str]
    ) -> S:
        """Raises `Lease.lost` if the topic was lost since it was held, and TOPIC_NOT_FOUND if it was deleted: the subscription would
        never be ended."""
        if held is not None and not held():
            raise self._lease.lost(topic)
        topic.check_there()
        made = self._kind(
            topic,
            name,
            held,
            cursor=cursor,
            keys=self._means.keys,
            tasks=self._means.tasks,
            cursors=self._cursors.writer(topic),
            compaction=topic.compaction,
            host=Host(topic, self._means, self._moved, self.removed),
            properties=properties,
        )
        topic.served[name] = made
        topic.bound(made)
        return made

    def removed(self, topic: T, subscription: S) -> None:
        """A subscription was deleted, or does not run here any more."""
        self.unserve(topic, subscription)
        self._removed(topic, subscription)

    def unserve(self, topic: T, subscription: S) -> None:
        """Hide a subscription from lookups."""
        if topic.served.get(subscription.name) is subscription:
            del topic.served[subscription.name]

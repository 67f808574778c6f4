"""Consumers that join topics that come later, or grow: those that named them, and those of a pattern."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from penstock.broker.names import matched_name
from penstock.broker.topics import Topics
from penstock.broker.watches import Watch, WatchTopics
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.patterns import Pattern
from penstock.runtime.tasks import Tasks, chosen

from .consumer import Consumer
from .subscription import Subscription


async def _nothing() -> None:
    """An engine that is its own cluster has nothing to learn."""


class LaterTopics:
    """Has consumers `join` topics: attach to the existing partitions of a topic, from its beginning, so that no message is missed."""

    def __init__(
        self,
        topics: Topics,
        watch: WatchTopics,
        tasks: Tasks,
        join: Callable[[Consumer, TopicName], Coroutine[Any, Any, None]],
    ) -> None:
        self._topics = topics
        self._watch = watch
        self._tasks = tasks
        self._join = join
        self._by_pattern: dict[Consumer, Watch] = {}
        self._by_name: defaultdict[TopicName, set[Consumer]] = defaultdict(set)
        self._named: dict[Consumer, tuple[TopicName, ...]] = {}

    def add(self, consumer: Consumer, names: Sequence[TopicName]) -> None:
        """A consumer named these topics."""
        self._named[consumer] = tuple(names)
        for name in names:
            self._by_name[name].add(consumer)

    def names(self, consumer: Consumer) -> tuple[TopicName, ...]:
        """The topics that a consumer named."""
        return self._named.get(consumer, ())

    async def subscribe(
        self,
        pattern: str,
        namespace: NamespaceName,
        domain: str,
        subscribe: Callable[[Sequence[TopicName]], Awaitable[Consumer]],
        *,
        allowed: Callable[[TopicName], bool],
        learn: Callable[[], Awaitable[None]] = _nothing,
    ) -> Consumer:
        """As `Broker.subscribe_pattern`: `subscribe` makes the consumer of the topics that are there."""
        wanted = Pattern(pattern.split("://", 1)[-1])
        missed: dict[TopicName, None] = {}  # what changed before the consumer was there
        watch = self._watch(namespace, wanted, lambda name: missed.update({name: None}))
        try:
            await learn()
            names = self._topics.names(namespace, domain)
            consumer = await subscribe(
                await chosen(names, lambda name: wanted.fullmatch(matched_name(name)) and allowed(name))
            )
        except BaseException:
            watch.close()
            raise
        consumer.follows = True
        self._by_pattern[consumer] = watch

        def changed(name: TopicName) -> None:
            if consumer.closed:
                self.forget(consumer)
            elif name.domain == domain and self._topics.exists(name) and allowed(name):
                self._spawn(consumer, name)

        watch.callback = changed
        for name in missed:
            changed(name)
        return consumer

    def appeared(self, name: TopicName) -> None:
        """A topic appeared or grew: the consumers that named it join."""
        for consumer in list(self._by_name.get(name, ())):
            if consumer.closed:
                self.forget(consumer)
            else:
                self._spawn(consumer, name)

    def _spawn(self, consumer: Consumer, name: TopicName) -> None:
        self._tasks.spawn(self._join(consumer, name), f"join {name}")

    def forget(self, consumer: Consumer) -> None:
        """It joins nothing more."""
        watch = self._by_pattern.pop(consumer, None)
        if watch is not None:
            watch.close()
        for name in self._named.pop(consumer, ()):
            self._by_name[name].discard(consumer)
            if not self._by_name[name]:
                del self._by_name[name]


def drop_unused(
    sources: Sequence[Subscription], keep_ms: int, call_later: Callable[[float, Callable[[], None]], object]
) -> None:
    """A consumer left these: those that are not durable go with their last one, after `keep_ms`."""
    for source in sources:
        if source.durable or source.consumers:
            continue
        if keep_ms:
            call_later(keep_ms, source.drop_unused)
        else:
            source.drop_unused()

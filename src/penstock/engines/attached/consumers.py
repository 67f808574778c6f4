"""Makes consumers that are attached to the owners of their partitions: of named topics, and of those that match a pattern."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from penstock.broker.delivery import Budget
from penstock.broker.names import matched_name
from penstock.broker.topics import Topics
from penstock.model.names import NamespaceName, TopicName, check_subscription
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.patterns import Pattern
from penstock.runtime.tasks import Tasks

from .consumer import Cluster, Consumer
from .outstanding import Bury
from .topic_consumer import Answer, Means
from .unread import ArrivingSchemas

OPENING_MAX: Final = 4  # consumers that open at the same time: messages share the loop with them
OPENING_WAIT_S: Final = 1.0  # for others to open: some may wait for an owner


class AttachedConsumers:
    """`kind` is the class of consumers, and `give_reply` delivers their replies to requesters, if that is not the consumer's own
    business. `new_name` makes the names of those without one."""

    def __init__(
        self,
        topics: Topics,
        schemas: ArrivingSchemas,
        clock: Clock,
        tasks: Tasks,
        bury: Bury,
        failures: Failures,
        *,
        new_name: Callable[[str], str],
        give_reply: Answer | None,
        leave_s: Callable[[], float | None] = lambda: None,
        kind: type[Consumer] = Consumer,
    ) -> None:
        self._topics = topics
        self._means = Means(topics, schemas, clock, tasks, bury, failures, give_reply, leave_s)
        self._new_name = new_name
        self._kind = kind
        self._opening = asyncio.Semaphore(OPENING_MAX)

    async def subscribe(
        self,
        cluster: Cluster,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe`."""
        consumer = self._make(cluster, names, subscription, options, budget)
        async with self._turn():
            await consumer.open(unique_name=unique_name)
        return consumer

    async def subscribe_pattern(
        self,
        cluster: Cluster,
        pattern: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        namespace: NamespaceName,
        domain: str,
        allowed: Callable[[TopicName], bool],
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe_pattern`."""
        fits = Pattern(pattern.partition("://")[2] or pattern).fullmatch

        def matches(name: TopicName) -> bool:
            return name.namespace_name == namespace and name.domain == domain and fits(matched_name(name))

        async def matching() -> Sequence[TopicName]:
            await self._topics.learn_names(namespace)
            names = self._topics.names(namespace, domain)
            return [name for name in names if matches(name) and allowed(name)]

        consumer = self._make(cluster, await matching(), subscription, options, budget)
        async with self._turn():
            await consumer.open(follow=matching, matches=matches)
        return consumer

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait until few others open consumers; not for long, as they may wait for owners of partitions."""
        taken = False
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_WAIT_S):
                taken = await self._opening.acquire()
        try:
            yield
        finally:
            if taken:
                self._opening.release()

    def _make(
        self,
        cluster: Cluster,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        budget: Budget | None,
    ) -> Consumer:
        check_subscription(subscription)
        name = self._new_name("consumer")
        return self._kind(self._means, cluster, names, subscription, options, budget, name)

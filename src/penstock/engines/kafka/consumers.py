"""The consumers of this process: attached to every partition of the topics that they name, also to those that come later."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import cast

from penstock.broker.consumer import Consumer as AnyConsumer
from penstock.broker.delivery import Budget
from penstock.broker.names import matched_name
from penstock.broker.patterns import Pattern
from penstock.broker.watches import Watch, Watches
from penstock.engines.subscription import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import NamespaceName, TopicName, check_local
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Slices, Tasks

from .elsewhere import ShownConsumers
from .hosting import Hosting, check_type
from .subscription import GroupSubscription
from .subscriptions import KafkaSubscriptions
from .topic import KafkaTopic
from .topics import KafkaTopics


class Consumers:
    """Attaches consumers and lets them go. `new_name` makes a name for those that bring none."""

    def __init__(
        self,
        topics: KafkaTopics,
        hosting: Hosting,
        subscriptions: KafkaSubscriptions,
        watches: Watches,
        clock: Clock,
        tasks: Tasks,
        *,
        new_name: Callable[[str], str],
        shown: ShownConsumers,
    ) -> None:
        self._topics = topics
        self._hosting = hosting
        self._subscriptions = subscriptions
        self._watches = watches
        self._clock = clock
        self._tasks = tasks
        self._new_name = new_name
        self._shown = shown
        self._by_pattern: dict[Consumer, Watch] = {}
        self._by_name: defaultdict[TopicName, set[Consumer]] = defaultdict(set)
        self._named: dict[Consumer, tuple[TopicName, ...]] = {}
        topics.listeners.add(self._changed)

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe`."""
        check_local("subscription", subscription)
        called = options.name or self._new_name("consumer")
        consumer = Consumer(called, subscription, options, budget, self._clock.now_ms())
        try:
            for name in names:
                await self._attach(consumer, await self._topics.all_of(name), unique_name=unique_name)
            await self._enter(consumer, first=True)
            if options.durable:
                await self._shown.show(called, names, subscription, options.properties)
        except BaseException:
            await self.leave(consumer)
            raise
        self._named[consumer] = tuple(names)
        for name in names:
            self._by_name[name].add(consumer)
        return consumer

    async def subscribe_pattern(
        self,
        pattern: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        namespace: NamespaceName,
        domain: str = "persistent",
        allowed: Callable[[TopicName], bool] = lambda name: True,
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe_pattern`."""
        wanted = Pattern(pattern.split("://", 1)[-1])
        missed: dict[TopicName, None] = {}  # what changed before the consumer was there
        watch = self._watches.add(namespace, wanted, lambda name: missed.update({name: None}))
        try:
            await self._topics.learn_names(namespace)
            names = []
            slices = Slices()
            for name in self._topics.names(namespace, domain):
                await slices.step()
                if wanted.fullmatch(matched_name(name)) and allowed(name):
                    names.append(name)
            consumer = await self.subscribe(names, subscription, options, budget=budget)
        except BaseException:
            self._watches.remove(watch)
            raise
        consumer.follows = True
        self._by_pattern[consumer] = watch

        def changed(name: TopicName) -> None:
            if consumer.closed:
                self._forget(consumer)
            elif name.domain == domain and self._topics.exists(name) and allowed(name):
                self._tasks.spawn(self._join(consumer, name), f"join {name}")

        watch.callback = changed
        for name in missed:
            changed(name)
        return consumer

    # -- attaching

    async def _attach(
        self,
        consumer: Consumer,
        topics: Sequence[KafkaTopic],
        *,
        unique_name: bool = False,
        later: bool = False,
    ) -> None:
        """Attach a consumer to the logs of one topic; `later`: they are read from their beginning."""
        options = consumer.options
        # An id says nothing of the other partitions: they begin with what there is.
        named = {topic.ledger for topic in topics} & {options.start.ledger}
        marks: dict[KafkaTopic, int] = {}
        for topic in topics:
            check_type(topic, options.type)
            await topic.refresh()
            start = EARLIEST if later or (named and topic.ledger not in named) else options.start
            marks[topic] = await topic.offset_after(start, inclusive=options.start_inclusive)
        fresh = options.durable and await self._subscriptions.begin(
            topics, consumer.subscription, marks, options
        )
        for topic in topics:
            if consumer.closed:
                return
            source = (
                self._hosting.durable(topic, consumer.subscription, options.subscription_properties)
                if options.durable
                else self._hosting.transient(topic, consumer.subscription, marks[topic])
            )
            if consumer not in source.consumers:
                source.add(consumer, unique_name=unique_name)
            if fresh and options.subscription_properties and topic is topics[0]:
                await source.set_properties(options.subscription_properties)

    async def _enter(self, consumer: Consumer, *, first: bool) -> None:
        """Take part in the group, and see that nobody elsewhere stands against it."""
        sources = [one for one in consumer.attached if isinstance(one, GroupSubscription)]
        if not sources:
            return
        group = self._hosting.groups.of(consumer.subscription)
        places = [one.at for one in sources]
        kind = consumer.options.type
        if first:
            await group.check_alone(places, kind)
        await group.enter(sources)
        if first:
            await group.check_alone(places, kind, joined=True)

    # -- topics that come later

    def _changed(self, name: TopicName) -> None:
        """A topic came, grew or went: the consumers that named it join."""
        for consumer in list(self._by_name.get(name, ())):
            if consumer.closed:
                self._forget(consumer)
            elif self._topics.exists(name):
                self._tasks.spawn(self._join(consumer, name), f"join {name}")

    def _forget(self, consumer: Consumer) -> None:
        """It joins nothing more."""
        watch = self._by_pattern.pop(consumer, None)
        if watch is not None:
            self._watches.remove(watch)
        for name in self._named.pop(consumer, ()):
            self._by_name[name].discard(consumer)
            if not self._by_name[name]:
                del self._by_name[name]

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        """Attach a consumer to a topic that appeared or grew: from its beginning, lest messages be missed."""
        try:
            topics = await self._topics.all_of(name, create=False)
            known = {one.topic.ledger for one in consumer.attached}
            fresh = [topic for topic in topics if topic.ledger not in known]
            if not fresh or consumer.closed:
                return
            await self._attach(consumer, fresh, later=True)
            await self._enter(consumer, first=False)
            await self._hosting.groups.of(consumer.subscription).look(fresh[0].place.topic)
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise

    # -- going

    async def leave(self, consumer: AnyConsumer, *, keep_ms: int = 0) -> None:
        """As `Broker.leave`."""
        consumer = cast(Consumer, consumer)
        attached = consumer.attached
        consumer.close()
        self._shown.hide(consumer.name, self._named.get(consumer, ()), consumer.subscription)
        self._forget(consumer)
        for source in attached:
            if source.durable or source.consumers:
                continue
            if keep_ms:
                self._clock.call_later(keep_ms, source.drop_unused)
            else:
                source.drop_unused()

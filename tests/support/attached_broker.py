"""An embedded broker whose consumers are attached to it, as those of a process that does not own the partitions."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from penstock.broker.broker import Broker
from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.broker.topic_listeners import TopicListeners
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.link import Attachment, LinkSink, Moved, OwnerLink
from penstock.engines.attached.local_link import LocalLink
from penstock.engines.attached.subscription import Subscription, attached_subscription
from penstock.engines.attached.topic_consumer import Means
from penstock.engines.shared.dead_letters import DeadLetters, KeptProducers
from penstock.model.entry import Entry
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.model.target import Target
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire


class AttachedTopic:
    """A topic of the owner, with the subscriptions as the attached process sees them."""

    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self.subscriptions: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)


class Owner:
    """The connection to the owner of all partitions, which may change. `topics` as consumers use them."""

    numbered = True

    def __init__(self, broker: Broker | None) -> None:
        self.broker = broker  # None: there is no owner
        self.tasks = Tasks()
        self.listeners = TopicListeners()
        self.asked = 0  # times that a link was asked for
        self._topics: dict[TopicName, AttachedTopic] = {}

    def subscription(self, topic: Any, name: str) -> Subscription:
        return attached_subscription(partial(Subscription, self), topic, name)

    def flag(self, name: str, default: bool = False) -> bool:
        return name == "acknowledgmentAtBatchIndexLevelEnabled"

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        self.asked += 1
        if self.broker is None:
            raise Moved(wanted.topic)
        return LocalLink(self.broker, wanted, sink, self.tasks)

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[AttachedTopic]:
        assert self.broker is not None
        found = []
        for topic in await self.broker.topics.all_of(name, create=create):
            known = self._topics.get(topic.name)
            if known is None or known._topic is not topic:
                known = self._topics[topic.name] = AttachedTopic(topic)
            found.append(known)
        return found

    async def learn(self, name: TopicName) -> None:
        pass

    async def call(self, method: str, target: Target, *, body: Any = None, **query: Any) -> Any:
        """What subscriptions ask the owner's admin REST for."""
        assert self.broker is not None
        _, _, domain, tenant, namespace, local, what = target.segments
        assert method == "GET"
        topic = await self.broker.topics.get(
            TopicName.parse(f"{domain}://{tenant}/{namespace}/{local}"), create=False
        )
        if what == "subscriptions":
            return list(topic.subscriptions)
        cursors: dict[str, Any] = {}
        for name, one in topic.subscriptions.items():
            before = await topic.entry_at(one.cursor.mark) - 1
            cursors[name] = {"markDeletePosition": f"{topic.ledger}:{before}"}
        if what == "internalStats":
            return {"cursors": cursors}
        assert what == "stats"
        stats = {
            name: {
                "msgBacklog": one.backlog,
                "unackedMessages": one.unacked,
                "consumers": [{}] * len(one.consumers),
                "type": "" if one.type is None else one.type.value,
            }
            for name, one in topic.subscriptions.items()
        }
        return {"subscriptions": stats}


class Schemas:
    """The owner runs in this process: what it delivers, it knows the schema of."""

    def knows(self, topic: TopicName, version: int) -> bool:
        return True

    async def fetch(self, topic: TopicName, version: int) -> None:
        raise AssertionError("no schema is fetched")


class AttachedBroker:
    """`core`, except that its consumers are attached consumers over `LocalLink`."""

    def __init__(self, core: Broker) -> None:
        self.core = core
        self.owner = Owner(core)
        self._letter_producers = KeptProducers(core.producer)
        self._letters = DeadLetters(wire.decode, self._letter_producers.lend, core.schemas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Any = None,
    ) -> Consumer:
        consumer = self.consumer(names, subscription, options, budget)
        await consumer.open(unique_name=unique_name)
        return consumer

    def consumer(
        self, names: Sequence[TopicName], subscription: str, options: ConsumerOptions, budget: Any = None
    ) -> Consumer:
        """A consumer that is not open yet."""
        means = Means(
            self.owner,  # type: ignore[arg-type]
            Schemas(),
            self.core.clock,
            self.owner.tasks,
            self._letters.bury,
            self.core.failures,
            self._replier(subscription),
        )
        name = self.core.new_name("consumer")
        return Consumer(means, self.owner, names, subscription, options, budget, name)

    def _replier(self, subscription: str) -> Callable[[Entry, TopicName, Reply], Awaitable[Outcome]]:
        async def give(entry: Entry, topic: TopicName, reply: Reply) -> Outcome:
            raise AssertionError("requests are not part of these tests")

        return give

    async def close(self) -> None:
        self._letter_producers.close()
        for topic in list(self.owner._topics.values()):
            for source in list(topic.subscriptions.values()):
                for consumer in list(source.consumers):
                    await consumer.leave()
        await self.core.close()
        await self.owner.tasks.close()

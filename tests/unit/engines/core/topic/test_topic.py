"""A topic: what observes it, and what waits for it to grow."""

import asyncio

from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.engines.core.topic import Topic
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import settle


class Observer:
    """Notes what it is called for, and how much the topic held then."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, TopicName, int]] = []

    def opened(self, topic: Topic) -> None:
        self.seen.append(("opened", topic.name, topic.next_entry))

    async def trimming(self, topic: Topic, before_entry: int) -> None:
        assert await topic.entry(before_entry - 1)  # still there
        self.seen.append(("trimming", topic.name, before_entry))

    async def deleted(self, topic: Topic) -> None:
        self.seen.append(("deleted", topic.name, topic.next_entry))


async def test_an_observer_sees_a_topic_open_shrink_and_go() -> None:
    async with bench() as b:
        observer = Observer()
        b.broker.topics.observers.append(observer)
        await b.publish(b"a", b"b", b"c", batch=False)
        topic = await b.broker.topics.get(TOPIC)
        await topic.trim(2)
        await topic.trim(2)  # nothing is left to trim
        await b.broker.topics.delete(TOPIC, force=False)
        assert observer.seen == [("opened", TOPIC, 0), ("trimming", TOPIC, 2), ("deleted", TOPIC, 3)]


async def test_waiting_for_growth_ends_with_a_message_the_time_or_the_topic() -> None:
    async with bench() as b:
        topic = await b.broker.topics.get(TOPIC, create=True)
        tasks = Tasks()
        grown = tasks.spawn(topic.grown(0, 60_000), "wait")
        await settle()
        assert not grown.done()
        await b.publish(b"a")
        assert await grown
        assert not await topic.grown(1, 0)
        ended = [tasks.spawn(topic.grown(1, 60_000), "wait") for _ in range(2)]
        await settle()
        await b.broker.topics.terminate(TOPIC)
        assert await asyncio.gather(*ended) == [False, False]
        assert not topic.followers

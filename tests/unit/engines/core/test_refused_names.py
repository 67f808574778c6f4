"""What a store has under names that are refused now: a server starts, serves the rest, and keeps it."""

import msgspec
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.topics import TopicDocument
from penstock.engines.core.ports import CursorChange
from penstock.engines.memory import MemoryStore
from penstock.model.names import DEFAULT_NAMESPACE
from penstock.model.policy import TopicPolicies

TOPICS = ("persistent://public/default/..", "persistent://public/default/.")


async def test_a_server_starts_with_such_topics_and_subscriptions() -> None:
    store = MemoryStore()
    async with bench(store=store) as before:
        await before.publish(b"a", b"b")
        topic = await before.broker.topics.get(TOPIC)
        await store.save_cursors(
            [CursorChange(topic.ledger, name, 0, {}, b"{}") for name in ("..", ".", "s")]
        )
    for name in TOPICS:
        policies = msgspec.json.encode(TopicPolicies())
        document = msgspec.json.encode(TopicDocument(partitions=0))
        await store.save_meta([("topic", name, document), ("topic-policies", name, policies)])

    async with bench(store=store) as after:
        assert after.broker.topics.names(DEFAULT_NAMESPACE) == [TOPIC]
        assert list((await after.broker.topics.get(TOPIC)).subscriptions) == ["s"]
        assert await after.payloads(await after.consumer()) == [b"a", b"b"]
    assert set(TOPICS) < set(await store.load_meta("topic"))
    assert {one.subscription for one in await store.load_cursors(topic.ledger)} >= {"..", "."}

"""Subscriptions that begin where a consumer group goes on, over an engine that has such groups."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.group_start import create_at_group, ensure_at_group

TOPIC = TopicName.parse("orders")
PARTITIONS = [TOPIC.of_partition(number) for number in range(2)]
POSITIONS = {name: MessageId(7, 3 + name.partition, name.partition) for name in PARTITIONS}


class Engine:
    """A broker whose topic has two partitions; `made` are its subscriptions by partition."""

    def __init__(self, *, auto: bool = True, exists: tuple[TopicName, ...] = ()) -> None:
        self.made: dict[TopicName, tuple[MessageId, bool]] = {}
        self.exists = set(exists)
        self.asked: list[str] = []
        self.subscriptions = self.topics = self
        self.auto = auto

    async def group_positions(self, topic: TopicName, group: str) -> Mapping[TopicName, MessageId]:
        assert topic == TOPIC
        self.asked.append(group)
        return POSITIONS

    async def of(self, topic: TopicName, subscription: str) -> list[object]:
        if not self.exists.issuperset(PARTITIONS):
            raise PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, subscription)
        return []

    async def all_of(self, topic: TopicName, *, create: bool) -> list[Any]:
        assert not create
        figures = SimpleNamespace(policies=SimpleNamespace(auto_subscriptions=self.auto))
        return [SimpleNamespace(figures=lambda: figures)]

    async def create(
        self,
        topic: TopicName,
        subscription: str,
        start: MessageId,
        *,
        inclusive: bool,
        properties: dict[str, str] | None,
    ) -> None:
        if topic in self.exists:
            raise PenstockError(ErrorKind.ALREADY_EXISTS, subscription)
        self.made[topic] = start, inclusive


def broker(engine: Engine) -> Any:
    return engine


async def test_partitions_that_have_the_subscription_keep_theirs() -> None:
    first, second = PARTITIONS
    engine = Engine(exists=(first,))
    await create_at_group(broker(engine), TOPIC, "s", "g")
    assert engine.made == {second: (POSITIONS[second], True)}
    engine = Engine(exists=(first, second))
    with pytest.raises(PenstockError) as refused:
        await create_at_group(broker(engine), TOPIC, "s", "g")
    assert refused.value.kind is ErrorKind.ALREADY_EXISTS
    assert engine.made == {}


async def test_a_consumer_creates_a_subscription_only_if_it_is_new_and_may_be_created() -> None:
    engine = Engine(exists=tuple(PARTITIONS))
    await ensure_at_group(broker(engine), TOPIC, "s", "g")
    assert engine.asked == []
    engine = Engine(auto=False)
    with pytest.raises(PenstockError) as refused:
        await ensure_at_group(broker(engine), TOPIC, "s", "g")
    assert refused.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
    assert (engine.asked, engine.made) == ([], {})
    engine = Engine()
    await ensure_at_group(broker(engine), TOPIC, "s", "g")
    assert engine.made == {name: (position, True) for name, position in POSITIONS.items()}

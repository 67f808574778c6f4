"""Watched lists of topics: a change costs a match of its own name, and the lists are always as if made anew."""

import random
import time
from typing import Any

import pytest
from tests.unit.protocols.binary.handlers import ClientSession, sessions

from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import ConsumerOptions
from penstock.protocols.binary.topic_lists import hash_of
from penstock.runtime.patterns import Pattern
from penstock.wire.pulsar_pb2 import (
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
)

pytestmark = pytest.mark.anyio

PATTERNS = 30
WATCHES = 100  # of each of three connections
TOPICS = 2_000


class Counted:
    """How often a name was matched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        real = Pattern.fullmatch

        def fullmatch(pattern: Pattern, name: str) -> bool:
            self.names.append(name)
            return real(pattern, name)

        monkeypatch.setattr(Pattern, "fullmatch", fullmatch)


def watch(number: int, pattern: str) -> CommandWatchTopicList:
    return CommandWatchTopicList(
        request_id=number, watcher_id=number, namespace="public/default", topics_pattern=pattern
    )


def name(local: str) -> TopicName:
    return TopicName.parse(f"persistent://public/default/{local}")


async def heard(one: ClientSession, count: int) -> list[Any]:
    """So many answers: on a busy machine they come in many slices of time."""
    found: list[Any] = []
    while len(found) < count:
        found += await one.heard()
    assert len(found) == count
    return found


async def test_a_change_matches_its_own_name_once_for_each_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sessions(count=3) as clients:
        topics = clients[0].bench.broker.topics
        for number in range(TOPICS):
            await topics.create(name(f"topic-{number}"), 0)
        for one in clients:
            await one.connect()
            for number in range(WATCHES):
                one.say(watch(number, f"public/default/topic-{number % PATTERNS}.*"))
            for answer in await heard(one, WATCHES):
                assert isinstance(answer, CommandWatchTopicListSuccess)
        counted = Counted(monkeypatch)
        began = time.thread_time()
        await topics.create(name("topic-7x"), 0)
        wanted = sum(number % PATTERNS == 7 for number in range(WATCHES))
        for one in clients:
            for update in await heard(one, wanted):
                assert list(update.new_topics) == [str(name("topic-7x"))]
        assert counted.names == ["public/default/topic-7x"] * PATTERNS
        counted.names.clear()
        await topics.delete(name("topic-7x"), force=False)
        for one in clients:
            for update in await heard(one, wanted):
                assert list(update.deleted_topics) == [str(name("topic-7x"))]
        assert counted.names == ["public/default/topic-7x"] * PATTERNS
        assert time.thread_time() - began < 2


async def test_another_namespaces_changes_match_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(watch(1, "public/default/.*"))
        counted = Counted(monkeypatch)
        await one.bench.broker.namespaces.create(NamespaceName.parse("public/other"))
        await one.bench.broker.topics.create(TopicName.parse("public/other/t"), 0)
        assert await one.heard() == []
        assert counted.names == []


async def test_consumers_of_a_pattern_match_the_changed_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with sessions() as (one,):
        broker = one.bench.broker
        for number in range(20):
            await broker.topics.create(name(f"other-{number}"), 0)
        consumers = [
            await broker.subscribe_pattern(
                "public/default/wanted-.*",
                f"s{number}",
                ConsumerOptions(),
                namespace=name("t").namespace_name,
            )
            for number in range(10)
        ]
        counted = Counted(monkeypatch)
        await broker.topics.create(name("wanted-1"), 2)
        await one.heard()
        assert counted.names == ["public/default/wanted-1"]
        assert all(len(consumer.attached) == 2 for consumer in consumers)
        await broker.topics.set_partitions(name("wanted-1"), 3)
        await one.heard()
        assert all(len(consumer.attached) == 3 for consumer in consumers)
        for consumer in consumers:
            await consumer.leave()
        counted.names.clear()
        await broker.topics.create(name("wanted-2"), 0)
        await one.heard()
        assert counted.names == []


async def test_the_list_is_always_as_if_made_anew() -> None:
    """Topics whose names begin alike come, grow and go in any order, also while lists are made."""
    dice = random.Random(1)
    alike = ["t", "t-partition-5x", "t-", "tt", "t-partition-", "u", "t-partition", "t.partition-1"]
    async with sessions(count=2) as (one, other):
        await one.connect()
        await other.connect()
        topics = one.bench.broker.topics
        began = await one.ask(watch(1, "public/default/t.*"))
        mirror = set(began.topic)
        for _ in range(300):
            chosen = name(dice.choice(alike))
            if not topics.exists(chosen):
                await topics.create(chosen, dice.choice((0, 1, 12)))
            elif (count := topics.partitions(chosen)) and dice.random() < 0.5:
                await topics.set_partitions(chosen, count + dice.randrange(3))
            else:
                await topics.delete(chosen, force=True)
            if dice.random() < 0.5:
                continue  # several changes at once
            if dice.random() < 0.2:
                one.session.review()
            for update in await one.heard():
                assert isinstance(update, CommandWatchTopicUpdate)
                assert not mirror & set(update.new_topics)
                assert mirror >= set(update.deleted_topics)
                mirror = (mirror | set(update.new_topics)) - set(update.deleted_topics)
                last = update.topics_hash
                assert last == hash_of(sorted(mirror))
            asked = CommandGetTopicsOfNamespace(
                request_id=2, namespace="public/default", topics_pattern="public/default/t.*"
            )
            assert mirror == set((await other.ask(asked)).topics)

"""Consumers without a partition are told of once, and not while a rebalance goes on."""

import logging
from typing import Any

import pytest

from penstock.engines.kafka.waits import SAID_S, Waits
from penstock.engines.subscription.receiver import Receiver
from penstock.model.names import TopicName
from penstock.model.policy import ClientInfo, ConsumerOptions


class Topic:
    def __init__(self, partition: int) -> None:
        self.name = TopicName.parse(f"orders-partition-{partition}")
        self.ledger = partition


class Source:
    """A subscription of a partition, which another process has."""

    def __init__(self, partition: int, *consumers: Receiver) -> None:
        self.topic, self.at = Topic(partition), ("orders", partition)
        self.consumers = consumers
        self.here = False
        for consumer in consumers:
            consumer.attach(self)  # type: ignore[arg-type]

    @property
    def waiting(self) -> bool:
        return not self.here

    halted = waiting

    def remove(self, consumer: Receiver) -> None: ...


class Group:
    def __init__(self, *sources: Source) -> None:
        self.sources = {source.at: source for source in sources}


def consumer(name: str) -> Receiver:
    return Receiver(name, "s", ConsumerOptions(client=ClientInfo("10.0.0.9:1")))


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["consumer"] for record in caplog.records]


@pytest.fixture
def groups(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO)
    one, other = consumer("one"), consumer("other")
    return [Group(Source(0, one, other), Source(1, one))]


def test_each_is_told_of_once(groups: Any, caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    for now in (0.0, 1.0, SAID_S - 0.1):
        waits.look(groups, now)
    assert said(caplog) == []
    waits.look(groups, SAID_S)
    assert sorted(said(caplog)) == ["one", "other"]
    told = caplog.records[0].__dict__
    assert (told["subscription"], told["client"]) == ("s", "10.0.0.9:1")
    assert told["topics"] == ["persistent://public/default/orders"]
    waits.look(groups, 10 * SAID_S)
    assert len(said(caplog)) == 2


def test_one_partition_of_several_is_enough(groups: Any, caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    groups[0].sources["orders", 1].here = True
    waits.look(groups, 0)
    waits.look(groups, SAID_S)
    assert said(caplog) == ["other"]
    groups[0].sources["orders", 1].here = False  # it goes, and the time begins
    waits.look(groups, 20)
    waits.look(groups, 20 + SAID_S - 1)
    assert said(caplog) == ["other"]
    waits.look(groups, 20 + SAID_S)
    assert said(caplog) == ["other", "one"]


def test_what_has_ended_is_forgotten(groups: Any, caplog: pytest.LogCaptureFixture) -> None:
    waits = Waits()
    waits.look(groups, 0)
    waits.look(groups, SAID_S)
    for source in groups[0].sources.values():
        for one in source.consumers:
            one.close()
        source.consumers = ()
    waits.look(groups, 2 * SAID_S)
    assert (len(said(caplog)), waits._since, waits._said) == (2, {}, set())

"""Figures of a topic over several processes."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.cluster import Elsewhere
from penstock.engines.core.topic import Topic
from penstock.model.names import TopicName
from penstock.protocols.admin.stats import service_stats

CONSUMER = {"consumerName": "there"}


def served(backlog: int, out: int, **more: Any) -> dict[str, Any]:
    """A subscription as the process that serves it shows it."""
    counts = {"msgRateOut": 1.0, "msgThroughputOut": 10.0, "bytesOutCounter": 10 * out, "msgOutCounter": out}
    return {"msgBacklog": backlog, "consumers": [CONSUMER], "durable": True, **counts, **more}


def said(subscriptions: dict[str, Any], published: int) -> dict[str, Any]:
    rates = {"msgRateIn": 0.5, "msgThroughputIn": 5.0, "bytesInCounter": 7, "msgInCounter": published}
    return {"subscriptions": subscriptions, "publishers": [{"producerName": "there"}], **rates}


async def stats(
    bench: Bench, name: TopicName, *elsewhere: Any, unanswered: tuple[str, ...] = ()
) -> dict[str, Any]:
    async def ask(topic: TopicName) -> Elsewhere:
        assert topic == name
        return Elsewhere(elsewhere, unanswered)

    broker: Any = SimpleNamespace(topics=bench.broker.topics, cluster=SimpleNamespace(elsewhere=ask))
    return await service_stats(broker, name)


async def test_what_processes_count_is_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as made:
        await made.publish(b"a", b"b")
        await made.consumer(subscription="s")
        await made.consumer(subscription="r", durable=False)
        (here,) = await made.broker.topics.all_of(TOPIC)
        monkeypatch.setattr(Topic, "counted", [here.subscriptions["r"]])
        reader = served(1, 4, durable=False)
        found = await stats(
            made, TOPIC, said({"s": served(9, 20), "r": reader, "new": served(3, 1)}, 5), said({}, 1)
        )
        assert {name: one["msgBacklog"] for name, one in found["subscriptions"].items()} == {
            "new": 3,
            "r": 3,
            "s": 9,
        }
        assert [len(one["consumers"]) for one in found["subscriptions"].values()] == [1, 2, 1]
        assert found["msgOutCounter"] == 20 + 1 + 4 + here.subscriptions["r"].rate_out.messages
        assert (found["msgInCounter"], len(found["publishers"])) == (2 + 5 + 1, 2)
        assert "asOfLastSave" not in found["subscriptions"]["s"]
        assert "unanswered" not in found


async def test_a_process_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as made:
        await made.publish(b"a")
        await made.consumer(subscription="s")
        monkeypatch.setattr(Topic, "counted", [])
        found = await stats(made, TOPIC, unanswered=("process x: away",))
        assert found["subscriptions"]["s"]["asOfLastSave"]
        assert found["unanswered"] == ["process x: away"]
        token = FOR_PROCESS.set(True)
        try:
            assert (await stats(made, TOPIC))["subscriptions"] == {}, "it is not this process's to say"
        finally:
            FOR_PROCESS.reset(token)


async def test_partitions_are_added_up_each_by_itself() -> None:
    async with bench() as made:
        name = TopicName.parse("parts")
        await made.broker.topics.create(name, 2)
        parts = {str(name.of_partition(number)): said({"s": served(number, 1)}, 3) for number in range(2)}
        found = await stats(made, name, {**said({}, 0), "partitions": parts})
        assert found["subscriptions"]["s"]["msgBacklog"] == 1
        assert [one["msgInCounter"] for one in found["partitions"].values()] == [3, 3]
        assert (found["metadata"], found["msgInCounter"]) == ({"partitions": 2}, 6)

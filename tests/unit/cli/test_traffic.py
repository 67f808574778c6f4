"""From statistics to rates."""

from typing import Any

import pytest

from penstock.cli.actions import of_each
from penstock.cli.traffic import Sample, SubscriptionTraffic, traffic
from penstock.client.http import RemoteError
from penstock.model.names import TopicName


def statistics(in_: int, out: int, *, backlog: int = 0, consumers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Of one log: counters as given, and 9 a second over the last minute."""
    minute = {"msgRateIn": 9.0, "msgThroughputIn": 90.0, "msgRateOut": 9.0, "msgThroughputOut": 90.0}
    counters = {
        "msgInCounter": in_,
        "bytesInCounter": 10 * in_,
        "msgOutCounter": out,
        "bytesOutCounter": 10 * out,
    }
    subscription = {
        **minute,
        **counters,
        "type": "Shared",
        "msgBacklog": backlog,
        "unackedMessages": 1,
        "consumers": [{"consumerName": name} for name in consumers],
    }
    return {**minute, **counters, "publishers": [{}], "subscriptions": {"s": subscription}}


PARTITION = "persistent://public/default/t-partition-"


def test_partitions_are_one_topic_and_rates_are_since_the_sample_before() -> None:
    before = Sample(10.0, {f"{PARTITION}0": statistics(100, 50), f"{PARTITION}1": statistics(0, 0)})
    parts = {
        f"{PARTITION}0": statistics(120, 60, backlog=3, consumers=("a", "b")),
        f"{PARTITION}1": statistics(20, 0, backlog=4, consumers=("a",)),
    }
    [found] = traffic(Sample(12.0, parts), before)
    assert found.topic == "persistent://public/default/t"
    assert (found.rate_in, found.bytes_in, found.rate_out, found.bytes_out) == (20.0, 200.0, 5.0, 50.0)
    assert (found.backlog, found.producers, found.consumers) == (7, 2, 2)
    assert found.subscriptions == [SubscriptionTraffic("s", "Shared", 5.0, 7, 2, 2)]


@pytest.mark.parametrize(
    "before",
    [
        None,
        Sample(10.0, {}),  # the topic was not in use
        Sample(10.0, {"persistent://public/default/t": statistics(500, 500)}),  # the server was started again
    ],
)
def test_rates_without_a_sample_before_are_the_servers(before: Sample | None) -> None:
    [found] = traffic(Sample(12.0, {"persistent://public/default/t": statistics(5, 5)}), before)
    assert (found.rate_in, found.bytes_in, found.rate_out) == (9.0, 90.0, 9.0)


def test_a_topic_that_is_deleted_meanwhile_is_passed_over() -> None:
    def ask(topic: TopicName) -> str:
        if topic.local == "gone":
            raise RemoteError(404, 40401, "it does not exist")
        if topic.local == "secret":
            raise RemoteError(403, 40301, "no")
        return topic.local

    assert of_each(["a", "gone", "b"], ask) == {"a": "a", "b": "b"}
    with pytest.raises(RemoteError, match="no"):
        of_each(["secret"], ask)


def test_a_broker_of_pulsars_lists_neither_counters_nor_what_is_out_of_a_subscription() -> None:
    subscription = {
        "msgRateOut": 2.0,
        "msgBacklog": 4,
        "type": "Shared",
        "consumers": [{"unackedMessages": 3}, {}],
    }
    figures = {"msgRateIn": 1.0, "msgThroughputIn": 10.0, "msgRateOut": 2.0, "msgThroughputOut": 20.0}
    log = {f"{PARTITION}0": {**figures, "publishers": [], "subscriptions": {"s": subscription}}}
    [found] = traffic(Sample(12.0, log), Sample(10.0, log))
    assert (found.rate_in, found.bytes_in, found.rate_out, found.bytes_out) == (1.0, 10.0, 2.0, 20.0)
    assert [(one.rate_out, one.backlog, one.unacknowledged) for one in found.subscriptions] == [(2.0, 4, 3)]

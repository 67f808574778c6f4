"""The rows of `penstock top`, from statistics."""

from typing import Any, cast

import pytest

from penstock.cli.actions import of_each
from penstock.cli.top import topics_in_use
from penstock.client.http import HttpClient, RemoteError
from penstock.model.names import NamespaceName, TopicName

TOPIC = "persistent://public/default/t"
RATES = {"msgRateIn": 9.0, "msgThroughputIn": 90.0, "msgRateOut": 4.0, "msgThroughputOut": 40.0}


class Client:
    """Answers as a server with these topics in use."""

    def __init__(self, statistics: dict[str, Any]) -> None:
        self._statistics = statistics

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", "/admin/v2/broker-stats/topics")
        return {"public/default": {"bundle": {"persistent": self._statistics}}}


def rows(statistics: dict[str, Any], namespace: str | None = None) -> list[dict[str, Any]]:
    client = cast(HttpClient, Client(statistics))
    return topics_in_use(client, None if namespace is None else NamespaceName.parse(namespace))


def partition(backlog: int, *consumers: str, **subscription: Any) -> dict[str, Any]:
    named = [{"consumerName": name, "unackedMessages": 2} for name in consumers]
    of_s = {"type": "Shared", "msgRateOut": 4.0, "msgBacklog": backlog, "consumers": named, **subscription}
    return {**RATES, "publishers": [{}], "subscriptions": {"s": of_s}}


def test_partitions_add_up_to_one_topic() -> None:
    parts = {
        f"{TOPIC}-partition-0": partition(3, "a", "b", unackedMessages=1),
        f"{TOPIC}-partition-1": partition(4, "a", unackedMessages=1),
    }
    [row] = rows(parts, "public/default")
    [subscription] = row.pop("subscriptions")
    assert row == {
        "topic": TOPIC,
        "rate_in": 18.0,
        "bytes_in": 180.0,
        "rate_out": 8.0,
        "bytes_out": 80.0,
        "backlog": 7,
        "producers": 2,
        "consumers": 2,
    }
    assert subscription == {
        "subscription": "s",
        "type": "Shared",
        "rate_out": 8.0,
        "backlog": 7,
        "unacknowledged": 2,
        "consumers": 2,
    }
    assert rows(parts, "public/functions") == []


def test_a_pulsar_broker_has_unacknowledged_messages_per_consumer_only() -> None:
    [row] = rows({TOPIC: partition(4, "a", "b")})
    assert row["subscriptions"][0]["unacknowledged"] == 4


def test_a_topic_that_was_deleted_after_listing_is_left_out() -> None:
    def ask(topic: TopicName) -> str:
        if topic.local == "gone":
            raise RemoteError(404, 40401, "it does not exist")
        if topic.local == "secret":
            raise RemoteError(403, 40301, "no")
        return topic.local

    assert of_each(["a", "gone", "b"], ask) == {"a": "a", "b": "b"}
    with pytest.raises(RemoteError, match="no"):
        of_each(["secret"], ask)

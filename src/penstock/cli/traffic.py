"""What goes through topics: samples of their statistics, and the rates between two samples."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path
from penstock.model.names import NamespaceName, TopicName

from .actions import of_each
from .topic_figures import NO_TYPE

_FORBIDDEN: Final = 403

Statistics = Mapping[str, Any]


class SubscriptionTraffic(NamedTuple):
    """One subscription of a topic, over all partitions."""

    subscription: str
    type: str | None
    rate_out: float  # messages a second
    backlog: int
    unacknowledged: int
    consumers: int


class TopicTraffic(NamedTuple):
    """One topic, over all partitions."""

    topic: str
    rate_in: float  # messages a second
    bytes_in: float  # a second
    rate_out: float
    bytes_out: float
    backlog: int  # of its subscriptions together
    producers: int
    consumers: int
    subscriptions: list[SubscriptionTraffic]


class Sample(NamedTuple):
    """The statistics of all partitions by their names, and when they were asked for (s)."""

    at_s: float
    partitions: Mapping[str, Statistics]


def sample(client: HttpClient, namespace: NamespaceName | None) -> Sample:
    """The topics in use, of one namespace or of all, which only a superuser may see."""
    at_s = time.monotonic()
    try:
        found = client.call("GET", "/admin/v2/broker-stats/topics")
    except RemoteError as error:
        if error.status != _FORBIDDEN:
            raise
        if namespace is None:
            raise click.ClickException(
                f"{error.message}; name a NAMESPACE whose topics you may see"
            ) from None
        return Sample(
            at_s,
            of_each(client.topics(namespace), lambda name: client.call("GET", f"{admin_path(name)}/stats")),
        )
    chosen = found if namespace is None else {name: found[name] for name in found if name == str(namespace)}
    domains = [
        domain for bundles in chosen.values() for bundle in bundles.values() for domain in bundle.values()
    ]
    return Sample(at_s, {name: statistics for domain in domains for name, statistics in domain.items()})


def traffic(now: Sample, before: Sample | None) -> list[TopicTraffic]:
    """The topics of a sample. Rates are of the time since the sample before, without one of the last minute."""
    by_topic: dict[str, list[str]] = {}
    for name in now.partitions:
        by_topic.setdefault(str(TopicName.parse(name).base), []).append(name)
    return [_topic(topic, names, now, before) for topic, names in by_topic.items()]


def _topic(topic: str, names: Iterable[str], now: Sample, before: Sample | None) -> TopicTraffic:
    pairs = [
        (now.partitions[name], None if before is None else before.partitions.get(name)) for name in names
    ]
    passed_s = 0.0 if before is None else now.at_s - before.at_s
    subscriptions: dict[str, list[tuple[Statistics, Statistics | None]]] = {}
    for new, old in pairs:
        for name, one in new["subscriptions"].items():
            subscriptions.setdefault(name, []).append(
                (one, None if old is None else old["subscriptions"].get(name))
            )
    shown = [_subscription(name, parts, passed_s) for name, parts in sorted(subscriptions.items())]

    def rate(figure: str, counter: str) -> float:
        return sum(_rate(new, old, figure, counter, passed_s) for new, old in pairs)

    return TopicTraffic(
        topic=topic,
        rate_in=rate("msgRateIn", "msgInCounter"),
        bytes_in=rate("msgThroughputIn", "bytesInCounter"),
        rate_out=rate("msgRateOut", "msgOutCounter"),
        bytes_out=rate("msgThroughputOut", "bytesOutCounter"),
        backlog=sum(one.backlog for one in shown),
        producers=sum(len(new["publishers"]) for new, _ in pairs),
        consumers=sum(one.consumers for one in shown),
        subscriptions=shown,
    )


def _subscription(
    name: str, parts: list[tuple[Statistics, Statistics | None]], passed_s: float
) -> SubscriptionTraffic:
    consumers = {
        one.get("consumerName") or one.get("address") for new, _ in parts for one in new["consumers"]
    }
    return SubscriptionTraffic(
        subscription=name,
        type=next((new["type"] for new, _ in parts if new.get("type") not in NO_TYPE), None),
        rate_out=sum(_rate(new, old, "msgRateOut", "msgOutCounter", passed_s) for new, old in parts),
        backlog=sum(new["msgBacklog"] for new, _ in parts),
        unacknowledged=sum(_unacknowledged(new) for new, _ in parts),
        consumers=len(consumers),
    )


def _unacknowledged(one: Statistics) -> int:
    """What is out; a broker of Pulsar's that lists its topics says it of consumers alone."""
    of_consumers = (each.get("unackedMessages", 0) for each in one["consumers"])
    return int(one["unackedMessages"] if "unackedMessages" in one else sum(of_consumers))


def _rate(new: Statistics, old: Statistics | None, figure: str, counter: str, passed_s: float) -> float:
    """A second: by the counter where there is one that went on since, else as the server says it of the last minute."""
    if old is None or passed_s <= 0 or new.get(counter, -1) < old.get(counter, 0):
        return float(new.get(figure, 0.0))
    return float((new[counter] - old[counter]) / passed_s)

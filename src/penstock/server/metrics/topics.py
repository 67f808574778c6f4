"""Topics and subscriptions under Pulsar's names (its "Topic metrics" and "Subscription metrics").

Counters count from the server's start; rates are over the last minute. Where the configuration says so the
figures of a namespace's topics are added up, as many topics make many series.
"""

from typing import Final

from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.runtime.statistics import Histogram

from .samples import CLUSTER, Families, Kind

# Pulsar's buckets of the time to store, in ms, by the ends of its metrics' names.
LATENCY_NAMES: Final = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000", "overflow")

_LABELS: Final = ("cluster", "namespace", "topic")
_OF_SUBSCRIPTION: Final = (*_LABELS, "subscription")

Labels = tuple[str, ...]


class TopicFigures:
    """Adds up values of the same labels."""

    def __init__(self, *, by_topic: bool) -> None:
        self._by_topic = by_topic
        self._sums: dict[tuple[str, Labels], float] = {}
        self._latency: dict[Labels, Histogram] = {}

    def add(self, topic: Topic) -> None:
        """Take in a topic (or partition) and its subscriptions."""
        name, of_subscriptions = topic.name, []
        labels: Labels = (CLUSTER, str(name.namespace_name), str(name) if self._by_topic else "")
        for subscription in topic.counted:
            figures = _figures(subscription)
            of_subscriptions.append(figures)
            self._sum((*labels, subscription.name), "pulsar_subscription_", figures)

        def together(figure: str) -> float:
            return sum([figures[figure] for figures in of_subscriptions])

        known = topic.figures()
        rate, throughput = known.rate_in.per_second()
        of_topic = {
            "topics_count": 1,
            "subscriptions_count": len(of_subscriptions),
            "producers_count": len(topic.producers),
            "consumers_count": together("consumers_count"),
            "rate_in": rate,
            "throughput_in": throughput,
            "rate_out": together("msg_rate_out"),
            "throughput_out": together("msg_throughput_out"),
            "in_messages": known.rate_in.messages,
            "in_bytes": known.rate_in.bytes,
            "out_messages": together("msg_out"),
            "out_bytes": together("bytes_out"),
            "msg_backlog": together("back_log"),
            "storage_size": topic.bounds.size_bytes,
        }
        self._sum(labels, "pulsar_", of_topic)
        latency = known.write_latency
        if latency is not None:
            self._latency.setdefault(labels, Histogram(latency.bounds)).add(latency)

    def _sum(self, labels: Labels, prefix: str, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            key = prefix + figure, labels
            self._sums[key] = self._sums.get(key, 0) + value

    def write(self, families: Families) -> None:
        """Hand over everything that was added up."""
        for (name, labels), value in self._sums.items():
            names = _LABELS if len(labels) == len(_LABELS) else _OF_SUBSCRIPTION
            kind, meaning = _MEANINGS[name]
            families.family(kind, name, meaning, self._names(names)).add(self._labels(labels), value)
        for labels, latency in self._latency.items():
            self._write_latency(families, labels, latency)

    def _write_latency(self, families: Families, labels: Labels, latency: Histogram) -> None:
        """Pulsar's own form: a metric for each bucket, each with its own count."""
        name, meaning = "pulsar_storage_write_latency", "Appends by how long they took to be durable"
        shown, names = self._labels(labels), self._names(_LABELS)
        for end, count in zip(LATENCY_NAMES, latency.counts, strict=True):
            suffix = end if end == "overflow" else f"le_{end}"
            families.family("gauge", f"{name}_{suffix}", f"{meaning}, ms", names).add(shown, count)
        families.family("gauge", f"{name}_count", f"{meaning}: all", names).add(shown, latency.count)
        families.family("gauge", f"{name}_sum", f"{meaning}: their sum, ms", names).add(shown, latency.total)

    def _names(self, names: Labels) -> Labels:
        return names if self._by_topic else tuple(name for name in names if name != "topic")

    def _labels(self, labels: Labels) -> Labels:
        return labels if self._by_topic else labels[:2] + labels[3:]


def _figures(subscription: Subscription) -> dict[str, float]:
    figures = subscription.figures()
    rate, throughput = figures.rate_out.per_second()
    return {
        "back_log": figures.backlog,
        "back_log_no_delayed": figures.backlog - figures.delayed,
        "delayed": figures.delayed,
        "unacked_messages": figures.unacked,
        "consumers_count": len(subscription.consumers),
        "msg_rate_out": rate,
        "msg_throughput_out": throughput,
        "msg_out": figures.rate_out.messages,
        "bytes_out": figures.rate_out.bytes,
        "msg_redeliver": figures.redelivered,
        "dead_letters_waiting": figures.dead_letters.waiting,
        "dead_letters_failed": figures.dead_letters.failed,
    }


_MEANINGS: Final[dict[str, tuple[Kind, str]]] = {
    "pulsar_topics_count": ("gauge", "Logs that are open: topics without partitions, and partitions"),
    "pulsar_subscriptions_count": ("gauge", "Subscriptions"),
    "pulsar_producers_count": ("gauge", "Producers attached"),
    "pulsar_consumers_count": ("gauge", "Consumers attached"),
    "pulsar_rate_in": ("gauge", "Messages published a second, over the last minute"),
    "pulsar_throughput_in": ("gauge", "Bytes published a second, over the last minute"),
    "pulsar_rate_out": ("gauge", "Messages delivered a second, over the last minute"),
    "pulsar_throughput_out": ("gauge", "Bytes of the entries delivered a second, over the last minute"),
    "pulsar_in_messages": ("counter", "Messages published since the server started"),
    "pulsar_in_bytes": ("counter", "Bytes of the entries published since the server started"),
    "pulsar_out_messages": ("counter", "Messages delivered since the server started"),
    "pulsar_out_bytes": ("counter", "Bytes of the entries delivered since the server started"),
    "pulsar_msg_backlog": ("gauge", "Messages that subscriptions have not acknowledged"),
    "pulsar_storage_size": ("gauge", "Bytes of the entries kept"),
    "pulsar_subscription_back_log": ("gauge", "Messages not acknowledged"),
    "pulsar_subscription_back_log_no_delayed": ("gauge", "Messages not acknowledged, but for delayed ones"),
    "pulsar_subscription_delayed": ("gauge", "Messages that wait for their time"),
    "pulsar_subscription_unacked_messages": ("gauge", "Messages delivered and not acknowledged"),
    "pulsar_subscription_consumers_count": ("gauge", "Consumers attached"),
    "pulsar_subscription_msg_rate_out": ("gauge", "Messages delivered a second, over the last minute"),
    "pulsar_subscription_msg_throughput_out": ("gauge", "Bytes delivered a second, over the last minute"),
    "pulsar_subscription_msg_out": ("counter", "Messages delivered since the server started"),
    "pulsar_subscription_bytes_out": ("counter", "Bytes delivered since the server started"),
    "pulsar_subscription_dead_letters_waiting": (
        "gauge",
        "Messages that their dead-letter topic refused, and that are retried",
    ),
    "pulsar_subscription_dead_letters_failed": (
        "counter",
        "Attempts to store a dead letter that failed since the server started",
    ),
    "pulsar_subscription_msg_redeliver": ("counter", "Messages delivered again since the server started"),
}

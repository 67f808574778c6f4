"""Figures of topics and subscriptions, under Pulsar's names."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.broker import Broker
from penstock.broker.cluster import Elsewhere
from penstock.broker.delivery import Receiver
from penstock.broker.subscription import Subscription, SubscriptionFigures
from penstock.broker.topic import Publisher, Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, SubscriptionType
from penstock.runtime.statistics import Rate

from .call import Call
from .operations import TOPIC, Table

table = Table()

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
# Pulsar's spelling of access modes in JSON.
_ACCESS: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


@table.on("GET", f"{TOPIC}/stats")
async def stats(call: Call) -> dict[str, Any]:
    """Rates, counters, backlog, publishers and subscriptions."""
    return await service_stats(call.broker, call.seen_topic)


@table.on("GET", f"{TOPIC}/partitioned-stats", query=("perPartition",))
async def stats_by_partition(call: Call) -> dict[str, Any]:
    """The same over all partitions, and of each."""
    await partitions_of(call)
    found = await service_stats(call.broker, call.seen_topic)
    return found if call.flag("perPartition", default=True) else {**found, "partitions": {}}


async def service_stats(broker: Broker, name: TopicName) -> dict[str, Any]:
    """The figures of a topic over all processes of the service; of a partitioned one summed up, and by partition.

    Subscriptions whose process does not answer are shown as of their last save (`asOfLastSave`), and `unanswered` says why.
    """
    logs = await broker.topics.all_of(name, create=False)
    parts = {str(log.name): await topic_stats(log) for log in logs}
    elsewhere = Elsewhere() if broker.cluster is None else await broker.cluster.elsewhere(name)
    for said in elsewhere.stats:
        for log, figures in (said.get("partitions") or {str(logs[0].name): said}).items():
            if log in parts:
                _join(parts[log], figures)
    unanswered = {"unanswered": list(elsewhere.unanswered)} if elsewhere.unanswered else {}
    if not broker.topics.partitions(name):
        return {**parts[str(logs[0].name)], **unanswered}
    whole = _sum(list(parts.values()))
    return {"metadata": {"partitions": len(logs)}, **whole, "partitions": parts, **unanswered}


def _join(own: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Add what another process counts of the same log."""
    for key in _IN:
        own[key] += other.get(key, 0)
    own["publishers"] += other.get("publishers", ())
    own["lastPublishTimestamp"] = max(own["lastPublishTimestamp"], other.get("lastPublishTimestamp", 0))
    known = own["subscriptions"]
    for name, figures in other.get("subscriptions", {}).items():
        had = known.get(name)
        # Readers of several processes may use one name; a durable subscription is served by one process.
        both = had is not None and not had["durable"] and not figures.get("durable", True)
        known[name] = _sum([had, figures]) if both else figures
    own["subscriptions"] = dict(sorted(known.items()))
    own.update({key: sum(one.get(key, 0) for one in known.values()) for key in _OUT})


async def partitions_of(call: Call) -> Sequence[Topic]:
    """The logs of the partitioned topic in the path; raises TOPIC_NOT_FOUND for one that has no partitions."""
    name, topics = call.seen_topic, call.broker.topics
    if not topics.partitions(name):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} is not a partitioned topic")
    return await topics.all_of(name, create=False)


async def topic_stats(topic: Topic) -> dict[str, Any]:
    """One log's figures in this process. Rates are over the last minute, counters since the server started."""
    slowest = await topic.measure_backlog()
    bounds = topic.bounds
    counted = {one.name for one in topic.counted}
    figures = topic.figures()
    subscriptions = {
        name: subscription_stats(one) | ({} if name in counted else {"asOfLastSave": True})
        for name, one in shown_subscriptions(topic).items()
    }
    return {
        "persistent": topic.name.persistent,
        **_rate(figures.rate_in, "In"),
        **{key: sum(s[key] for s in subscriptions.values()) for key in _OUT},
        "averageMsgSize": bounds.size_bytes / bounds.messages if bounds.messages else 0.0,
        "storageSize": bounds.size_bytes,
        "messages": bounds.messages,
        "backlogSize": slowest.bytes,
        "earliestMsgPublishTimeInBacklogs": 0 if slowest.empty else slowest.oldest_ms,
        "oldestBacklogMessageAgeSeconds": -1 if slowest.empty else _age_s(topic, slowest.oldest_ms),
        "backlogQuotaLimitSize": figures.policies.size_quota.limit,
        "backlogQuotaLimitTime": figures.policies.age_quota.limit,
        "publishers": [_publisher(p) for p in topic.producers.values()],
        "waitingPublishers": 0,
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if figures.policies.deduplication else "Disabled",
        "terminated": bounds.terminated,
        "lastPublishTimestamp": figures.last_publish_ms,
    }


def shown_subscriptions(topic: Topic) -> dict[str, Subscription]:
    """The subscriptions of a log by name; another process of the service sees those that this one counts."""
    known = {} if FOR_PROCESS.get() else dict(topic.subscriptions)
    return dict(sorted((known | {one.name: one for one in topic.counted}).items()))


def _age_s(topic: Topic, published_ms: int) -> int:
    return max(0, topic.clock.now_ms() - published_ms) // 1000


_IN = ("msgRateIn", "msgThroughputIn", "bytesInCounter", "msgInCounter")
_OUT = ("msgRateOut", "msgThroughputOut", "bytesOutCounter", "msgOutCounter")


def subscription_stats(subscription: Subscription) -> dict[str, Any]:
    """One subscription's figures on one log."""
    bounds, figures = subscription.topic.bounds, subscription.figures()
    letters = figures.dead_letters
    share = figures.backlog / bounds.messages if bounds.messages else 0.0
    return {
        **_rate(figures.rate_out, "Out"),
        "msgRateRedeliver": 0.0 if figures.redelivered == 0 else _redelivery_rate(figures),
        "msgRedeliverCounter": figures.redelivered,
        "msgBacklog": figures.backlog,
        "backlogSize": round(bounds.size_bytes * share),  # entries differ in size: an estimate
        "msgDelayed": figures.delayed,
        "msgBacklogNoDelayed": max(0, figures.backlog - figures.delayed),
        "unackedMessages": figures.unacked,
        "type": None if figures.type is None else figures.type.value,
        "activeConsumerName": None if subscription.active is None else subscription.active.name,
        "consumers": [_consumer(c) for c in subscription.consumers],
        "durable": figures.durable,
        "isDurable": figures.durable,
        "replicated": False,
        "isReplicated": False,
        "blockedSubscriptionOnUnackedMsgs": False,
        "nonContiguousDeletedMessagesRanges": sum(1 for _ in subscription.acknowledged_ranges()),
        "subscriptionProperties": figures.properties,
        "deadLettersWaiting": letters.waiting,
        "deadLettersFailed": letters.failed,
        "deadLetterError": letters.error,
        **_key_shared(figures.type, subscription.consumers),
    }


def _key_shared(kind: SubscriptionType | None, consumers: Sequence[Receiver]) -> dict[str, str]:
    """How a Key_Shared subscription chooses the consumer of a key."""
    if kind is not SubscriptionType.KEY_SHARED:
        return {}
    sticky = any(consumer.options.key_ranges for consumer in consumers)
    return {"keySharedMode": "STICKY" if sticky else "AUTO_SPLIT"}


def _redelivery_rate(figures: SubscriptionFigures) -> float:
    """Redeliveries a second, as the same share of the deliveries a second as over all time."""
    delivered = figures.rate_out.messages
    return figures.rate_out.per_second()[0] * min(1.0, figures.redelivered / max(1, delivered))


# What partitions do not add up to; a quota holds for each.
_GREATEST = (
    "lastPublishTimestamp",
    "oldestBacklogMessageAgeSeconds",
    "backlogQuotaLimitSize",
    "backlogQuotaLimitTime",
)


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers added, lists joined, objects merged by the same rule; anything else as the first has it."""
    total: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            had = total.get(key)
            if had is None:
                total[key] = _sum([value]) if isinstance(value, dict) else value
            elif isinstance(value, bool):
                total[key] = had or value
            elif key in _GREATEST:
                total[key] = max(had, value)
            elif key == "earliestMsgPublishTimeInBacklogs":
                total[key] = min(had, value) if had and value else had or value
            elif isinstance(value, int | float | list):
                total[key] = had + value
            elif isinstance(value, dict):
                total[key] = _sum([had, value])
    if "averageMsgSize" in total:
        total["averageMsgSize"] = total["storageSize"] / total["messages"] if total["messages"] else 0.0
    return total


def _rate(rate: Rate, way: str) -> dict[str, Any]:
    messages, size = rate.per_second()
    return {
        f"msgRate{way}": messages,
        f"msgThroughput{way}": size,
        f"msg{way}Counter": rate.messages,
        f"bytes{way}Counter": rate.bytes,
    }


def _publisher(producer: Publisher) -> dict[str, Any]:
    figures = producer.figures()
    return {
        "producerName": producer.name,
        "accessMode": _ACCESS[producer.options.access_mode],
        **_connected(producer, figures.connected_ms),
        "msgInCounter": figures.published,
        "lastSequenceId": figures.last_sequence_id,
        **shown_owner(producer),
    }


def shown_owner(one: Publisher | Receiver) -> dict[str, Any]:
    """The role it was created for, and the proxy; empty without authentication."""
    if one.owner is None:
        return {}
    return {"role": one.owner} if one.proxy is None else {"role": one.owner, "proxyRole": one.proxy}


def _consumer(consumer: Receiver) -> dict[str, Any]:
    window, figures = consumer.options.window, consumer.figures()
    unacked_max = figures.unacked_max if window is None else min(window, figures.unacked_max)
    return {
        "consumerName": consumer.name,
        **_connected(consumer, figures.connected_ms),
        "msgOutCounter": consumer.delivered,
        "unackedMessages": figures.unacked,
        "availablePermits": figures.permits if consumer.options.flow else figures.capacity,
        "blockedConsumerOnUnackedMsgs": figures.unacked >= unacked_max,
        "priorityLevel": consumer.options.priority,
    }


def _connected(one: Publisher | Receiver, connected_ms: int) -> dict[str, Any]:
    """The client at the other end."""
    client = one.options.client
    return {
        "address": f"/{client.address}" if client.address else "",  # as Java writes it
        "connectedSince": iso_time(connected_ms),
        "clientVersion": client.version,
        "metadata": one.options.properties,
        **shown_owner(one),
    }


def iso_time(ms: int) -> str:
    """A time (ms since the epoch) in ISO 8601, UTC; beyond the year 9999 that year's end."""
    at = _EPOCH + timedelta(milliseconds=max(0, min(ms, _LATEST_MS)))
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Figures of topics and subscriptions, under Pulsar's names."""

from collections.abc import Sequence
from typing import Any

from penstock.core.consumer import Consumer
from penstock.core.producer import Producer
from penstock.core.rates import Rate
from penstock.core.subscription import Subscription
from penstock.core.topic import Topic
from penstock.model.policy import UNACKED_PER_CONSUMER_MAX, AccessMode

# Pulsar's spelling of access modes in JSON.
_ACCESS = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


async def topic_stats(topic: Topic) -> dict[str, Any]:
    """One log's figures. Rates are over the last minute, counters since the server started."""
    slowest = await topic.backlog.measure()
    messages = topic.next_offset - topic.first_offset
    subscriptions = {name: subscription_stats(s) for name, s in sorted(topic.subscriptions.items())}
    return {
        "persistent": topic.name.persistent,
        **_rate(topic.rate_in, "In"),
        **{key: sum(s[key] for s in subscriptions.values()) for key in _OUT},
        "averageMsgSize": topic.size_bytes / messages if messages else 0.0,
        "storageSize": topic.size_bytes,
        "messages": messages,
        "backlogSize": slowest.bytes,
        "earliestMsgPublishTimeInBacklogs": 0 if slowest.empty else slowest.oldest_ms,
        "oldestBacklogMessageAgeSeconds": -1 if slowest.empty else _age_s(topic, slowest.oldest_ms),
        "backlogQuotaLimitSize": topic.policies.size_quota.limit,
        "backlogQuotaLimitTime": topic.policies.age_quota.limit,
        "publishers": [_publisher(p) for p in topic.producers.values()],
        "waitingPublishers": 0,
        "subscriptions": subscriptions,
        "replication": {},
        "deduplicationStatus": "Enabled" if topic.policies.deduplication else "Disabled",
        "terminated": topic.terminated,
        "lastPublishTimestamp": topic.last_publish_ms,
    }


def _age_s(topic: Topic, published_ms: int) -> int:
    return max(0, topic.clock.now_ms() - published_ms) // 1000


_OUT = ("msgRateOut", "msgThroughputOut", "bytesOutCounter", "msgOutCounter")


def subscription_stats(subscription: Subscription) -> dict[str, Any]:
    """One subscription's figures on one log."""
    topic, active = subscription.topic, subscription.active
    messages = topic.next_offset - topic.first_offset
    share = subscription.backlog / messages if messages else 0.0
    return {
        **_rate(subscription.rate_out, "Out"),
        "msgRateRedeliver": 0.0 if subscription.redelivered == 0 else _redelivery_rate(subscription),
        "msgRedeliverCounter": subscription.redelivered,
        "msgBacklog": subscription.backlog,
        "backlogSize": round(topic.size_bytes * share),  # entries differ in size: an estimate
        "msgDelayed": subscription.delayed,
        "unackedMessages": subscription.unacked,
        "type": None if subscription.type is None else subscription.type.value,
        "activeConsumerName": None if active is None else active.name,
        "consumers": [_consumer(c) for c in subscription.consumers],
        "durable": subscription.durable,
        "isDurable": subscription.durable,
        "replicated": False,
        "isReplicated": False,
        "blockedSubscriptionOnUnackedMsgs": False,
        "nonContiguousDeletedMessagesRanges": sum(1 for _ in subscription.cursor.ranges()),
        "subscriptionProperties": subscription.properties,
    }


def _redelivery_rate(subscription: Subscription) -> float:
    """Redeliveries a second, as the same share of the deliveries a second as over all time."""
    delivered = subscription.rate_out.messages
    return subscription.rate_out.per_second()[0] * min(1.0, subscription.redelivered / max(1, delivered))


async def partitioned_stats(logs: Sequence[Topic], *, each: bool) -> dict[str, Any]:
    """Figures of all partitions together, and each by itself."""
    parts = {str(log.name): await topic_stats(log) for log in logs}
    found: dict[str, Any] = _sum(list(parts.values()))
    return {"metadata": {"partitions": len(logs)}, **found, "partitions": parts if each else {}}


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


async def internal_stats(topic: Topic) -> dict[str, Any]:
    """One log as it is stored, and where its cursors stand."""
    entries = topic.next_entry - topic.first_entry
    return {
        "entriesAddedCounter": topic.next_entry,
        "numberOfEntries": entries,
        "totalSize": topic.size_bytes,
        "currentLedgerEntries": entries,
        "currentLedgerSize": topic.size_bytes,
        "lastConfirmedEntry": f"{topic.ledger}:{topic.next_entry - 1}",
        "state": "Terminated" if topic.terminated else "LedgerOpened",
        "ledgers": [
            {"ledgerId": topic.ledger, "entries": entries, "size": topic.size_bytes, "offloaded": False}
        ],
        "firstOffset": topic.first_offset,
        "nextOffset": topic.next_offset,
        "cursors": {name: await _cursor(s) for name, s in sorted(topic.subscriptions.items())},
    }


async def _cursor(subscription: Subscription) -> dict[str, Any]:
    topic, cursor = subscription.topic, subscription.cursor
    next_entry = await topic.entry_at(cursor.mark)
    return {
        "markDeletePosition": f"{topic.ledger}:{next_entry - 1}",
        "markDeleteOffset": cursor.mark,
        "individuallyDeletedOffsets": [
            list(run) for _, run in zip(range(_RUNS_MAX), cursor.ranges(), strict=False)
        ],
        "messagesConsumedCounter": max(0, cursor.mark - topic.first_offset) + cursor.beyond,
        "numberOfEntriesSinceFirstNotAckedMessage": topic.next_entry - next_entry,
        "totalNonContiguousDeletedMessagesRange": sum(1 for _ in cursor.ranges()),
        "state": "Open",
        "properties": subscription.properties,
    }


_RUNS_MAX = 1000  # runs shown; a cursor may have millions


def _rate(rate: Rate, way: str) -> dict[str, Any]:
    messages, size = rate.per_second()
    return {
        f"msgRate{way}": messages,
        f"msgThroughput{way}": size,
        f"msg{way}Counter": rate.messages,
        f"bytes{way}Counter": rate.bytes,
    }


def _publisher(producer: Producer) -> dict[str, Any]:
    return {
        "producerName": producer.name,
        "accessMode": _ACCESS[producer.options.access_mode],
        "msgInCounter": producer.published,
        "lastSequenceId": producer.last_sequence_id,
    }


def _unacked_max(consumer: Consumer) -> int:
    window = consumer.options.window
    return UNACKED_PER_CONSUMER_MAX if window is None else min(window, UNACKED_PER_CONSUMER_MAX)


def _consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "consumerName": consumer.name,
        "msgOutCounter": consumer.delivered,
        "unackedMessages": consumer.unacked,
        "availablePermits": consumer.permits if consumer.options.flow else consumer.capacity(),
        "blockedConsumerOnUnackedMsgs": consumer.unacked >= _unacked_max(consumer),
        "priorityLevel": consumer.options.priority,
        "metadata": consumer.options.properties,
    }

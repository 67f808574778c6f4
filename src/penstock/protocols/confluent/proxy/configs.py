"""Policies of a topic as settings of Kafka's topics."""

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic

_MINUTE_MS = 60_000
_MIB = 1 << 20


def configs_of(broker: Broker, log: Topic) -> dict[str, str]:
    """The settings of a topic by their names in Kafka, each as text; `log` is one of its logs."""
    policies = log.figures().policies
    minutes, mb = policies.retention.minutes, policies.retention.mb
    return {
        "cleanup.policy": "compact" if policies.compaction_threshold > 0 else "delete",
        "max.message.bytes": str(broker.settings.max_message_bytes),
        "retention.bytes": str(-1 if mb < 0 else mb * _MIB),
        "retention.ms": str(-1 if minutes < 0 else minutes * _MINUTE_MS),
    }

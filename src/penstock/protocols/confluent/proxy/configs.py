"""Policies of a topic as settings of Kafka's topics."""

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.model.policy import Retention
from penstock.model.topic_config import (
    CLEANUP,
    RETENTION_BYTES,
    RETENTION_MS,
    cleanup,
    retention_bytes,
    retention_ms,
)


def configs_of(broker: Broker, log: Topic) -> dict[str, str]:
    """The settings of a topic by their names in Kafka, each as text; `log` is one of its logs."""
    policies = log.figures().policies
    return _configs(broker, policies.retention, policies.compaction_threshold)


def default_configs(broker: Broker) -> dict[str, str]:
    """The same of a topic without policies."""
    settings = broker.settings
    return _configs(broker, Retention(settings.retention_minutes, settings.retention_mb), 0)


def _configs(broker: Broker, kept: Retention, compaction_threshold: int) -> dict[str, str]:
    return {
        CLEANUP: cleanup(compaction_threshold, kept),
        "max.message.bytes": str(broker.settings.max_message_bytes),
        RETENTION_BYTES: retention_bytes(kept),
        RETENTION_MS: retention_ms(kept),
    }

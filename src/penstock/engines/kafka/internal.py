"""The server's internal topics in the cluster (documents, journals, replies, staged batches, slots, cursors): their names and creation."""

from collections.abc import Mapping
from typing import Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

from .cluster import KafkaCluster

# Appended to the name of the topic of documents.
STAGED: Final = "_staging"  # entries of staged parts
PARTS: Final = "_parts"  # the positions of the parts' entries
COMMITS: Final = "_commits"  # committed batches, written in their transactions
SLOTS: Final = "_slots"  # whose partitions the processes share out
CURSORS: Final = "_cursors"  # the journal of cursors

SLOTS_COUNT: Final = 64
# Every record stays until it is superseded: compaction would keep the last record of a key, whether it counts or not.
CURSORS_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


def internal_topics(settings: ClusterSettings) -> dict[str, str]:
    """The Kafka name of each internal topic, by its setting; raises BAD_PARAMETER if two have the same name."""
    found = {
        "engine.documents_topic": settings.documents_topic,
        "engine.journals_topic": settings.journals_topic,
        "engine.replies_topic": settings.replies_topic,
    }
    for suffix in (STAGED, PARTS, COMMITS, SLOTS, CURSORS):
        found[f"engine.documents_topic with {suffix}"] = settings.documents_topic + suffix
    settings_of: dict[str, str] = {}
    for setting, topic in found.items():
        other = settings_of.setdefault(topic, setting)
        if other != setting:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{other} and {setting} are both {topic}")
    return found


def owner_group(settings: ClusterSettings) -> str:
    """The consumer group in which the processes of a service share out slots."""
    return f"penstock-{settings.documents_topic}"


async def have_owner_topics(cluster: KafkaCluster) -> int:
    """Create the topics of slots and of cursors if they are missing; returns the number of slots.

    Raises BAD_PARAMETER if the topic of cursors would lose records, FORBIDDEN if a topic is missing and may not be created,
    UNAVAILABLE.
    """
    prefix = cluster.settings.documents_topic
    slots = await cluster.have(prefix + SLOTS, SLOTS_COUNT, {})
    cursors = await cluster.have(prefix + CURSORS, 1, CURSORS_CONFIG)
    if cursors.partitions != 1:
        raise _bad(prefix + CURSORS, f"it has {cursors.partitions} partitions instead of one")
    found = await cluster.admin.configs(prefix + CURSORS)
    for key, value in CURSORS_CONFIG.items():
        if found.get(key, value) != value:
            raise _bad(prefix + CURSORS, f"its {key} has to be {value}, and is {found[key]}")
    return slots.partitions


def _bad(topic: str, what: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_PARAMETER, f"{topic} cannot keep cursors: {what}")

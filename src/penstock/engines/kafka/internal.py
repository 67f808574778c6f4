"""The server's internal topics in the cluster: documents, journals, replies, staged batches, slots, cursors."""

from typing import Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

# Appended to the name of the topic of documents.
STAGED: Final = "_staging"  # entries of staged parts
PARTS: Final = "_parts"  # the positions of the parts' entries
COMMITS: Final = "_commits"  # committed batches, written in their transactions
SLOTS: Final = "_slots"  # whose partitions the processes share out
CURSORS: Final = "_cursors"  # the journal of cursors


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

"""Names that follow from other names: partitions, dead-letter topics, and what patterns match of a topic."""

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName


def check_partition(partition: int, count: int) -> None:
    """Raise PARTITION_NOT_FOUND unless it is one of `count`."""
    if not 0 <= partition < count:
        raise PenstockError(ErrorKind.PARTITION_NOT_FOUND, f"no partition {partition}: there are {count}")


def matched_name(name: TopicName) -> str:
    """What patterns match of a topic's name: `tenant/namespace/topic`, without its domain."""
    return f"{name.tenant}/{name.namespace}/{name.local}"


def dead_letter_topic(topic: TopicName, subscription: str, named: str) -> TopicName:
    """`named`, or `{topic}-{subscription}-DLQ` in the topic's namespace; a partition's letters go to its topic's."""
    if named:
        return TopicName.parse(named)
    return topic.base.sibling(f"{topic.base.local}-{subscription}-DLQ")

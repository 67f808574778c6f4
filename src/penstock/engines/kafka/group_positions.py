"""Positions of Kafka's consumer groups, at which subscriptions can begin."""

import logging
from collections.abc import Mapping

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName

from .driver.groups import KafkaGroups
from .topics import KafkaTopics

log = logging.getLogger(__name__)


class KafkaGroupPositions:
    """Reads what groups have committed; nothing is changed in them."""

    def __init__(self, topics: KafkaTopics, groups: KafkaGroups) -> None:
        self._topics = topics
        self._groups = groups

    async def of(self, name: TopicName, group: str) -> Mapping[TopicName, MessageId]:
        """As `broker.GroupPositions`."""
        topics = await self._topics.all_of(name, create=False)
        places = [(topic.place.topic, topic.place.partition) for topic in topics]
        committed = await self._groups.committed(group, places)
        if not committed:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"consumer group {group} has committed no position in {name}"
            )
        found: dict[TopicName, MessageId] = {}
        for topic, place in zip(topics, places, strict=True):
            await topic.refresh()
            begin, end = topic.first_offset, topic.next_offset
            offset = committed.get(place, begin)
            if not begin <= offset <= end:
                extra = {"group": group, "topic": str(topic.name), "committed": offset, "begins_at": begin}
                log.warning("a group's position does not fit its log", extra=extra)
                offset = begin
            found[topic.name] = MessageId(topic.ledger, offset, topic.name.partition)
        return found

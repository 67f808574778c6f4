"""Where in a partition a read begins and ends (docs/rest.md)."""

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.protocols.http.params import Parameter, Params

from .operations import NUMBER

PLACES: Final = (
    Parameter("message_id", "Start after this one; also `earliest` and `latest`."),
    Parameter("offset", "Start at this offset.", NUMBER),
    Parameter(
        "publish_time", "Start with what was published at or after this time, ms since the epoch.", NUMBER
    ),
    Parameter("end_offset", "Stop before this offset.", NUMBER),
)


async def log_of(broker: Broker, name: TopicName, partition: int) -> Topic:
    """The log of a partition; a topic without partitions is its own partition 0.

    Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND.
    """
    count = broker.topics.partitions(name)
    if partition >= max(1, count):
        raise PenstockError(
            ErrorKind.PARTITION_NOT_FOUND, f"{name} has no partition {partition}: there are {max(1, count)}"
        )
    return await broker.topics.get(name.of_partition(partition) if count else name, create=False)


async def start_of(topic: Topic, params: Params, last_event_id: str | None = None) -> int:
    """The offset to begin with: after `message_id`, at `offset`, at the first since `publish_time`, or the earliest."""
    given = [name for name in ("message_id", "offset", "publish_time") if params.text(name) is not None]
    if len(given) > 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{' and '.join(given)} exclude one another")
    message_id = last_event_id or params.text("message_id")
    if message_id is not None:
        return await topic.offset_after(MessageId.parse(message_id))
    publish_time = params.number("publish_time")
    if publish_time is not None:
        return await topic.offset_at_time(publish_time)
    offset = params.number("offset")
    return topic.first_offset if offset is None else max(offset, topic.first_offset)

"""What is done to a topic as a whole: unload, truncate, trim, compact; and its properties."""

from typing import Any, Final

from penstock.broker.capability import Capability, require
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .table import Table
from .topics import TOPIC

table = Table()

_ORDER: Final = (
    "ERROR",
    "RUNNING",
    "NOT_RUN",
    "SUCCESS",
)  # which of several partitions' compactions speaks for the topic


@table.on("PUT", f"{TOPIC}/unload")
async def unload(call: Call) -> Answer:
    """Disconnect the producers and consumers of a topic, once its cursors are saved: they come back by themselves."""
    await call.broker.administration.unload_topic(call.topic)
    return NO_CONTENT


@table.on("DELETE", f"{TOPIC}/truncate")
async def truncate(call: Call) -> Answer:
    """Delete every message of a topic, also those that are not acknowledged; its subscriptions stay."""
    await call.broker.administration.truncate_topic(_kept(call))
    return NO_CONTENT


@table.on("POST", f"{TOPIC}/trim")
async def trim(call: Call) -> Answer:
    """Let go of the acknowledged messages that retention does not keep, now."""
    await call.broker.administration.trim_topic(_kept(call))
    return NO_CONTENT


def _kept(call: Call) -> TopicName:
    """The topic in the path, which must be persistent; raises METHOD_NOT_ALLOWED."""
    name = call.topic
    if not name.persistent:
        raise PenstockError(
            ErrorKind.METHOD_NOT_ALLOWED, "a topic that is not persistent keeps only what is under way"
        )
    return name


@table.on("POST", f"{TOPIC}/createMissedPartitions", fixed=True)
async def create_missed(call: Call) -> Answer:
    """Answer at once: a partitioned topic always has all its partitions."""
    if not call.broker.topics.partitions(call.topic):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{call.topic} is not a partitioned topic")
    return NO_CONTENT


@table.on("DELETE", f"{TOPIC}/policies")
async def forget_policies(call: Call) -> Answer:
    """Leave every policy of a topic to its namespace."""
    await call.broker.policies.forget(_base(call))
    return NO_CONTENT


@table.on("PUT", f"{TOPIC}/compaction")
async def compact(call: Call) -> Answer:
    """Begin to compact a topic: who reads it compacted sees each key's last value only."""
    require(call.broker, Capability.COMPACTION)
    await call.broker.administration.compact_topic(call.topic)
    return NO_CONTENT


@table.on("GET", f"{TOPIC}/compaction", answer=dict[str, Any])
async def compaction(call: Call) -> Answer:
    """How the last compaction went: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    logs = await call.broker.topics.all_of(call.seen_topic, create=False)
    found = min((log.compaction for log in logs), key=lambda one: _ORDER.index(one.status))
    return Answer(body={"status": found.status, "lastError": found.last_error})


# -- properties


def _base(call: Call) -> TopicName:
    """The topic in the path; a partition has its topic's properties. Raises TOPIC_NOT_FOUND."""
    name, topics = call.topic, call.broker.topics
    topics.partitions(name)
    return name.base if topics.exists(name.base) else name


@table.on("GET", f"{TOPIC}/properties", answer=dict[str, str])
async def properties(call: Call) -> Answer:
    """The properties of a topic."""
    document = call.broker.topics.document(_base(call))
    return Answer(body={} if document is None else document.properties)


@table.on("PUT", f"{TOPIC}/properties", body=dict[str, str])
async def update_properties(call: Call) -> Answer:
    """Set these properties of a topic; the others stay."""
    given = call.body(dict[str, str])
    await call.broker.topics.set_properties(_base(call), lambda now: call.bounded({**now, **given}))
    return NO_CONTENT


@table.on("DELETE", f"{TOPIC}/properties", query=("key",))
async def remove_properties(call: Call) -> Answer:
    """Remove the property `key` of a topic, or all of them."""
    key = call.query.get("key")
    await call.broker.topics.set_properties(
        _base(call),
        lambda now: {name: value for name, value in now.items() if key is not None and name != key},
    )
    return NO_CONTENT

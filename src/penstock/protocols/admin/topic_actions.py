"""Actions on a whole topic: unload, truncate, trim, compact, terminate; and its properties."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.capability import Capability, require
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import TopicPolicies
from penstock.wire.contents import batch_size

from .call import Call
from .operations import TOPIC, Table

table = Table()

# Which of several partitions' compactions speaks for the topic.
_ORDER: Final = ("ERROR", "RUNNING", "NOT_RUN", "SUCCESS")


@table.on("PUT", f"{TOPIC}/unload")
async def unload(call: Call) -> None:
    """Disconnect the producers and consumers of a topic, once its cursors are saved: they come back by themselves."""
    await call.administration.unload_topic(call.topic)


@table.on("DELETE", f"{TOPIC}/truncate")
async def truncate(call: Call) -> None:
    """Delete every message of a topic, also those that are not acknowledged; its subscriptions stay."""
    await call.administration.trim_topic(_kept(call), everything=True)


@table.on("POST", f"{TOPIC}/trim")
async def trim(call: Call) -> None:
    """Delete acknowledged messages that retention does not keep, now."""
    await call.administration.trim_topic(_kept(call))


def _kept(call: Call) -> TopicName:
    """The topic in the path, which must be persistent; raises METHOD_NOT_ALLOWED."""
    name = call.topic
    if not name.persistent:
        raise PenstockError(
            ErrorKind.METHOD_NOT_ALLOWED, "a topic that is not persistent keeps only what is under way"
        )
    return name


@table.on("POST", f"{TOPIC}/createMissedPartitions", fixed=True)
async def create_missed(call: Call) -> None:
    """Answer at once: a partitioned topic always has all its partitions."""
    if not call.broker.topics.partitions(call.topic):
        raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{call.topic} is not a partitioned topic")


@table.on("DELETE", f"{TOPIC}/policies")
async def forget_policies(call: Call) -> None:
    """Leave every policy of a topic to its namespace."""
    await call.policies.change_topic(_base(call), lambda now: TopicPolicies())


@table.on("PUT", f"{TOPIC}/compaction")
async def compact(call: Call) -> None:
    """Begin to compact a topic: compacted readers see only each key's last value."""
    require(call.broker.capabilities, Capability.COMPACTION)
    await call.administration.compact_topic(call.topic)


@table.on("GET", f"{TOPIC}/compaction")
async def compaction(call: Call) -> dict[str, Any]:
    """How the last compaction went: NOT_RUN, RUNNING, SUCCESS or ERROR."""
    logs = await call.broker.topics.all_of(call.seen_topic, create=False)
    found = min((log.figures().compaction for log in logs), key=lambda one: _ORDER.index(one.status))
    return {"status": found.status, "lastError": found.last_error}


# -- the end of a topic


@table.on("GET", f"{TOPIC}/lastMessageId")
async def last_message_id(call: Call) -> dict[str, Any]:
    """The id of the last message; of each partition's, if there are some."""
    name = call.consumed_topic
    return await _last_ids(call, name, await call.broker.topics.all_of(name, create=False))


@table.on("POST", f"{TOPIC}/terminate", f"{TOPIC}/terminate/partitions")
async def terminate(call: Call) -> dict[str, Any]:
    """Terminate the topic; answers the id of the last message, of each partition's if there are some."""
    name = call.topic
    return await _last_ids(call, name, await call.broker.topics.terminate(name))


async def _last_ids(call: Call, name: TopicName, logs: Sequence[Topic]) -> dict[str, Any]:
    if not call.broker.topics.partitions(name):
        return await _last_id(logs[0])
    return {str(log.name.partition): await _last_id(log) for log in logs}


async def _last_id(log: Topic) -> dict[str, int]:
    bounds = log.bounds
    last = bounds.next_entry - 1
    found = {"ledgerId": log.ledger, "entryId": last, "partitionIndex": log.name.partition}
    if bounds.first_entry <= last and (size := batch_size((await log.entry(last)).data)):
        return found | {"batchIndex": size - 1, "batchSize": size}
    return found


# -- properties


def _base(call: Call) -> TopicName:
    """The topic in the path; a partition has its topic's properties. Raises TOPIC_NOT_FOUND."""
    name, topics = call.topic, call.broker.topics
    topics.partitions(name)
    return name.base if topics.exists(name.base) else name


@table.on("GET", f"{TOPIC}/properties")
async def properties(call: Call) -> dict[str, str]:
    """The properties of a topic."""
    document = call.broker.topics.document(_base(call))
    return {} if document is None else document.properties


@table.on("PUT", f"{TOPIC}/properties", body=dict[str, str])
async def update_properties(call: Call) -> None:
    """Set these properties of a topic; the others stay."""
    given = call.body(dict[str, str])
    await call.broker.topics.set_properties(_base(call), lambda now: call.bounded({**now, **given}))


@table.on("DELETE", f"{TOPIC}/properties", query=("key",))
async def remove_properties(call: Call) -> None:
    """Remove the property `key` of a topic, or all of them."""
    key = call.query.get("key")
    await call.broker.topics.set_properties(
        _base(call),
        lambda now: {name: value for name, value in now.items() if key is not None and name != key},
    )

"""Topics: create, list, describe, grow, end and delete."""

from typing import Any

import msgspec

from penstock.engines.embedded.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.http.answers import NO_CONTENT, Answer
from penstock.wire.contents import batch_size

from .call import Call
from .internal import internal_info, internal_stats
from .policy_bodies import shown_retention
from .stats import partitioned_stats, topic_stats
from .table import Table

table = Table()

_NAMESPACE = "/admin/v2/{domain}/{tenant}/{namespace}"
TOPIC = f"{_NAMESPACE}/{{topic}}"


def logs_of(call: Call, domain: str | None) -> list[str]:
    """The names of a namespace's topics, partitioned ones by their partitions; raises NAMESPACE_NOT_FOUND."""
    return [str(log) for name in visible(call, domain) for log in call.broker.topics.logs(name)]


def visible(call: Call, domain: str | None) -> list[TopicName]:
    """The topics of the namespace in the path that the caller may do anything with."""
    namespace, sees = call.listed_namespace, call.session.sees
    call.broker.namespaces.policies(namespace)
    return [name for name in call.broker.topics.names(namespace, domain) if sees(name)]


def _not_partitioned(call: Call) -> PenstockError:
    return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{call.seen_topic} is not a partitioned topic")


@table.on("GET", _NAMESPACE, answer=list[str])
async def topics(call: Call) -> Answer:
    """List a namespace's topics of one domain, partitioned ones by their partitions."""
    return Answer(body=logs_of(call, _domain(call)))


@table.on("GET", f"{_NAMESPACE}/partitioned", answer=list[str])
async def partitioned(call: Call) -> Answer:
    """List a namespace's partitioned topics."""
    found = visible(call, _domain(call))
    return Answer(body=[str(topic) for topic in found if call.broker.topics.partitions(topic)])


def _domain(call: Call) -> str:
    domain = call.path["domain"]
    if domain not in ("persistent", "non-persistent"):
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at /admin/v2/{domain}")
    return domain


# -- one topic


@table.on("PUT", TOPIC, body=dict[str, Any])
async def create(call: Call) -> Answer:
    """Create a topic without partitions; the body may hold its properties."""
    properties = call.bounded(call.body_or_none(dict[str, str]) or {})
    await call.broker.topics.create(call.topic, 0, properties)
    return NO_CONTENT


@table.on("GET", TOPIC)
async def describe(call: Call) -> Answer:
    """Describe a topic: partitions, messages, subscriptions."""
    name, broker = call.seen_topic, call.broker
    logs = await broker.topics.all_of(name, create=False)
    document = broker.topics.document(name)
    latest = broker.schemas.latest(name)
    return Answer(
        body={
            "name": str(name),
            "persistent": name.persistent,
            "partitions": broker.topics.partitions(name),
            "terminated": document is not None and document.terminated,
            "properties": {} if document is None else document.properties,
            "messages": sum(log.next_offset - log.first_offset for log in logs),
            "storageSize": sum(log.size_bytes for log in logs),
            "subscriptions": sorted({sub for log in logs for sub in log.subscriptions}),
            "schemaType": None if latest is None else latest.schema.type.name,
            "schemaVersion": None if latest is None else latest.version,
            "retention": shown_retention(broker.policies.in_force(name).retention),
        }
    )


@table.on("DELETE", TOPIC, query=("force", "deleteSchema"))
async def delete(call: Call) -> Answer:
    """Delete a topic without partitions, with what it holds; `force` also when clients are connected.

    A partitioned topic is refused, with `force` too: its partitions are deleted under the path for that alone.
    """
    return await _delete(call, partitioned=False)


async def _delete(call: Call, *, partitioned: bool) -> Answer:
    """Delete a topic of this kind; raises PARTITIONING_CONFLICT for one of the other kind."""
    name, force, schema = call.topic, call.flag("force"), call.flag("deleteSchema", default=True)
    if bool(call.broker.topics.partitions(name)) != partitioned:
        raise PenstockError(
            ErrorKind.PARTITIONING_CONFLICT,
            f"{name} is a non-partitioned topic, instead of calling delete-partitioned-topic, "
            "please call delete: DELETE of the topic's own path"
            if partitioned
            else f"{name} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic: DELETE below the topic's path, of /partitions",
        )
    await call.broker.delete_topic(name, force=force, schema=schema)
    return NO_CONTENT


# -- partitions


class PartitionedTopic(msgspec.Struct):
    """Pulsar's PartitionedTopicMetadata."""

    partitions: int
    properties: dict[str, str] | None = None


def _partitioned_topic(call: Call) -> PartitionedTopic:
    """The body, as a number or as an object."""
    if call.content.lstrip().startswith(b"{"):
        return call.body(PartitionedTopic)
    return PartitionedTopic(call.body(int))


@table.on("PUT", f"{TOPIC}/partitions", body=int | PartitionedTopic)
async def create_partitioned(call: Call) -> Answer:
    """Create a topic of so many partitions; an object may hold its properties too."""
    wanted = _partitioned_topic(call)
    if wanted.partitions < 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Number of partitions should be more than 0")
    await call.broker.topics.create(call.topic, wanted.partitions, call.bounded(wanted.properties or {}))
    return NO_CONTENT


@table.on("POST", f"{TOPIC}/partitions", body=int | PartitionedTopic)
async def grow(call: Call) -> Answer:
    """Let a partitioned topic grow to so many partitions; its properties stay, whatever an object holds."""
    await call.broker.subscriptions.grow(call.topic, _partitioned_topic(call).partitions)
    return NO_CONTENT


@table.on("GET", f"{TOPIC}/partitions", query=("checkAllowAutoCreation",))
async def partitions(call: Call) -> Answer:
    """The number of partitions, 0 for a topic without; a topic that may be created on the way counts as there."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.exists(name) and name.partition < 0 and call.flag("checkAllowAutoCreation"):
        auto = broker.topics.auto(name)
        if auto.allowed and auto.partitions:
            await broker.topics.all_of(name)  # clients go on to address the partitions one by one
        elif auto.allowed:
            return Answer(body={"partitions": 0})
    count, document = broker.topics.partitions(name), broker.topics.document(name)
    if count and document is not None and document.properties:
        return Answer(body={"partitions": count, "properties": document.properties})
    return Answer(body={"partitions": count})


@table.on("DELETE", f"{TOPIC}/partitions", query=("force", "deleteSchema"))
async def delete_partitioned(call: Call) -> Answer:
    """Delete a partitioned topic with all its partitions."""
    return await _delete(call, partitioned=True)


# -- figures


@table.on("GET", f"{TOPIC}/stats")
async def stats(call: Call) -> Answer:
    """Rates, counters, backlog, publishers and subscriptions."""
    name, broker = call.seen_topic, call.broker
    if broker.topics.partitions(name):
        return await stats_by_partition(call)
    return Answer(body=await topic_stats(await broker.topics.get(name, create=False)))


@table.on("GET", f"{TOPIC}/partitioned-stats", query=("perPartition",))
async def stats_by_partition(call: Call) -> Answer:
    """The same over all partitions, and of each."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.partitions(name):
        raise _not_partitioned(call)
    logs = await broker.topics.all_of(name, create=False)
    return Answer(body=await partitioned_stats(logs, each=call.flag("perPartition", default=True)))


@table.on("GET", f"{TOPIC}/internalStats", query=("metadata",))
async def internals(call: Call) -> Answer:
    """The log and its cursors."""
    name, broker = call.seen_topic, call.broker
    if broker.topics.partitions(name):
        return await internals_by_partition(call)
    return Answer(body=await internal_stats(await broker.topics.get(name, create=False)))


@table.on("GET", f"{TOPIC}/partitioned-internalStats")
async def internals_by_partition(call: Call) -> Answer:
    """The logs of all partitions, and their cursors."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.partitions(name):
        raise _not_partitioned(call)
    logs = await broker.topics.all_of(name, create=False)
    return Answer(
        body={
            "metadata": {"partitions": len(logs)},
            "partitions": {str(log.name): await internal_stats(log) for log in logs},
        }
    )


@table.on("GET", f"{TOPIC}/internal-info")
async def info(call: Call) -> Answer:
    """The ledger of the topic, and where its durable cursors stand; of each partition where there are some."""
    name, broker = call.seen_topic, call.broker
    logs = await broker.topics.all_of(name, create=False)
    if not broker.topics.partitions(name):
        document = broker.topics.document(name)
        return Answer(body=await internal_info(logs[0], {} if document is None else document.properties))
    return Answer(body={"partitions": {str(log.name): await internal_info(log, {}) for log in logs}})


@table.on("GET", f"{TOPIC}/lastMessageId")
async def last_message_id(call: Call) -> Answer:
    """The id of the last message; of each partition's, where there are some."""
    name = call.consumed_topic
    return Answer(body=await _last_ids(call, name, await call.broker.topics.all_of(name, create=False)))


@table.on("POST", f"{TOPIC}/terminate", f"{TOPIC}/terminate/partitions", answer=dict[str, Any])
async def terminate(call: Call) -> Answer:
    """Let no message follow; answers the id of the last one, of each partition's where there are some."""
    name = call.topic
    return Answer(body=await _last_ids(call, name, await call.broker.topics.terminate(name)))


async def _last_ids(call: Call, name: TopicName, logs: list[Topic]) -> dict[str, Any]:
    if not call.broker.topics.partitions(name):
        return await _last_id(logs[0])
    return {str(log.name.partition): await _last_id(log) for log in logs}


async def _last_id(log: Topic) -> dict[str, int]:
    found = {"ledgerId": log.ledger, "entryId": log.next_entry - 1, "partitionIndex": log.name.partition}
    if log.first_entry < log.next_entry and (size := batch_size((await log.entry(log.next_entry - 1)).data)):
        return found | {"batchIndex": size - 1, "batchSize": size}
    return found

"""Topics: create, list, describe, grow, end and delete."""

from typing import Any

import msgspec

from penstock.broker.acting import FOR_PROCESS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Slices, chosen

from .call import Call
from .operations import DOMAIN, TOPIC, Table
from .policy_bodies import shown_retention

table = Table()


async def logs_of(call: Call, domain: str | None) -> list[str]:
    """The names of a namespace's topics, partitioned ones by their partitions; raises NAMESPACE_NOT_FOUND."""
    topics, found, slices = call.broker.topics, list[str](), Slices()
    for name in await _visible(call, domain):
        await slices.step()
        if topics.exists(name):
            found += map(str, topics.logs(name))
    return found


async def _visible(call: Call, domain: str | None) -> list[TopicName]:
    """The topics of the namespace in the path that the caller may do anything with."""
    namespace, sees = call.listed_namespace, call.caller.sees
    call.broker.namespaces.policies(namespace)
    return await chosen(call.broker.topics.names(namespace, domain), sees)


@table.on("GET", DOMAIN)
async def topics(call: Call) -> list[str]:
    """List a namespace's topics of one domain, partitioned ones by their partitions."""
    return await logs_of(call, call.path["domain"])


@table.on("GET", f"{DOMAIN}/partitioned")
async def partitioned(call: Call) -> list[str]:
    """List a namespace's partitioned topics."""
    topics = call.broker.topics
    found = await _visible(call, call.path["domain"])
    return list(
        map(str, await chosen(found, lambda name: topics.exists(name) and topics.partitions(name) > 0))
    )


# -- one topic


@table.on("PUT", TOPIC, body=dict[str, Any])
async def create(call: Call) -> None:
    """Create a topic without partitions; the body may hold its properties."""
    properties = call.bounded(call.body_or_none(dict[str, str]) or {})
    await call.broker.topics.create(call.topic, 0, properties)


@table.on("GET", TOPIC)
async def describe(call: Call) -> dict[str, Any]:
    """Describe a topic: partitions, messages, subscriptions."""
    name, broker = call.seen_topic, call.broker
    logs = await broker.topics.all_of(name, create=False)
    document = broker.topics.document(name)
    latest = broker.schemas.latest(name)
    return {
        "name": str(name),
        "persistent": name.persistent,
        "partitions": broker.topics.partitions(name),
        "terminated": document is not None and document.terminated,
        "properties": {} if document is None else document.properties,
        "messages": sum(log.bounds.messages for log in logs),
        "storageSize": sum(log.bounds.size_bytes for log in logs),
        "subscriptions": sorted({sub for log in logs for sub in log.subscriptions}),
        "schemaType": None if latest is None else latest.schema.type.name,
        "schemaVersion": None if latest is None else latest.version,
        "retention": shown_retention(call.policies.in_force(name).retention),
    }


@table.on("DELETE", TOPIC, query=("force", "deleteSchema"))
async def delete(call: Call) -> None:
    """Delete a topic without partitions, with what it holds; `force` also when clients are connected.

    A partitioned topic is refused, with `force` too: its partitions are deleted under the path for that alone.
    """
    await _delete(call, partitioned=False)


async def _delete(call: Call, *, partitioned: bool) -> None:
    """Delete a topic of this kind; raises PARTITIONING_CONFLICT for one of the other kind."""
    name, force, schema = call.topic, call.flag("force"), call.flag("deleteSchema", default=True)
    if FOR_PROCESS.get():  # another process deleted it
        await call.administration.delete_topic(name, force=True)
        return
    if bool(call.broker.topics.partitions(name)) != partitioned:
        raise PenstockError(
            ErrorKind.PARTITIONING_CONFLICT,
            f"{name} is a non-partitioned topic, instead of calling delete-partitioned-topic, "
            "please call delete: DELETE of the topic's own path"
            if partitioned
            else f"{name} is a partitioned topic, instead of calling delete topic, "
            "please call delete-partitioned-topic: DELETE below the topic's path, of /partitions",
        )
    await call.administration.delete_topic(name, force=force, schema=schema)


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
async def create_partitioned(call: Call) -> None:
    """Create a topic of so many partitions; an object may hold its properties too."""
    wanted = _partitioned_topic(call)
    if wanted.partitions < 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Number of partitions should be more than 0")
    await call.broker.topics.create(call.topic, wanted.partitions, call.bounded(wanted.properties or {}))


@table.on("POST", f"{TOPIC}/partitions", body=int | PartitionedTopic)
async def grow(call: Call) -> None:
    """Let a partitioned topic grow to so many partitions; its properties stay, whatever an object holds."""
    await call.broker.subscriptions.grow(call.topic, _partitioned_topic(call).partitions)


@table.on("GET", f"{TOPIC}/partitions", query=("checkAllowAutoCreation",))
async def partitions(call: Call) -> dict[str, Any]:
    """The number of partitions, 0 for a topic without; a topic that may be created on the way counts as there."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.exists(name) and name.partition < 0 and call.flag("checkAllowAutoCreation"):
        auto = broker.topics.auto(name)
        if auto.allowed and auto.partitions:
            await broker.topics.all_of(name)  # clients go on to address the partitions one by one
        elif auto.allowed:
            return {"partitions": 0}
    count, document = broker.topics.partitions(name), broker.topics.document(name)
    if count and document is not None and document.properties:
        return {"partitions": count, "properties": document.properties}
    return {"partitions": count}


@table.on("DELETE", f"{TOPIC}/partitions", query=("force", "deleteSchema"))
async def delete_partitioned(call: Call) -> None:
    """Delete a partitioned topic with all its partitions."""
    await _delete(call, partitioned=True)

"""Topics: create, list, describe, grow, end and delete."""

from typing import Any

from penstock.core.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .answers import NO_CONTENT, Answer
from .call import Call
from .policies import shown_retention
from .stats import internal_stats, partitioned_stats, topic_stats
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
    properties = call.body_or_none(dict[str, str])
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
    """Delete a topic with what it holds; `force` also when somebody is connected."""
    await call.broker.delete_topic(
        call.topic, force=call.flag("force"), schema=call.flag("deleteSchema", default=True)
    )
    return NO_CONTENT


# -- partitions


@table.on("PUT", f"{TOPIC}/partitions", body=int)
async def create_partitioned(call: Call) -> Answer:
    """Create a topic of so many partitions."""
    count = call.body(int)
    if count < 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "Number of partitions should be more than 0")
    await call.broker.topics.create(call.topic, count)
    return NO_CONTENT


@table.on("POST", f"{TOPIC}/partitions", body=int)
async def grow(call: Call) -> Answer:
    """Let a partitioned topic grow to so many partitions."""
    await call.broker.subscriptions.grow(call.topic, call.body(int))
    return NO_CONTENT


@table.on("GET", f"{TOPIC}/partitions", query=("checkAllowAutoCreation",))
async def partitions(call: Call) -> Answer:
    """The number of partitions, 0 for a topic without; a topic that may be created on the way counts as there."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.exists(name) and name.partition < 0 and call.flag("checkAllowAutoCreation"):
        if broker.settings.auto_create_partitions:
            await broker.topics.all_of(name)  # clients go on to address the partitions one by one
        elif broker.settings.auto_create_topics:
            return Answer(body={"partitions": 0})
    return Answer(body={"partitions": broker.topics.partitions(name)})


@table.on("DELETE", f"{TOPIC}/partitions", query=("force", "deleteSchema"))
async def delete_partitioned(call: Call) -> Answer:
    """Delete a partitioned topic with all its partitions."""
    if not call.broker.topics.partitions(call.topic):
        raise _not_partitioned(call)
    return await delete(call)


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


@table.on("GET", f"{TOPIC}/internalStats")
async def internals(call: Call) -> Answer:
    """The log and its cursors."""
    name, broker = call.seen_topic, call.broker
    if not broker.topics.partitions(name):
        return Answer(body=await internal_stats(await broker.topics.get(name, create=False)))
    logs = await broker.topics.all_of(name, create=False)
    return Answer(
        body={
            "metadata": {"partitions": len(logs)},
            "partitions": {str(log.name): await internal_stats(log) for log in logs},
        }
    )


@table.on("GET", f"{TOPIC}/lastMessageId")
async def last_message_id(call: Call) -> Answer:
    """The id of the last message; of each partition's, where there are some."""
    name = call.consumed_topic
    return Answer(body=_last_ids(call, name, await call.broker.topics.all_of(name, create=False)))


@table.on("POST", f"{TOPIC}/terminate", f"{TOPIC}/terminate/partitions", answer=dict[str, Any])
async def terminate(call: Call) -> Answer:
    """Let no message follow; answers the id of the last one, of each partition's where there are some."""
    name = call.topic
    return Answer(body=_last_ids(call, name, await call.broker.topics.terminate(name)))


def _last_ids(call: Call, name: TopicName, logs: list[Topic]) -> dict[str, Any]:
    if not call.broker.topics.partitions(name):
        return _last_id(logs[0])
    return {str(log.name.partition): _last_id(log) for log in logs}


def _last_id(log: Topic) -> dict[str, int]:
    return {"ledgerId": log.ledger, "entryId": log.next_entry - 1, "partitionIndex": log.name.partition}

"""The cluster, its brokers and its topics."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from penstock.broker.capability import Capability, require
from penstock.broker.cluster_view import ConfigValue, Node, Replicas
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.confluent.proxy.call import shown
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter
from penstock.runtime.tasks import chosen, each

from .call import V3Call
from .shapes import (
    Broker,
    Cluster,
    ListMetadata,
    Partition,
    PartitionOffsets,
    Replica,
    Resources,
    Topic,
    TopicConfig,
)

MEDIA: Final = ("application/json",)
AT_ONCE: Final = 200  # topics that the cluster is asked for together

BOTH: Final = "earliest_and_latest"

ERRORS: Final = (
    ErrorKind.UNAUTHENTICATED,
    ErrorKind.FORBIDDEN,
    ErrorKind.UNAVAILABLE,
    ErrorKind.NOT_SUPPORTED,
)
FURTHER: Final = (
    (404, "404 cluster or resource, 40402 partition, 40403 topic not found."),
    (406, "No type of the answer is accepted."),
)
Handler = Callable[[V3Call], Awaitable[Any]]

table: Final = Table("REST proxy v3", "/rest/v3")

_CLUSTER: Final = "/clusters/{cluster}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_PARTITION: Final = f"{_TOPIC}/partitions/{{partition}}"


def read(reads: Table, path: str, summary: str, answer: Any, **about: Any) -> Callable[[Handler], Handler]:
    """Declare a read."""
    return reads.on(
        "GET", path, summary=summary, answer=answer, errors=ERRORS, media=MEDIA, further=FURTHER, **about
    )


# -- the cluster


@read(table, "/clusters", "The clusters: there is one.", Resources)
async def clusters(call: V3Call) -> Resources:
    call.caller.may_list(DEFAULT_NAMESPACE)
    made = await _cluster(call)
    return Resources("KafkaClusterList", ListMetadata(made.metadata.url.rpartition("/")[0]), [made])


@read(table, _CLUSTER, "The cluster.", Cluster)
async def cluster(call: V3Call) -> Cluster:
    call.caller.may_list(DEFAULT_NAMESPACE)
    return await _cluster(call)


async def _cluster(call: V3Call) -> Cluster:
    made = Cluster(
        kind="KafkaCluster",
        metadata=call.metadata(()),
        cluster_id=call.cluster,
        acls=call.related("acls"),
        brokers=call.related("brokers"),
        broker_configs=call.related("broker-configs"),
        consumer_groups=call.related("consumer-groups"),
        topics=call.related("topics"),
        partition_reassignments=call.related("topics", "-", "partitions", "-", "reassignment"),
    )
    controller = (await call.view.nodes()).controller
    if controller is not None:
        made.controller = call.related("brokers", controller)
    return made


@read(table, f"{_CLUSTER}/brokers", "The brokers.", Resources)
async def brokers(call: V3Call) -> Resources:
    call.caller.may_list(DEFAULT_NAMESPACE)
    return call.listed(
        "KafkaBroker", ("brokers",), [_broker(call, one) for one in (await call.view.nodes()).brokers]
    )


@read(table, f"{_CLUSTER}/brokers/{{broker}}", "A broker.", Broker)
async def broker(call: V3Call) -> Broker:
    call.caller.may_list(DEFAULT_NAMESPACE)
    number = _number(call.names["broker"])
    for one in (await call.view.nodes()).brokers:
        if one.id == number:
            return _broker(call, one)
    raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)


def _number(text: str) -> int:
    """The id of a broker; -1, which none has, for a text that is not a number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 11 else -1


def _broker(call: V3Call, one: Node) -> Broker:
    return Broker(
        kind="KafkaBroker",
        metadata=call.metadata(("brokers", one.id), ("broker", one.id)),
        cluster_id=call.cluster,
        broker_id=one.id,
        host=one.host,
        port=one.port,
        configs=call.related("brokers", one.id, "configs"),
        partition_replicas=call.related("brokers", one.id, "partition-replicas"),
    )


# -- topics

_OPERATIONS: Final = Parameter(
    "include_authorized_operations", "Also a list of operations, which is empty.", {"type": "boolean"}
)


@read(table, f"{_CLUSTER}/topics", "The topics of public/default.", Resources, parameters=(_OPERATIONS,))
async def topics(call: V3Call) -> Resources:
    names = await _names(call)

    async def made(name: TopicName) -> Topic | None:
        try:
            return _topic(call, name, await call.view.replicas(name))
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:  # deleted in the meantime
                raise
            return None

    found = await each(made, names, AT_ONCE)
    return call.listed("KafkaTopic", ("topics",), [one for one in found if one is not None])


@read(table, _TOPIC, "A topic.", Topic, parameters=(_OPERATIONS,))
async def topic(call: V3Call) -> Topic:
    name = await call.known_topic()
    return _topic(call, name, await call.view.replicas(name))


def _topic(call: V3Call, name: TopicName, replicas: Sequence[Replicas]) -> Topic:
    text = shown(name)
    made = Topic(
        kind="KafkaTopic",
        metadata=call.metadata(("topics", text), ("topic", text)),
        cluster_id=call.cluster,
        topic_name=text,
        is_internal=False,
        replication_factor=len(replicas[0].brokers) if replicas else 0,
        partitions_count=len(replicas),
        partitions=call.related("topics", text, "partitions"),
        configs=call.related("topics", text, "configs"),
        partition_reassignments=call.related("topics", text, "partitions", "-", "reassignment"),
    )
    if call.flag("include_authorized_operations"):
        made.authorized_operations = []
    return made


async def _names(call: V3Call) -> list[TopicName]:
    call.caller.may_list(DEFAULT_NAMESPACE)
    known = call.broker.topics
    await known.learn_names(DEFAULT_NAMESPACE)
    return await chosen(known.names(DEFAULT_NAMESPACE, "persistent"), call.caller.sees)


# -- partitions


@read(table, f"{_TOPIC}/partitions", "The partitions of a topic.", Resources)
async def partitions(call: V3Call) -> Resources:
    name = await call.known_topic()
    found = await call.view.replicas(name)
    made = [Partition(**_partition(call, name, number, one)) for number, one in enumerate(found)]
    return call.listed("KafkaPartition", ("topics", shown(name), "partitions"), made)


@read(table, _PARTITION, "A partition.", Partition)
async def partition(call: V3Call) -> Partition:
    name = await call.known_topic()
    found = await call.view.replicas(name)
    number = call.partition_of(len(found))
    return Partition(**_partition(call, name, number, found[number]))


@read(
    table,
    f"{_PARTITION}/offset",
    "Where a partition begins and ends.",
    PartitionOffsets,
    parameters=(Parameter("offset_type", f"`{BOTH}`, the one that there is."),),
)
async def offset(call: V3Call) -> PartitionOffsets:
    if call.text("offset_type", BOTH) != BOTH:
        raise ConfluentError(ConfluentCode(400, 400), f"Invalid offset_type: only {BOTH} is taken")
    name = await call.known_topic()
    found = await call.view.replicas(name)
    number = call.partition_of(len(found))
    require(call.broker.capabilities, Capability.OFFSETS)
    log = (await call.broker.topics.all_of(name, create=False))[number]
    await log.refresh()
    fields = _partition(call, name, number, found[number])
    at = ("topics", shown(name), "partitions", number, "offset")
    place = (("topic", shown(name)), ("partition", number), ("offset_type", BOTH))
    fields |= {"kind": "KafkaPartitionWithOffsets", "metadata": call.metadata(at, *place)}
    bounds = log.bounds
    return PartitionOffsets(**fields, earliest_offset=bounds.first_offset, latest_offset=bounds.next_offset)


def _partition(call: V3Call, name: TopicName, number: int, one: Replicas) -> dict[str, Any]:
    """The fields of a partition."""
    text = shown(name)
    at = ("topics", text, "partitions", number)
    return {
        "kind": "KafkaPartition",
        "metadata": call.metadata(at, ("topic", text), ("partition", number)),
        "cluster_id": call.cluster,
        "topic_name": text,
        "partition_id": number,
        "leader": None if one.leader is None else call.related(*at, "replicas", one.leader),
        "replicas": call.related(*at, "replicas"),
        "reassignment": call.related(*at, "reassignment"),
    }


@read(table, f"{_PARTITION}/replicas", "Which brokers have a partition.", Resources)
async def replicas(call: V3Call) -> Resources:
    name = await call.known_topic()
    found = await call.view.replicas(name)
    number = call.partition_of(len(found))
    made = [_replica(call, name, number, found[number], one) for one in sorted(found[number].brokers)]
    return call.listed("KafkaReplica", ("topics", shown(name), "partitions", number, "replicas"), made)


@read(table, f"{_PARTITION}/replicas/{{broker}}", "What one broker has of a partition.", Replica)
async def replica(call: V3Call) -> Replica:
    name = await call.known_topic()
    found = await call.view.replicas(name)
    number, at = call.partition_of(len(found)), _number(call.names["broker"])
    if at not in found[number].brokers:
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)
    return _replica(call, name, number, found[number], at)


def _replica(call: V3Call, name: TopicName, number: int, one: Replicas, broker: int) -> Replica:
    text = shown(name)
    return Replica(
        kind="KafkaReplica",
        metadata=call.metadata(
            ("topics", text, "partitions", number, "replicas", broker),
            ("topic", text),
            ("partition", number),
            ("replica", broker),
        ),
        cluster_id=call.cluster,
        topic_name=text,
        partition_id=number,
        broker_id=broker,
        is_leader=broker == one.leader,
        is_in_sync=broker in one.in_sync,
        broker=call.related("brokers", broker),
    )


# -- configurations


@read(table, f"{_CLUSTER}/topics/-/configs", "The configurations of all topics.", Resources)
async def all_configs(call: V3Call) -> Resources:
    found = await call.view.configs(await _names(call))
    made = [_config(call, name, one) for name in sorted(found) for one in found[name]]
    return call.listed("KafkaTopicConfig", ("topics", "-", "configs"), made)


@read(table, f"{_TOPIC}/configs", "The configuration of a topic.", Resources)
async def configs(call: V3Call) -> Resources:
    name = await call.known_topic()
    made = [_config(call, name, one) for one in await _configs(call, name)]
    return call.listed("KafkaTopicConfig", ("topics", shown(name), "configs"), made)


@read(table, f"{_TOPIC}/configs/{{name}}", "One value of a topic's configuration.", TopicConfig)
async def config(call: V3Call) -> TopicConfig:
    name = await call.known_topic()
    for one in await _configs(call, name):
        if one.name == call.names["name"]:
            return _config(call, name, one)
    raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)


async def _configs(call: V3Call, name: TopicName) -> Sequence[ConfigValue]:
    found = (await call.view.configs([name])).get(name)
    if found is None:
        raise call.broker.topics.missing(name)
    return found


def _config(call: V3Call, topic: TopicName, one: ConfigValue) -> TopicConfig:
    text = shown(topic)
    return TopicConfig(
        kind="KafkaTopicConfig",
        metadata=call.metadata(("topics", text, "configs", one.name), ("topic", text), ("config", one.name)),
        cluster_id=call.cluster,
        topic_name=text,
        name=one.name,
        value=one.value,
        is_default=one.is_default,
        is_read_only=one.is_read_only,
        is_sensitive=one.is_sensitive,
        source=one.source,
        synonyms=list(one.synonyms),
    )

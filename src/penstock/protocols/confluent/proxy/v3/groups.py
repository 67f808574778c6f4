"""Consumer groups: their members, assignments and lags."""

from collections.abc import Sequence
from typing import Final, NoReturn

from penstock.broker.cluster_view import Group, Lag, Member
from penstock.model.confluent import ConfluentError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.confluent.proxy.call import shown
from penstock.protocols.http.operations import Table

from .call import V3Call
from .shapes import Assignment, Consumer, ConsumerGroup, ConsumerLag, LagSummary, Resources
from .topics import read

table: Final = Table("REST proxy v3", "/rest/v3")

_GROUPS: Final = "/clusters/{cluster}/consumer-groups"
_GROUP: Final = f"{_GROUPS}/{{group}}"
_CONSUMER: Final = f"{_GROUP}/consumers/{{consumer}}"
_OF_PARTITION: Final = "{topic}/partitions/{partition}"


@read(table, _GROUPS, "The consumer groups.", Resources)
async def groups(call: V3Call) -> Resources:
    call.caller.may_list(DEFAULT_NAMESPACE)
    found = await call.view.groups(call.sees, everything=call.everything)
    return call.listed("KafkaConsumerGroup", ("consumer-groups",), [_group(call, one) for one in found])


@read(table, _GROUP, "A consumer group.", ConsumerGroup)
async def group(call: V3Call) -> ConsumerGroup:
    return _group(call, await _find(call))


async def _find(call: V3Call) -> Group:
    call.caller.may_list(DEFAULT_NAMESPACE)
    found = await call.view.group(call.names["group"], call.sees, everything=call.everything)
    return _not_found() if found is None else found


def _not_found(text: str = NOT_FOUND_TEXT) -> NoReturn:
    raise ConfluentError(NOT_FOUND, text)


def _group(call: V3Call, one: Group) -> ConsumerGroup:
    at = ("consumer-groups", one.id)
    return ConsumerGroup(
        kind="KafkaConsumerGroup",
        metadata=call.metadata(at, ("consumer-group", one.id)),
        cluster_id=call.cluster,
        consumer_group_id=one.id,
        is_simple=one.is_simple,
        partition_assignor=one.assignor,
        state=one.state,
        type=one.type,
        coordinator=None if one.coordinator is None else call.related("brokers", one.coordinator),
        consumers=call.related(*at, "consumers"),
        lag_summary=call.related(*at, "lag-summary"),
    )


# -- consumers


@read(table, f"{_GROUP}/consumers", "The members of a group.", Resources)
async def consumers(call: V3Call) -> Resources:
    found = await _find(call)
    made = [_consumer(call, found.id, one) for one in found.members]
    return call.listed("KafkaConsumer", ("consumer-groups", found.id, "consumers"), made)


@read(table, _CONSUMER, "A member of a group.", Consumer)
async def consumer(call: V3Call) -> Consumer:
    found = await _find(call)
    return _consumer(call, found.id, _member(call, found))


def _member(call: V3Call, found: Group) -> Member:
    for one in found.members:
        if one.id == call.names["consumer"]:
            return one
    _not_found()


def _consumer(call: V3Call, group: str, one: Member) -> Consumer:
    at = ("consumer-groups", group, "consumers", one.id)
    return Consumer(
        kind="KafkaConsumer",
        metadata=call.metadata(at, ("consumer-group", group), ("consumer", one.id)),
        cluster_id=call.cluster,
        consumer_group_id=group,
        consumer_id=one.id,
        instance_id=one.instance_id,
        client_id=one.client_id,
        assignments=call.related(*at, "assignments"),
    )


@read(table, f"{_CONSUMER}/assignments", "The partitions that a member has.", Resources)
async def assignments(call: V3Call) -> Resources:
    found = await _find(call)
    one = _member(call, found)
    made = [_assignment(call, found.id, one.id, *place) for place in one.partitions]
    at = ("consumer-groups", found.id, "consumers", one.id, "assignments")
    return call.listed("KafkaConsumerAssignment", at, made)


@read(table, f"{_CONSUMER}/assignments/{_OF_PARTITION}", "A partition that a member has.", Assignment)
async def assignment(call: V3Call) -> Assignment:
    found = await _find(call)
    one = _member(call, found)
    place = call.topic, call.partition
    return _assignment(call, found.id, one.id, *place) if place in one.partitions else _not_found()


def _assignment(call: V3Call, group: str, consumer: str, topic: TopicName, partition: int) -> Assignment:
    text = shown(topic)
    return Assignment(
        kind="KafkaConsumerAssignment",
        metadata=call.metadata(
            ("consumer-groups", group, "consumers", consumer, "assignments", text, "partitions", partition),
            ("consumer-group", group),
            ("consumer", consumer),
            ("assignment", text),
            ("partition", partition),
        ),
        cluster_id=call.cluster,
        consumer_group_id=group,
        consumer_id=consumer,
        topic_name=text,
        partition_id=partition,
        partition=call.related("topics", text, "partitions", partition),
        lag=call.related("consumer-groups", group, "lags", text, "partitions", partition),
    )


# -- lags


@read(table, f"{_GROUP}/lags", "How far a group is behind, the furthest partitions first.", Resources)
async def lags(call: V3Call) -> Resources:
    found, behind = await _lags(call)
    owners = found.owners()
    made = [_lag(call, found.id, one, owners.get((one.topic, one.partition), Member())) for one in behind]
    return call.listed("KafkaConsumerLag", ("consumer-groups", found.id, "lags"), made)


@read(table, f"{_GROUP}/lags/{_OF_PARTITION}", "How far a group is behind in a partition.", ConsumerLag)
async def lag(call: V3Call) -> ConsumerLag:
    topic, partition = call.topic, call.partition
    found, behind = await _lags(call)
    for one in behind:
        if (one.topic, one.partition) == (topic, partition):
            return _lag(call, found.id, one, found.owners().get((topic, partition), Member()))
    _not_found()


@read(table, f"{_GROUP}/lag-summary", "How far a group is behind in all.", LagSummary)
async def lag_summary(call: V3Call) -> LagSummary:
    found, behind = await _lags(call)
    most = behind[0]
    member = found.owners().get((most.topic, most.partition), Member())
    text, at = shown(most.topic), ("consumer-groups", found.id)
    return LagSummary(
        kind="KafkaConsumerGroupLagSummary",
        metadata=call.metadata((*at, "lag-summary"), ("consumer-group", found.id), ("lag-summary", "")),
        cluster_id=call.cluster,
        consumer_group_id=found.id,
        max_lag_consumer_id=member.id,
        max_lag_instance_id=member.instance_id,
        max_lag_client_id=member.client_id,
        max_lag_topic_name=text,
        max_lag_partition_id=most.partition,
        max_lag=most.lag,
        total_lag=sum(one.lag for one in behind),
        max_lag_consumer=call.related(*at, "consumers", member.id),
        max_lag_partition=call.related("topics", text, "partitions", most.partition),
    )


async def _lags(call: V3Call) -> tuple[Group, Sequence[Lag]]:
    """A group and at least one lag, the greatest first. Raises ConfluentError."""
    found = await _find(call)
    behind = await call.view.lags(found.id, call.sees)
    if not behind:
        _not_found("Consumer lags not found.")
    return found, sorted(behind, key=lambda one: (-one.lag, one.topic, one.partition))


def _lag(call: V3Call, group: str, one: Lag, member: Member) -> ConsumerLag:
    text = shown(one.topic)
    return ConsumerLag(
        kind="KafkaConsumerLag",
        metadata=call.metadata(
            ("consumer-groups", group, "lags", text, "partitions", one.partition),
            ("consumer-group", group),
            ("lag", text),
            ("partition", one.partition),
        ),
        cluster_id=call.cluster,
        consumer_group_id=group,
        topic_name=text,
        partition_id=one.partition,
        current_offset=one.current,
        log_end_offset=one.end,
        lag=one.lag,
        consumer_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
    )

"""Topics, partitions and brokers as the proxy's clients see them."""

import msgspec

from penstock.broker.capability import Capability, require
from penstock.broker.names import check_partition
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName

from .call import ProxyCall, not_found, shown

# Older than the other code of a missing topic, and given by this one call alone.
_TOPIC_UNKNOWN = ConfluentCode(404, 40403)


class Replica(msgspec.Struct):
    """A replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class Partition(msgspec.Struct):
    """A partition and its replicas; the leader is -1 if there is none now."""

    partition: int
    leader: int
    replicas: list[Replica]


class TopicAnswer(msgspec.Struct):
    """A topic with its settings and partitions."""

    name: str
    configs: dict[str, str]
    partitions: list[Partition]


class OffsetsAnswer(msgspec.Struct):
    """The first offset of a partition, and the one that the next record gets."""

    beginning_offset: int
    end_offset: int


class BrokersAnswer(msgspec.Struct):
    """The ids of brokers."""

    brokers: list[int]


async def topics(call: ProxyCall) -> list[str]:
    """The topics of `public/default` that the caller may use."""
    found = call.proxy.broker.topics
    await found.learn_names(DEFAULT_NAMESPACE)
    names = found.names(DEFAULT_NAMESPACE, "persistent")
    return [shown(name) for name in names if call.caller.sees(name)]


async def topic(call: ProxyCall) -> TopicAnswer:
    try:
        name = await call.known_topic()
        configs = (await call.proxy.view.configs([name])).get(name, ())
        found = await _partitions(call, name)
    except PenstockError as error:
        if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
            raise
        raise ConfluentError(_TOPIC_UNKNOWN, not_found(call.names["topic"])) from None
    return TopicAnswer(shown(name), {one.name: one.value for one in configs if one.value is not None}, found)


async def partitions(call: ProxyCall) -> list[Partition]:
    return await _partitions(call, await call.known_topic())


async def partition(call: ProxyCall) -> Partition:
    number = call.partition
    found = await _partitions(call, await call.known_topic())
    check_partition(number, len(found))
    return found[number]


async def offsets(call: ProxyCall) -> OffsetsAnswer:
    number = call.partition
    logs = await call.proxy.broker.topics.all_of(await call.known_topic(), create=False)
    check_partition(number, len(logs))
    require(call.proxy.broker.capabilities, Capability.OFFSETS)
    await logs[number].refresh()
    bounds = logs[number].bounds
    return OffsetsAnswer(bounds.first_offset, bounds.next_offset)


async def brokers(call: ProxyCall) -> BrokersAnswer:
    return BrokersAnswer([one.id for one in (await call.proxy.view.nodes()).brokers])


async def _partitions(call: ProxyCall, name: TopicName) -> list[Partition]:
    return [
        Partition(
            number,
            -1 if one.leader is None else one.leader,
            [Replica(broker, broker == one.leader, broker in one.in_sync) for broker in one.brokers],
        )
        for number, one in enumerate(await call.proxy.view.replicas(name))
    ]

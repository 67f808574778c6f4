"""Topics, partitions and brokers as the proxy's clients see them."""

import msgspec

from penstock.broker.capability import Capability, require
from penstock.broker.names import check_partition
from penstock.broker.topic import Topic
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName

from .call import ProxyCall, not_found, shown
from .configs import configs_of

BROKER: int = 0  # the id of the one broker that clients see

# Older than the other code of a missing topic, and given by this one call alone.
_TOPIC_UNKNOWN = ConfluentCode(404, 40403)


class Replica(msgspec.Struct):
    """A replica of a partition."""

    broker: int = BROKER
    leader: bool = True
    in_sync: bool = True


class Partition(msgspec.Struct):
    """A partition and its replicas."""

    partition: int
    leader: int = BROKER
    replicas: list[Replica] = msgspec.field(default_factory=lambda: [Replica()])


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
        name, logs = call.topic, await _logs(call)
    except PenstockError as error:
        if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
            raise
        raise ConfluentError(_TOPIC_UNKNOWN, not_found(call.names["topic"])) from None
    return TopicAnswer(shown(name), configs_of(call.proxy.broker, logs[0]), _partitions(len(logs)))


async def partitions(call: ProxyCall) -> list[Partition]:
    return _partitions(len(await _logs(call)))


async def partition(call: ProxyCall) -> Partition:
    number = call.partition
    check_partition(number, len(await _logs(call)))
    return Partition(number)


async def offsets(call: ProxyCall) -> OffsetsAnswer:
    number = call.partition
    logs = await _logs(call)
    check_partition(number, len(logs))
    require(call.proxy.broker.capabilities, Capability.OFFSETS)
    await logs[number].refresh()
    bounds = logs[number].bounds
    return OffsetsAnswer(bounds.first_offset, bounds.next_offset)


async def brokers(call: ProxyCall) -> BrokersAnswer:
    return BrokersAnswer([BROKER])


def _partitions(count: int) -> list[Partition]:
    return [Partition(number) for number in range(count)]


async def _logs(call: ProxyCall) -> list[Topic]:
    """The logs of the topic in the path. Raises TOPIC_NOT_FOUND, FORBIDDEN."""
    name: TopicName = call.topic
    call.caller.may_look(name)
    topics = call.proxy.broker.topics
    await topics.learn(name)
    if not topics.exists(name):
        raise topics.missing(name)
    return list(await topics.all_of(name, create=False))

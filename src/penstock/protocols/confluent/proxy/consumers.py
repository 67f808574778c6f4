"""Operations of consumer instances: create, subscribe, assign, seek, commit, delete."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from penstock.broker.groups import (
    Committed,
    Edge,
    GroupMember,
    GroupOptions,
    Position,
    Since,
    TopicPartition,
)
from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName, check_subscription
from penstock.protocols.caller import PROCESS_KEY, Caller
from penstock.protocols.clients import client_of
from penstock.protocols.confluent.call import UNREADABLE
from penstock.protocols.http.answers import NO_CONTENT, Answer
from penstock.protocols.http.paths import PREFIX_KEY

from .call import ProxyCall, shown, topic_named
from .codes import BAD_CONSUMER, ILLEGAL_STATE, TOO_LARGE
from .consumer_shapes import (
    DEFAULT_WAIT_MS,
    CommittedOffset,
    CommittedOffsets,
    InstanceAnswer,
    PartitionName,
    Partitions,
    Topics,
)
from .formats import Format
from .instances import Instance, Key, Way, id_of, path_of

_MIN_BYTES: Final = range(-1, 10_000_001)
_BAD_MIN_BYTES: Final = ConfluentCode(422, 40001)
_PARTITION_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 2
_METADATA_BYTES_MAX: Final = 4096  # Kafka's offset.metadata.max.bytes

ONE_WAY: Final = (
    "IllegalStateError: You must choose only one way to configure your consumer: (1) subscribe to specific topics by name,"
    " (2) subscribe to topics matching a regex pattern, (3) assign itself specific topic-partitions."
)


# -- instances


async def create(call: ProxyCall) -> InstanceAnswer | None:
    call.caller.may_consume_somewhere()
    given = call.object()
    instances, group = call.proxy.instances, check_subscription(call.names["group"])
    encoding = _format(given)
    chosen = _text(given, "id") or _text(given, "name")
    options = GroupOptions(
        name=chosen or instances.new_name(),
        start=_start(given),
        auto_commit=_auto_commit(given),
        client=client_of(call.exchange.scope),
    )
    wait_ms = _number(given, ("consumer.request.timeout.ms", "requestWaitMs"), DEFAULT_WAIT_MS)
    least = _number(given, ("fetch.min.bytes", "responseMinBytes"), -1)
    if least not in _MIN_BYTES:
        raise ConfluentError(_BAD_MIN_BYTES, "fetch.min.bytes is not between -1 and 10,000,000")
    if not 0 <= wait_ms <= 2**31:
        raise ConfluentError(BAD_CONSUMER, "consumer.request.timeout.ms is out of bounds")
    key = Key(call.caller.role, group, options.name)
    if chosen and await instances.created_elsewhere(key, call.exchange, call.body):
        return None
    async with instances.making(key, chosen=bool(chosen)):
        member = await call.proxy.groups.join(group, options)
        member.owner, member.proxy = call.caller.role, call.caller.proxy
        wait_ms = min(wait_ms, call.caller.context.limits.max_wait_ms)
        # One byte is any record, as in Kafka, also one without a key and a value.
        instances.add(key, member, encoding, wait_ms, least if least > 1 else 0)
    return InstanceAnswer(options.name, _base_uri(call, key))


def _format(given: Mapping[str, Any]) -> Format:
    found = given.get("format") or Format.BINARY
    try:
        return Format(str(found).lower())
    except ValueError:
        raise ConfluentError(UNREADABLE, "Invalid format type.") from None


def _start(given: Mapping[str, Any]) -> Edge:
    found = given.get("auto.offset.reset")
    try:
        return Edge.END if found is None else Edge(str(found).lower())
    except ValueError:
        raise ConfluentError(
            BAD_CONSUMER,
            f"Invalid value {str(found)[:80]} for configuration auto.offset.reset: it is earliest or latest",
        ) from None


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > 255 or any(ord(each) < 32 for each in found):
        raise ConfluentError(BAD_CONSUMER, f"{name} is not a text of at most 255 characters")
    return found


def _auto_commit(given: Mapping[str, Any]) -> bool:
    for name in ("auto.commit.enable", "enable.auto.commit"):
        found = given.get(name)
        if found is None:
            continue
        text = str(found).lower()
        if text not in ("true", "false"):
            raise ConfluentError(BAD_CONSUMER, f"{name} is neither true nor false")
        return text == "true"
    return True


def _number(given: Mapping[str, Any], names: Sequence[str], default: int) -> int:
    for name in names:
        found = given.get(name)
        if found is None:
            continue
        try:
            if type(found) in (int, str):
                return int(found)
        except ValueError:
            pass
        raise ConfluentError(BAD_CONSUMER, f"{name} is not a whole number")
    return default


def _base_uri(call: ProxyCall, key: Key) -> str:
    scope = call.exchange.scope
    root = call.proxy.url or call.exchange.address + ("" if scope.get(PREFIX_KEY) else "/rest")
    return f"{root}/consumers/{quote(key.group, safe='')}/instances/{quote(key.name, safe='')}"


async def delete(call: ProxyCall) -> Answer | None:
    instance = await instance_of(call)
    if instance is None:
        return None
    await call.proxy.instances.remove(instance)
    return NO_CONTENT


async def known(call: ProxyCall) -> Answer:
    """Answer another process whether this one has an instance."""
    if PROCESS_KEY not in call.exchange.scope:
        raise ConfluentError(ConfluentCode(405, 405), "HTTP 405 Method Not Allowed")
    call.proxy.instances.check(Key(call.text("role") or None, call.names["group"], call.names["instance"]))
    return NO_CONTENT


async def instance_of(call: ProxyCall, wait_ms: int | None = None) -> Instance | None:
    """The instance that a request names; None if another process has it, and answered the request, which may wait for `wait_ms`. Raises
    ConfluentError."""
    key = Key(call.caller.role, call.names["group"], call.names["instance"])
    try:
        return call.proxy.instances.get(key)
    except ConfluentError:
        remote, made, path = call.proxy.remote, id_of(key), path_of(key)
        if wait_ms is None:
            answered = await remote.answered(made, call.exchange, body=call.body, path=path)
        else:
            answered = await remote.polled(made, call.exchange, wait_ms / 1000, b"[]", path)
        if answered:
            return None
        raise


# -- partitions


async def subscribe(call: ProxyCall) -> Answer | None:
    given = call.object()
    topics, pattern = given.get("topics"), given.get("topic_pattern")
    if topics is not None and not (isinstance(topics, list) and all(isinstance(one, str) for one in topics)):
        raise ConfluentError(UNREADABLE, "Topics is expected to be list of strings")
    _check_count(call, topics or (), "topics")
    if pattern is not None and not isinstance(pattern, str):
        raise ConfluentError(UNREADABLE, "Topic patterns is expected to be a string")
    instance = await instance_of(call)
    if instance is None:
        return None
    if topics and pattern:
        raise ConfluentError(ILLEGAL_STATE, ONE_WAY)
    if not (topics or pattern):
        raise ConfluentError(ILLEGAL_STATE, "Neither topic_pattern nor topics are present in request")
    way = Way.TOPICS if topics else Way.PATTERN
    _check_way(instance, way)
    names = [topic_named(one) for one in topics or ()]
    group = instance.key.group
    for name in names:
        call.caller.may_consume(name, group)
    async with call.proxy.instances.turn(instance) as member:
        try:
            if pattern:
                await member.subscribe_pattern(pattern, partial(_consumes, call.caller, group))
            else:
                await member.subscribe(names)
        except PenstockError:
            instance.way = way if member.topics else Way.NONE
            raise
        instance.way = way
    return NO_CONTENT


def _consumes(caller: Caller, group: str, topic: TopicName) -> bool:
    return caller.consumes(topic, group)


def _check_way(instance: Instance, way: Way) -> None:
    if instance.way not in (Way.NONE, way):
        raise ConfluentError(ILLEGAL_STATE, ONE_WAY)


async def subscription(call: ProxyCall) -> Topics | None:
    instance = await instance_of(call)
    return None if instance is None else Topics(list(map(shown, instance.member.topics)))


async def unsubscribe(call: ProxyCall) -> Answer | None:
    instance = await instance_of(call)
    if instance is None:
        return None
    async with call.proxy.instances.turn(instance) as member:
        await member.unsubscribe()
        instance.way = Way.NONE
    return NO_CONTENT


async def assign(call: ProxyCall) -> Answer | None:
    wanted = _partitions(call)
    instance = await instance_of(call)
    if instance is None:
        return None
    _check_way(instance, Way.ASSIGNED)
    for one in wanted:
        call.caller.may_consume(one.topic, instance.key.group)
    async with call.proxy.instances.turn(instance) as member:
        await member.assign(wanted)
        instance.way = Way.ASSIGNED if wanted else Way.NONE
    return NO_CONTENT


async def assignments(call: ProxyCall) -> Partitions | None:
    instance = await instance_of(call)
    if instance is None:
        return None
    return Partitions([PartitionName(shown(one.topic), one.partition) for one in instance.member.assignment])


# -- positions and offsets


async def seek(call: ProxyCall) -> Answer | None:
    given = call.object()
    positions: dict[TopicPartition, Position] = {}
    for one in _objects(call, given, "offsets"):
        positions[_place(one)] = _offset(one)
    for one in _objects(call, given, "timestamps"):
        positions[_place(one)] = Since(_time(one))
    return await _seek(call, positions)


async def seek_to_beginning(call: ProxyCall) -> Answer | None:
    return await _seek(call, dict.fromkeys(_partitions(call), Edge.BEGINNING))


async def seek_to_end(call: ProxyCall) -> Answer | None:
    return await _seek(call, dict.fromkeys(_partitions(call), Edge.END))


async def _seek(call: ProxyCall, positions: Mapping[TopicPartition, Position]) -> Answer | None:
    instance = await instance_of(call)
    if instance is None:
        return None
    async with call.proxy.instances.turn(instance) as member:
        held = set(member.assignment)
        for one in positions:
            if one not in held:
                raise ConfluentError(
                    ILLEGAL_STATE,
                    f"Illegal state: No current assignment for partition {shown(one.topic)}-{one.partition}",
                )
            call.caller.may_consume(one.topic, instance.key.group)
        await member.seek(positions)
    return NO_CONTENT


async def commit(call: ProxyCall) -> Answer | None:
    given = call.object()
    offsets = {
        # What is stored is the offset of the next record.
        _place(one): Committed(_offset(one) + 1, _metadata(one))
        for one in _objects(call, given, "offsets")
    }
    instance = await instance_of(call)
    if instance is None:
        return None
    for one in offsets:
        call.caller.may_consume(one.topic, instance.key.group)
    async with call.proxy.instances.turn(instance) as member:
        await member.commit(offsets or None)
    return Answer(raw=b"[]")


async def committed(call: ProxyCall) -> CommittedOffsets | None:
    wanted = _partitions(call)
    instance = await instance_of(call)
    if instance is None:
        return None
    for one in wanted:
        call.caller.may_consume(one.topic, instance.key.group)
    async with call.proxy.instances.turn(instance) as member:
        found = await member.committed(wanted)
    return CommittedOffsets(
        [
            CommittedOffset(shown(one.topic), one.partition, found[one].offset, found[one].metadata)
            for one in wanted
            if one in found
        ]
    )


def _partitions(call: ProxyCall) -> list[TopicPartition]:
    found = _objects(call, call.object(), "partitions", needed=True)
    return list(dict.fromkeys(_place(one) for one in found))


def _objects(
    call: ProxyCall, given: Mapping[str, Any], name: str, *, needed: bool = False
) -> list[dict[str, Any]]:
    found = given.get(name)
    if found is None and not needed:
        return []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ConfluentError(UNREADABLE, f"{name} is expected to be a list of objects")
    _check_count(call, found, name)
    return found


def _check_count(call: ProxyCall, found: Sequence[Any], name: str) -> None:
    most = call.caller.context.limits.max_messages_per_request
    if len(found) > most:
        raise ConfluentError(TOO_LARGE, f"{len(found)} {name}; the most is {most}")


def _place(one: Mapping[str, Any]) -> TopicPartition:
    topic = one.get("topic")
    if not isinstance(topic, str):
        raise ConfluentError(UNREADABLE, "topic is expected to be a text")
    return TopicPartition(topic_named(topic), _whole(one, "partition", _PARTITION_MAX))


def _offset(one: Mapping[str, Any]) -> int:
    return _whole(one, "offset", _OFFSET_MAX)


def _whole(one: Mapping[str, Any], name: str, most: int) -> int:
    found = one.get(name)
    if isinstance(found, str) and found.isascii() and found.isdigit() and len(found) < 20:
        found = int(found)
    if type(found) is not int or not 0 <= found <= most:
        raise ConfluentError(UNREADABLE, f"{name} is expected to be a whole number of at most {most}")
    return found


def _metadata(one: Mapping[str, Any]) -> str:
    found = one.get("metadata")
    if found is None:
        return ""
    if not isinstance(found, str) or len(found.encode(errors="replace")) > _METADATA_BYTES_MAX:
        raise ConfluentError(
            UNREADABLE, f"metadata is expected to be a text of at most {_METADATA_BYTES_MAX} bytes"
        )
    return found


def _time(one: Mapping[str, Any]) -> int:
    found = one.get("timestamp")
    try:
        at = datetime.fromisoformat(found) if isinstance(found, str) else None
        if at is not None and at.tzinfo is not None:
            return round(at.timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    raise ConfluentError(UNREADABLE, "timestamp is expected to be a time in ISO 8601, with its zone")


def check_rights(call: ProxyCall, instance: Instance, member: GroupMember) -> None:
    """Raise FORBIDDEN unless the caller may consume everything that the instance has. A pattern goes on without the topics whose
    permission was revoked."""
    if instance.way is Way.PATTERN:
        call.caller.may_consume_somewhere()
        return
    for topic in {*member.topics, *(one.topic for one in member.assignment)}:
        call.caller.may_consume(topic, instance.key.group)

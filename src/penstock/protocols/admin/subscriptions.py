"""Subscriptions: create, list, move, skip, describe and delete. What they hold is in `messages`."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.broker.log import Log
from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.protocols.group_start import create_at_group

from .call import Call
from .operations import SUBSCRIPTION, TOPIC, Table

table = Table()


class Position(msgspec.Struct, frozen=True):
    """The position of a subscription: at `target`, or after it; `group`: the position of that consumer group."""

    target: MessageId
    inclusive: bool
    properties: dict[str, str]
    group: str = ""

    @property
    def special(self) -> bool:
        """Whether it means a place in every partition."""
        return self.target in (EARLIEST, LATEST)


class _PositionJson(msgspec.Struct):
    """Pulsar's ResetCursorData, or a consumer group."""

    ledgerId: int = 2**63 - 1  # noqa: N815 - Pulsar's JSON
    entryId: int = 2**63 - 1  # noqa: N815
    partitionIndex: int = -1  # noqa: N815
    batchIndex: int = -1  # noqa: N815
    excluded: bool = False  # as Pulsar's Java classes are written
    isExcluded: bool = False  # noqa: N815 - as Pulsar's field is called
    properties: dict[str, str] | None = None
    group: str = ""


def read_position(content: bytes) -> Position:
    """A body: Pulsar's object, which means *at* the message unless it says `excluded` (or `isExcluded`); or an
    id as text (base64, `earliest`, `latest`), which means *after* it as everywhere. Empty: the latest.

    Raises BAD_PARAMETER.
    """
    text = content.decode("utf-8", "replace").strip()
    if not text:
        return Position(LATEST, False, {})
    try:
        given: Any = msgspec.json.decode(text) if text[0] in '{"' else text
        if isinstance(given, str):
            return Position(MessageId.parse(given), False, {})
        found = msgspec.convert(given, _PositionJson)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"bad message id: {error}") from None
    target = MessageId(found.ledgerId, found.entryId, found.partitionIndex, max(-1, found.batchIndex))
    if target.ledger == target.entry == -1:
        target = EARLIEST
    elif target.ledger == LATEST.ledger:
        target = LATEST
    return Position(target, not (found.excluded or found.isExcluded), found.properties or {}, found.group)


def _message_position(content: bytes) -> Position:
    """As `read_position`; raises BAD_PARAMETER for a group's."""
    found = read_position(content)
    if found.group:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, "only a new subscription can begin where a group goes on"
        )
    return found


def offset_in_backlog(subscription: Subscription, count: int) -> int:
    """The offset after `count` unacknowledged messages; the end if there are fewer."""
    at, left = subscription.figures().mark, count
    for first, last in subscription.acknowledged_ranges():
        if first - at > left:
            break
        left -= first - at
        at = last + 1
    return min(subscription.topic.bounds.next_offset, at + left)


async def _found(call: Call) -> Sequence[Subscription]:
    """The subscription on every partition; raises TOPIC_NOT_FOUND, SUBSCRIPTION_NOT_FOUND."""
    return await call.broker.subscriptions.of(call.consumed_topic, call.subscription)


async def of_one_partition(call: Call, what: str) -> Subscription:
    """The subscription on a topic without partitions, or on one; raises METHOD_NOT_ALLOWED on several."""
    found = await _found(call)
    if len(found) > 1:
        raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, f"{what} goes by partition: name one")
    return found[0]


def _check_place(position: Position, logs: Sequence[Log]) -> None:
    """A message's id means one partition: refuse it before anything is changed in the others."""
    if not position.special and (len(logs) != 1 or logs[0].ledger != position.target.ledger):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"message id {position.target} is not of this topic: name the partition that it is of",
        )


@table.on("GET", f"{TOPIC}/subscriptions")
async def subscriptions(call: Call) -> list[str]:
    """List a topic's subscriptions."""
    logs = await call.broker.topics.all_of(call.consumed_topic, create=False)
    return sorted({name for log in logs for name in log.subscriptions})


@table.on("PUT", SUBSCRIPTION, body=dict[str, Any] | str)
async def create(call: Call) -> None:
    """Create a durable subscription at a position: `"earliest"`, `"latest"` (the default), a message id, or `{"group": NAME}`,
    at the position of that consumer group of Kafka."""
    position, name = read_position(call.content), call.consumed_topic
    subscription = call.subscription
    if position.group:
        properties = call.bounded(position.properties)
        await create_at_group(call.broker, name, subscription, position.group, properties)
        return
    if not position.special:
        # An id is of no topic that is not there: none is made for it.
        _check_place(position, await call.broker.topics.all_of(name, create=False))
    await call.broker.subscriptions.create(
        name,
        subscription,
        position.target,
        inclusive=position.inclusive,
        properties=call.bounded(position.properties),
    )


@table.on("DELETE", SUBSCRIPTION, query=("force",))
async def delete(call: Call) -> None:
    """Delete a subscription; with `force` its consumers are disconnected."""
    await call.broker.subscriptions.delete(call.consumed_topic, call.subscription, force=call.flag("force"))


@table.on("POST", f"{SUBSCRIPTION}/skip/{{count}}")
async def skip(call: Call) -> None:
    """Count the next messages of the backlog as acknowledged."""
    count, found = call.number("count"), await of_one_partition(call, "skipping")
    await found.refresh()
    await _skipped([found], [offset_in_backlog(found, count)])


@table.on("POST", f"{SUBSCRIPTION}/skip_all")
async def skip_all(call: Call) -> None:
    """Count the whole backlog as acknowledged."""
    found = await _found(call)
    for one in found:
        await one.refresh()
    await _skipped(found, [one.topic.bounds.next_offset for one in found])


@table.on("POST", f"{SUBSCRIPTION}/expireMessages/{{seconds}}")
async def expire(call: Call) -> None:
    """Expire messages older than this: they count as acknowledged."""
    found = await _found(call)
    before = call.broker.clock.now_ms() - 1000 * call.number("seconds")
    await _skipped(found, [await one.topic.offset_at_time(before) for one in found])


@table.on("POST", f"{SUBSCRIPTION}/expireMessages", body=dict[str, Any] | str)
async def expire_to(call: Call) -> None:
    """Count everything up to and with a message as acknowledged."""
    position, found = _message_position(call.content), await _found(call)
    _check_place(position, [one.topic for one in found])
    offsets = [await one.topic.offset_after(position.target) for one in found]
    await _skipped(found, offsets)


@table.on("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}")
async def expire_all(call: Call) -> None:
    """Expire messages older than this on every subscription: they count as acknowledged."""
    before = call.broker.clock.now_ms() - 1000 * call.number("seconds")
    for log in await call.broker.topics.all_of(call.consumed_topic, create=False):
        offset = await log.offset_at_time(before)
        found = list(log.subscriptions.values())
        await _skipped(found, [offset] * len(found))


async def _skipped(found: Sequence[Subscription], offsets: list[int]) -> None:
    for one, offset in zip(found, offsets, strict=True):
        one.skip(offset)
        await one.flush()


@table.on("POST", f"{SUBSCRIPTION}/resetcursor/{{timestamp}}")
async def reset_to_time(call: Call) -> None:
    """Go on with the first message published at or after a time (ms since the epoch)."""
    timestamp = call.number("timestamp")
    for one in await _found(call):
        await one.seek(timestamp)
        await one.flush()


@table.on("POST", f"{SUBSCRIPTION}/resetcursor", body=dict[str, Any] | str)
async def reset(call: Call) -> None:
    """Go on at a position: `"earliest"`, `"latest"` or a message id."""
    position, found = _message_position(call.content), await _found(call)
    _check_place(position, [one.topic for one in found])
    for one in found:
        await one.seek(position.target, inclusive=position.inclusive)
        await one.flush()


# -- properties


@table.on("GET", f"{SUBSCRIPTION}/properties")
async def properties(call: Call) -> dict[str, str]:
    """The properties of a subscription."""
    return (await _found(call))[0].figures().properties


@table.on("PUT", f"{SUBSCRIPTION}/properties", body=dict[str, str])
async def set_properties(call: Call) -> None:
    """Set the properties of a subscription, instead of those before."""
    given = call.bounded(call.body(dict[str, str]))
    for one in await _found(call):
        await one.set_properties(given)

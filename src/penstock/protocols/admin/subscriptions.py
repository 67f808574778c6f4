"""Subscriptions: create, list, move, skip, look into and delete."""

from typing import Any

from penstock.core.subscription import Subscription
from penstock.core.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message
from penstock.model.names import check_local

from .answers import NO_CONTENT, Answer
from .call import Call
from .position import Position, offset_in_backlog, read_position
from .table import Table
from .topics import TOPIC

table = Table()

SUBSCRIPTION = f"{TOPIC}/subscription/{{subscription}}"


async def _found(call: Call) -> list[Subscription]:
    """The subscription on every partition; raises TOPIC_NOT_FOUND, SUBSCRIPTION_NOT_FOUND."""
    return await call.broker.subscriptions.of(call.consumed_topic, call.path["subscription"])


def _check_place(position: Position, logs: list[Topic]) -> None:
    """A message's id means one partition: refuse it before anything is changed in the others."""
    if not position.special and (len(logs) != 1 or logs[0].ledger != position.target.ledger):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"message id {position.target} is not of this topic: name the partition that it is of",
        )


@table.on("GET", f"{TOPIC}/subscriptions", answer=list[str])
async def subscriptions(call: Call) -> Answer:
    """List a topic's subscriptions."""
    logs = await call.broker.topics.all_of(call.consumed_topic, create=False)
    return Answer(body=sorted({name for log in logs for name in log.subscriptions}))


@table.on("PUT", SUBSCRIPTION, body=dict[str, Any] | str)
async def create(call: Call) -> Answer:
    """Create a durable subscription at a position: `"earliest"`, `"latest"` (the default) or a message id."""
    position, name = read_position(call.content), call.consumed_topic
    subscription = check_local("subscription", call.path["subscription"])
    if not position.special:
        # An id is of no topic that is not there: none is made for it.
        _check_place(position, await call.broker.topics.all_of(name, create=False))
    await call.broker.subscriptions.create(
        name,
        subscription,
        position.target,
        inclusive=position.inclusive,
        properties=position.properties,
    )
    return NO_CONTENT


@table.on("DELETE", SUBSCRIPTION, query=("force",))
async def delete(call: Call) -> Answer:
    """Delete a subscription; with `force` its consumers are disconnected."""
    await call.broker.subscriptions.delete(
        call.consumed_topic, call.path["subscription"], force=call.flag("force")
    )
    return NO_CONTENT


@table.on("POST", f"{SUBSCRIPTION}/skip/{{count}}")
async def skip(call: Call) -> Answer:
    """Count the next messages of the backlog as acknowledged."""
    count, found = call.number("count"), await _found(call)
    if len(found) > 1:
        raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, "skipping goes by partition: name one")
    return await _skipped(found, [offset_in_backlog(found[0], count)])


@table.on("POST", f"{SUBSCRIPTION}/skip_all")
async def skip_all(call: Call) -> Answer:
    """Count the whole backlog as acknowledged."""
    found = await _found(call)
    return await _skipped(found, [one.topic.next_offset for one in found])


@table.on("POST", f"{SUBSCRIPTION}/expireMessages/{{seconds}}")
async def expire(call: Call) -> Answer:
    """Count what was published longer ago than this as acknowledged."""
    found = await _found(call)
    before = call.broker.clock.now_ms() - 1000 * call.number("seconds")
    return await _skipped(found, [await one.topic.offset_at_time(before) for one in found])


@table.on("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}")
async def expire_all(call: Call) -> Answer:
    """Count what was published longer ago than this as acknowledged, on every subscription."""
    before = call.broker.clock.now_ms() - 1000 * call.number("seconds")
    for log in await call.broker.topics.all_of(call.consumed_topic, create=False):
        offset = await log.offset_at_time(before)
        found = list(log.subscriptions.values())
        await _skipped(found, [offset] * len(found))
    return NO_CONTENT


async def _skipped(found: list[Subscription], offsets: list[int]) -> Answer:
    for one, offset in zip(found, offsets, strict=True):
        one.skip(offset)
        await one.flush()
    return NO_CONTENT


@table.on("POST", f"{SUBSCRIPTION}/resetcursor/{{timestamp}}")
async def reset_to_time(call: Call) -> Answer:
    """Go on with the first message published at or after a time (ms since the epoch)."""
    timestamp = call.number("timestamp")
    for one in await _found(call):
        await one.seek_time(timestamp)
        await one.flush()
    return NO_CONTENT


@table.on("POST", f"{SUBSCRIPTION}/resetcursor", body=dict[str, Any] | str)
async def reset(call: Call) -> Answer:
    """Go on at a position: `"earliest"`, `"latest"` or a message id."""
    position, found = read_position(call.content), await _found(call)
    _check_place(position, [one.topic for one in found])
    for one in found:
        await one.seek(position.target, inclusive=position.inclusive)
        await one.flush()
    return NO_CONTENT


@table.on("GET", f"{SUBSCRIPTION}/position/{{position}}", text=True)
async def peek(call: Call) -> Answer:
    """The n-th message of the backlog, counted from 1: its payload, with the rest in headers."""
    position, found = call.number("position"), await _found(call)
    if len(found) > 1:
        raise PenstockError(
            ErrorKind.METHOD_NOT_ALLOWED, "looking into a backlog goes by partition: name one"
        )
    if position < 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "positions count from 1")
    topic, offset = found[0].topic, offset_in_backlog(found[0], position - 1)
    entries = await topic.read_at(offset, 1)
    if not entries:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"the backlog has no message {position}")
    entry = entries[0]
    messages = call.broker.encoder.decode(entry)
    message = messages[min(max(0, offset - entry.offset), len(messages) - 1)]
    return Answer(raw=message.payload, headers=_headers(topic, entry.entry_id, message))


def _headers(topic: Topic, entry_id: int, message: Message) -> dict[str, str]:
    place = f"{topic.ledger}:{entry_id}" + (f":{message.index}" if message.index >= 0 else "")
    headers = {
        "content-type": "application/octet-stream",
        "X-Pulsar-Message-ID": place,
        "X-Pulsar-publish-time": str(message.publish_time),
        "X-Pulsar-producer-name": message.producer_name,
        "X-Pulsar-sequence-id": str(message.sequence_id),
    }
    if message.event_time:
        headers["X-Pulsar-event-time"] = str(message.event_time)
    if message.key is not None:
        headers["X-Pulsar-partition-key"] = message.key
    if message.null_value:
        headers["X-Pulsar-null-value"] = "true"
    headers |= {f"X-Pulsar-PROPERTY-{name}": value for name, value in message.properties.items()}
    return {name: value for name, value in headers.items() if _fits(name) and _fits(value)}


def _fits(text: str) -> bool:
    """Whether a header can carry it: the message's own texts are anything."""
    return text.isascii() and text.isprintable()

"""Subscriptions: create, list, move, skip, describe and delete. What they hold is in `messages`."""

from collections.abc import Sequence
from typing import Any

from penstock.broker.consumer import Subscription
from penstock.broker.log import Log
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import check_local
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .position import Position, offset_in_backlog, read_position
from .table import Table
from .topics import TOPIC

table = Table()

SUBSCRIPTION = f"{TOPIC}/subscription/{{subscription}}"


async def _found(call: Call) -> Sequence[Subscription]:
    """The subscription on every partition; raises TOPIC_NOT_FOUND, SUBSCRIPTION_NOT_FOUND."""
    return await call.broker.subscriptions.of(call.consumed_topic, call.path["subscription"])


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
        properties=call.bounded(position.properties),
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
    count, found = call.number("count"), await of_one_partition(call, "skipping")
    return await _skipped([found], [offset_in_backlog(found, count)])


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


@table.on("POST", f"{SUBSCRIPTION}/expireMessages", body=dict[str, Any] | str)
async def expire_to(call: Call) -> Answer:
    """Count everything up to and with a message as acknowledged."""
    position, found = read_position(call.content), await _found(call)
    _check_place(position, [one.topic for one in found])
    offsets = [await one.topic.offset_after(position.target) for one in found]
    return await _skipped(found, offsets)


@table.on("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}")
async def expire_all(call: Call) -> Answer:
    """Count what was published longer ago than this as acknowledged, on every subscription."""
    before = call.broker.clock.now_ms() - 1000 * call.number("seconds")
    for log in await call.broker.topics.all_of(call.consumed_topic, create=False):
        offset = await log.offset_at_time(before)
        found = list(log.subscriptions.values())
        await _skipped(found, [offset] * len(found))
    return NO_CONTENT


async def _skipped(found: Sequence[Subscription], offsets: list[int]) -> Answer:
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


# -- properties


@table.on("GET", f"{SUBSCRIPTION}/properties", answer=dict[str, str])
async def properties(call: Call) -> Answer:
    """The properties of a subscription."""
    return Answer(body=(await _found(call))[0].properties)


@table.on("PUT", f"{SUBSCRIPTION}/properties", body=dict[str, str])
async def set_properties(call: Call) -> Answer:
    """Set the properties of a subscription, instead of those before."""
    given = call.bounded(call.body(dict[str, str]))
    for one in await _found(call):
        await one.set_properties(given)
    return NO_CONTENT

"""GET and POST of a subscription's cursor: acknowledge, give back, seek (PIP-64; docs/rest.md)."""

from itertools import islice
from typing import Final

import msgspec
from msgspec import Struct

from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table

from .consume import instance_of
from .cursor_change import CursorChange, CursorRequest, CursorResult
from .operations import CONSUMING, INSTANCE, SHIPPED, TOPIC, Target
from .partition import id_at
from .services import Services

RANGES_MAX: Final = 1000  # of acknowledged messages shown; there may be millions


class PartitionCursor(Struct, kw_only=True):
    """A partition's cursor. Everything up to `mark_delete_position` is acknowledged (null: nothing is), and the
    ranges of offsets beyond it, both ends inclusive; `more` tells that there are more ranges than are shown."""

    partition: int
    mark_delete_position: str | None
    mark_delete_offset: int | None
    individually_acknowledged: list[tuple[int, int]]
    more: bool
    backlog: int
    unacknowledged: int


class Cursor(Struct, kw_only=True):
    """A subscription's cursor; of a partitioned topic the positions are in `partitions`."""

    mark_delete_position: str | None
    mark_delete_offset: int | None
    individually_acknowledged: list[tuple[int, int]]
    more: bool
    backlog: int
    unacknowledged: int
    type: str | None
    consumers: list[str]
    partitions: list[PartitionCursor]


class CursorAnswer(Struct, kw_only=True):
    """PIP-64's cursor object."""

    cursor: Cursor


_request: Final = msgspec.json.Decoder(CursorRequest)

operations: Final = Table("consume", TOPIC, SHIPPED)


@operations.on(
    "GET",
    "/subscription/{subscription}/cursor",
    summary="A subscription's cursor.",
    answer=CursorAnswer,
    errors=CONSUMING,
)
async def show(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    caller.may_consume(target.topic, target.subscription)
    found = await rest.broker.subscriptions.of(target.topic, target.subscription)
    for one in found:
        await one.refresh()
    figures = [one.figures() for one in found]
    parts = [await _partition(one, numbered=rest.decoding.numbered) for one in found]
    whole = parts[0] if len(parts) == 1 and found[0].topic.name.partition < 0 else None
    cursor = Cursor(
        mark_delete_position=None if whole is None else whole.mark_delete_position,
        mark_delete_offset=None if whole is None else whole.mark_delete_offset,
        individually_acknowledged=[] if whole is None else whole.individually_acknowledged,
        more=any(part.more for part in parts),
        backlog=sum(part.backlog for part in parts),
        unacknowledged=sum(part.unacknowledged for part in parts),
        type=next((one.type.value for one in figures if one.connected and one.type is not None), None),
        consumers=sorted({name for one in figures for name in one.connected}),
        partitions=[] if whole is not None else parts,
    )
    await exchange.answer(to_json(CursorAnswer(cursor=cursor)))


@operations.on(
    "POST",
    "/subscription/{subscription}/cursor",
    *(f"{path}/cursor" for path in INSTANCE),
    summary="Acknowledge messages, give them back, or seek.",
    description="The path may name the consumer instance that has the messages: any process passes the request on to it.",
    request=CursorRequest,
    answer=CursorResult,
    errors=(
        *CONSUMING,
        ErrorKind.BAD_JSON,
        ErrorKind.TOO_LARGE,
        ErrorKind.MISDIRECTED,
        ErrorKind.CONSUMER_NOT_FOUND,
    ),
)
async def change(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    """What it answers is durable."""
    caller.may_consume(target.topic, target.subscription)
    body = await exchange.body(rest.limits.max_request_bytes)
    wanted = exchange.decoded(body, _request)
    most = rest.limits.max_messages_per_request
    if len(wanted.message_ids) > most:
        raise PenstockError(ErrorKind.TOO_LARGE, f"{len(wanted.message_ids)} ids; the most is {most}")
    if target.consumer:
        instance = await instance_of(rest, caller, target, exchange, body=body)
        if instance is None:
            return
        instances = [instance]
    else:
        instances = rest.instances.of(target.topic, target.subscription, caller.role)
    # A flush may wait for the next owner of a partition for longer than an instance lives.
    with rest.instances.hold(instances, named=bool(target.consumer)):
        found = await rest.broker.subscriptions.of(target.topic, target.subscription)
        if not instances and await rest.remote_instances.answered_by_any(
            target.topic, target.subscription, exchange, body
        ):
            return
        consumers = [one.consumer for one in instances]
        change = CursorChange(wanted, found, rest.broker.schemas, caller.role, consumers)
        answer = await change.run()
        await change.flush()
    await exchange.answer(answer)


async def _partition(one: Subscription, *, numbered: bool) -> PartitionCursor:
    figures = one.figures()
    ranges = list(islice(one.acknowledged_ranges(), RANGES_MAX + 1)) if numbered else []
    last = figures.mark - 1
    position = await id_at(one.topic, last) if last >= one.topic.bounds.first_offset else None
    return PartitionCursor(
        partition=one.topic.partition,
        mark_delete_position=position,
        mark_delete_offset=last if last >= 0 and numbered else None,
        individually_acknowledged=ranges[:RANGES_MAX],
        more=len(ranges) > RANGES_MAX,
        backlog=figures.backlog,
        unacknowledged=figures.unacked,
    )

"""GET and POST of a subscription's cursor: acknowledge, give back, seek (PIP-64; docs/rest.md)."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.broker.schemas import Schemas
from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Long
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.values import check_reply

from .operations import CONSUMING, SHIPPED, TOPIC, Ms, Target, error_code
from .partition import id_at
from .services import Services

RANGES_MAX: Final = 1000  # of acknowledged messages shown; there may be millions


class Acknowledgement(
    Struct,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={
        "message_id": "messageId",
        "reply_content": "replyContent",
        "is_error_result": "isErrorResult",
        "schema_version": "schemaVersion",
    },
):
    """A message to acknowledge, with the reply to a request (PIP-371): base64, by a version of the topic's schema
    where it names one."""

    message_id: str
    reply_content: bytes | None = None
    is_error_result: bool = False
    schema_version: int | None = None


class CursorRequest(Struct, forbid_unknown_fields=True, kw_only=True, rename={"message_ids": "messageIds"}):
    """What is to happen to messages, or to the cursor.

    `negative` gives messages back for redelivery after `delay_ms` (default: their consumer's); `seek` goes on after
    one id, or with the first message since `publish_time` (ms).
    """

    type: Literal["individual", "cumulative", "negative", "seek"] = "individual"
    message_ids: list[str | Acknowledgement] = []
    publish_time: Long | None = None
    delay_ms: Ms | None = None


class AckResult(Struct, kw_only=True, rename={"message_id": "messageId"}):
    """What became of one id; the codes are those of produced messages. `reply` tells of a reply (PIP-371)."""

    message_id: str
    error_code: int | None = None
    error: str | None = None
    reply: str | UnsetType = UNSET


class CursorResult(Struct, kw_only=True, rename={"message_ids": "messageIds"}):
    """One result an id, in their order."""

    message_ids: list[AckResult]


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
    parts = [await _partition(one) for one in found]
    whole = parts[0] if len(parts) == 1 and found[0].topic.name.partition < 0 else None
    first = found[0]
    cursor = Cursor(
        mark_delete_position=None if whole is None else whole.mark_delete_position,
        mark_delete_offset=None if whole is None else whole.mark_delete_offset,
        individually_acknowledged=[] if whole is None else whole.individually_acknowledged,
        more=any(part.more for part in parts),
        backlog=sum(part.backlog for part in parts),
        unacknowledged=sum(part.unacknowledged for part in parts),
        type=None if first.type is None or not first.consumers else first.type.value,
        consumers=sorted({consumer.name for one in found for consumer in one.consumers}),
        partitions=[] if whole is not None else parts,
    )
    await exchange.answer(to_json(CursorAnswer(cursor=cursor)))


@operations.on(
    "POST",
    "/subscription/{subscription}/cursor",
    summary="Acknowledge messages, give them back, or seek.",
    request=CursorRequest,
    answer=CursorResult,
    errors=(*CONSUMING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
)
async def change(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    """What it answers is durable."""
    caller.may_consume(target.topic, target.subscription)
    wanted = await exchange.json(_request, rest.limits.max_request_bytes)
    most = rest.limits.max_messages_per_request
    if len(wanted.message_ids) > most:
        raise PenstockError(ErrorKind.TOO_LARGE, f"{len(wanted.message_ids)} ids; the most is {most}")
    found = await rest.broker.subscriptions.of(target.topic, target.subscription)
    results = await CursorChange(wanted, found, rest.broker.schemas, caller.role).run()
    await asyncio.gather(*(one.flush() for one in found))
    await exchange.answer(to_json(CursorResult(message_ids=results)))


class CursorChange:
    """The work of one cursor request, made by `role`, on the subscription of every partition."""

    def __init__(
        self, wanted: CursorRequest, subscriptions: Sequence[Subscription], schemas: Schemas, role: str | None
    ) -> None:
        self._role = role
        self._wanted = wanted
        self._schemas = schemas
        self._subscriptions = subscriptions
        self._by_ledger = {one.topic.ledger: one for one in subscriptions}

    async def run(self) -> list[AckResult]:
        """One result an id; raises BAD_PARAMETER where the request as a whole makes no sense."""
        wanted = self._wanted
        self._check()
        if wanted.publish_time is not None:
            for one in self._subscriptions:
                await one.seek_time(wanted.publish_time)
            return []
        results = []
        for given in wanted.message_ids:
            text = given if isinstance(given, str) else given.message_id
            result = AckResult(message_id=text)
            try:
                await self._change(MessageId.parse(text), given, result)
            except PenstockError as error:
                result.error_code, result.error = error_code(error), error.message
            results.append(result)
        return results

    def _check(self) -> None:
        wanted = self._wanted
        if wanted.type == "seek":
            if len(wanted.message_ids) + (wanted.publish_time is not None) != 1:
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER, "seek takes one id in messageIds, or a publish_time"
                )
        elif wanted.publish_time is not None:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "publish_time is for type seek")
        elif not wanted.message_ids:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "messageIds are missing")
        if wanted.delay_ms is not None and wanted.type != "negative":
            raise PenstockError(ErrorKind.BAD_PARAMETER, "delay_ms is for type negative")
        kind = self._subscriptions[0].type
        if wanted.type == "cumulative" and kind is not None and kind.shared:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"cumulative acknowledgement is not for {kind.value} subscriptions"
            )

    async def _change(self, message_id: MessageId, given: str | Acknowledgement, result: AckResult) -> None:
        kind = self._wanted.type
        if message_id in (EARLIEST, LATEST):
            if kind != "seek":
                raise PenstockError(ErrorKind.BAD_PARAMETER, f"{kind} needs a message's own id")
            for one in self._subscriptions:
                await one.seek(message_id)
            return
        source = self._by_ledger.get(message_id.ledger)
        if source is None:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"message id {message_id} is of no partition of this topic"
            )
        if kind == "seek":
            await source.seek(message_id)
        elif kind == "cumulative":
            await source.answers.acknowledge_up_to(message_id)
        elif kind == "negative":
            if not source.answers.negative(message_id.entry, message_id.batch_index, self._delay(source)):
                raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is with no consumer")
        else:
            if isinstance(given, Acknowledgement) and given.reply_content is not None:
                # the reply goes first, the acknowledgement counts in any case (PIP-371)
                check_reply(self._schemas, source.topic.name, given.reply_content, given.schema_version)
                outcome = await source.reply(
                    message_id,
                    given.reply_content,
                    owner=self._role,
                    is_error=given.is_error_result,
                    schema_version=given.schema_version,
                )
                result.reply = outcome.value
            if not source.answers.acknowledge(message_id.entry, message_id.batch_index):
                await source.answers.acknowledge_late(message_id)

    def _delay(self, source: Subscription) -> int:
        if self._wanted.delay_ms is not None:
            return self._wanted.delay_ms
        return max((c.options.nack_delay_ms for c in source.consumers), default=0)


async def _partition(one: Subscription) -> PartitionCursor:
    ranges = list(islice(one.cursor.ranges(), RANGES_MAX + 1))
    last = one.cursor.mark - 1
    position = await id_at(one.topic, last) if last >= one.topic.first_offset else None
    return PartitionCursor(
        partition=one.topic.partition,
        mark_delete_position=position,
        mark_delete_offset=last if last >= 0 else None,
        individually_acknowledged=ranges[:RANGES_MAX],
        more=len(ranges) > RANGES_MAX,
        backlog=one.backlog,
        unacknowledged=one.unacked,
    )

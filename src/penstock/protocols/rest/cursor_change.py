"""What a request changes of a cursor, id by id; ids of messages that are out are acknowledged together."""

import asyncio
from binascii import a2b_base64
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from operator import eq
from typing import Final, Literal, NamedTuple, cast

from msgspec import UNSET, Struct, UnsetType

from penstock.broker.consumer import Consumer
from penstock.broker.schemas import Schemas
from penstock.broker.subscription import Subscription
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId, read_varint, varint
from penstock.protocols.declarations import Long
from penstock.protocols.http.answers import to_json
from penstock.protocols.values import check_reply

from .batch_ids import id_parts
from .operations import Ms, error_code

WRITTEN_PER_ID: Final = 8  # ids of batches that are written to compare them, for each that was given


class GivenIds(NamedTuple):
    """`masks` has by ledger and entry the messages as bits, -1 for a whole entry; `left` are the places of ids that were
    not read. Every other id is plain base64."""

    masks: dict[int, dict[int, int]]
    left: list[int]


def read_ids(texts: Sequence[str]) -> GivenIds:
    """Read ids; texts other than the base64 of a message's own id are left."""
    found = GivenIds({}, [])
    at, allowance = 0, WRITTEN_PER_ID * len(texts)
    while at < len(texts):
        first = _parse(texts[at])
        if first is None:
            found.left.append(at)
            at += 1
            continue
        masks = found.masks.setdefault(first.ledger, {})
        entry, index, size = first.entry, first.batch_index, first.batch_size
        run = 0
        if index < 0:
            run = _read_alone(texts, at, first, masks)
        elif index < size <= allowance:
            allowance -= size
            run = _run_length(texts, at, first)
            masks[entry] = masks.get(entry, 0) | ((1 << run) - 1) << index
        if not run:
            run = 1
            masks[entry] = masks.get(entry, 0) | (-1 if index < 0 else 1 << index)
        at += run
    return found


def _parse(text: str) -> MessageId | None:
    try:
        found = MessageId.parse(text)
    except PenstockError:
        return None
    # Java's ids may be negative, and blanks around an id are not base64.
    own = found.ledger >= 0 and found.entry >= 0 and text != "latest" and text == text.strip()
    return found if own else None


def _run_length(texts: Sequence[str], at: int, first: MessageId) -> int:
    """How many ids from `at` on are those of a batch from `first` on."""
    index = first.batch_index
    start, ends = id_parts(first.ledger, first.entry, first.partition, first.batch_size)
    if index or len(texts) - at < len(ends):
        ends = ends[index : index + len(texts) - at]
    given = texts[at : at + len(ends)]
    # One comparison for all, usually. No id has a blank: if the joined texts are equal, so is each of them.
    if " ".join(given) == start + f" {start}".join(ends):
        return len(ends)
    return sum(1 for _ in takewhile(bool, map(eq, [start + end for end in ends], given)))


def _read_alone(texts: Sequence[str], at: int, first: MessageId, masks: dict[int, int]) -> int:
    """Read ids of messages sent alone from `at` on, which differ from `first` in the entry only; returns how many."""
    start = b"\x08" + varint(first.ledger) + b"\x10"
    end = b"\x18" + varint(first.partition) if first.partition >= 0 else b""
    begin = at
    try:
        while at < len(texts):
            data = a2b_base64(texts[at], strict_mode=True)
            if not data.startswith(start):
                break
            entry, stop = read_varint(data, len(start))
            if data[stop:] != end or entry >= 2**63:
                break
            masks[entry] = -1
            at += 1
    except ValueError:
        pass
    return at - begin


class AttachedConsumers:
    """The consumers of one subscription on this server."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._used: dict[Consumer, None] = {}

    @property
    def used(self) -> Collection[Consumer]:
        """The consumers that may have acknowledged something: their flush makes it durable."""
        return self._used.keys()

    async def acknowledge_all(self, texts: Sequence[str]) -> bool:
        """Acknowledge messages together; False if one of them must be examined by itself."""
        try:
            ids = [MessageId.parse(text) for text in texts]
        except PenstockError:
            return False
        if EARLIEST in ids or LATEST in ids:
            return False
        for consumer in self._consumers:
            self._used[consumer] = None
            if await consumer.acknowledge_all(ids) == len(ids):
                return True
        return False

    async def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one message; raises MESSAGE_NOT_FOUND."""
        error = _missing(message_id)
        for consumer in self._consumers:
            try:
                await consumer.acknowledge(message_id)
            except PenstockError as refused:
                error = refused
            else:
                self._used[consumer] = None
                return
        raise error

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with a message; raises MESSAGE_NOT_FOUND, BAD_PARAMETER."""
        if not self._consumers:
            raise _missing(message_id)
        await self._consumers[0].acknowledge_cumulative(message_id)
        self._used[self._consumers[0]] = None

    def negative(self, message_id: MessageId, delay_ms: int) -> None:
        """Give a message back; raises MESSAGE_NOT_FOUND."""
        if not any(consumer.negative(message_id, delay_ms) for consumer in self._consumers):
            raise _missing(message_id)


def _missing(message_id: MessageId) -> PenstockError:
    return PenstockError(
        ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is with no consumer of this server"
    )


# A result of an id that was acknowledged, around the id.
_DONE: Final = '{"messageId":"', '","error_code":null,"error":null}'


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
    if it names one."""

    message_id: str
    reply_content: bytes | None = None
    is_error_result: bool = False
    schema_version: int | None = None


class CursorRequest(Struct, forbid_unknown_fields=True, kw_only=True, rename={"message_ids": "messageIds"}):
    """A change of messages, or of the cursor.

    `negative` gives messages back for redelivery after `delay_ms` (default: their consumer's); `seek` goes on after
    one id, or with the first message since `publish_time` (ms).
    """

    type: Literal["individual", "cumulative", "negative", "seek"] = "individual"
    message_ids: list[str | Acknowledgement] = []
    publish_time: Long | None = None
    delay_ms: Ms | None = None


class AckResult(Struct, kw_only=True, rename={"message_id": "messageId"}):
    """The result of one id; the codes are those of produced messages. `reply` is the result of a reply (PIP-371)."""

    message_id: str
    error_code: int | None = None
    error: str | None = None
    reply: str | UnsetType = UNSET


class CursorResult(Struct, kw_only=True, rename={"message_ids": "messageIds"}):
    """One result an id, in their order."""

    message_ids: list[AckResult]


class CursorChange:
    """The work of one cursor request, made by `role`, on the subscription of every partition."""

    def __init__(
        self,
        wanted: CursorRequest,
        subscriptions: Sequence[Subscription],
        schemas: Schemas,
        role: str | None,
        consumers: Sequence[Consumer] = (),
    ) -> None:
        """`consumers`: those of this server, which acknowledge what lies in logs of many ledgers."""
        self._role = role
        self._wanted = wanted
        self._schemas = schemas
        self._subscriptions = subscriptions
        self._by_ledger = {one.topic.ledger: one for one in subscriptions}
        self._by_partition = {one.topic.name.partition: one for one in subscriptions if one.topic.ledger < 0}
        self._attached = AttachedConsumers(consumers)

    async def run(self) -> bytes:
        """The answer, with one result an id; raises BAD_PARAMETER if the request as a whole makes no sense."""
        wanted = self._wanted
        self._check()
        if wanted.publish_time is not None:
            for one in self._subscriptions:
                await one.seek(wanted.publish_time)
            return to_json(CursorResult(message_ids=[]))
        given = wanted.message_ids
        if wanted.type == "individual" and set(map(type, given)) == {str}:
            texts = cast(list[str], given)
            if not self._by_partition:
                return await self._acknowledge(texts)
            if await self._attached.acknowledge_all(texts):
                return _answer(texts, {})
        return to_json(CursorResult(message_ids=[await self._result(one) for one in given]))

    async def flush(self) -> None:
        """Complete when the changes are durable. Other consumers are not flushed: their acknowledgements are not this request's."""
        changed: list[Subscription | Consumer] = [*self._subscriptions, *self._attached.used]
        if len(changed) == 1:
            await changed[0].flush()  # without a task for it
        else:
            await asyncio.gather(*(one.flush() for one in changed))

    async def _acknowledge(self, texts: Sequence[str]) -> bytes:
        """Acknowledge messages that are out together, and the others one by one."""
        masks, places = read_ids(texts)
        late: set[tuple[int, int]] = set()
        for ledger, entries in masks.items():
            source = self._by_ledger.get(ledger)
            answers = None if source is None else source.answers
            passed = entries if answers is None else answers.acknowledge_masks(entries)
            late.update([(ledger, entry) for entry in passed])
        if late:
            left = set(places)
            left.update([at for at, text in enumerate(texts) if at not in left and _entry(text) in late])
            places = sorted(left)
        return _answer(texts, {at: await self._result(texts[at]) for at in places})

    async def _result(self, given: str | Acknowledgement) -> AckResult:
        text = given if isinstance(given, str) else given.message_id
        result = AckResult(message_id=text)
        try:
            await self._change(MessageId.parse(text), given, result)
        except PenstockError as error:
            result.error_code, result.error = error_code(error), error.message
        return result

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
        kind = self._subscriptions[0].figures().type if wanted.type == "cumulative" else None
        if kind is not None and kind.shared:
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
        source = self._by_ledger.get(message_id.ledger) or self._by_partition.get(message_id.partition)
        if source is None:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"message id {message_id} is of no partition of this topic"
            )
        if kind == "seek":
            await source.seek(message_id)
        elif (answers := source.answers) is None:
            await self._by_consumer(source, message_id, given, result)
        elif kind == "cumulative":
            await answers.acknowledge_up_to(message_id)
        elif kind == "negative":
            if not answers.negative(message_id.entry, message_id.batch_index, self._delay(source)):
                raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is with no consumer")
        else:
            await self._reply(source, message_id, given, result)
            if not answers.acknowledge(message_id.entry, message_id.batch_index):
                await answers.acknowledge_late(message_id)

    async def _by_consumer(
        self, source: Subscription, message_id: MessageId, given: str | Acknowledgement, result: AckResult
    ) -> None:
        """The same in a log of many ledgers: a consumer that has the message says so."""
        if self._wanted.type == "cumulative":
            await self._attached.acknowledge_cumulative(message_id)
        elif self._wanted.type == "negative":
            self._attached.negative(message_id, self._delay(source))
        else:
            await self._reply(source, message_id, given, result)
            await self._attached.acknowledge(message_id)

    async def _reply(
        self, source: Subscription, message_id: MessageId, given: str | Acknowledgement, result: AckResult
    ) -> None:
        if not isinstance(given, Acknowledgement) or given.reply_content is None:
            return
        # The reply goes first, the acknowledgement counts in any case (PIP-371).
        check_reply(self._schemas, source.topic.name, given.reply_content, given.schema_version)
        outcome = await source.reply(
            message_id,
            given.reply_content,
            owner=self._role,
            is_error=given.is_error_result,
            schema_version=given.schema_version,
        )
        result.reply = outcome.value

    def _delay(self, source: Subscription) -> int:
        if self._wanted.delay_ms is not None:
            return self._wanted.delay_ms
        return max((c.options.nack_delay_ms for c in source.consumers), default=0)


def _entry(text: str) -> tuple[int, int]:
    found = MessageId.parse(text)
    return found.ledger, found.entry


def _answer(texts: Sequence[str], others: Mapping[int, AckResult]) -> bytes:
    """One result an id, acknowledged but for those whose places have another one."""
    if others:
        results = [others.get(at) or AckResult(message_id=text) for at, text in enumerate(texts)]
        return to_json(CursorResult(message_ids=results))
    start, end = _DONE
    ids = f"{end},{start}".join(texts)
    return f'{{"messageIds":[{start}{ids}{end}]}}'.encode()

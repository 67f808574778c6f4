"""GET of a partition's messages and offsets (PIP-64); the server keeps nothing of a read."""

from functools import partial
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from penstock.broker.capability import Capability, require
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.http.media import weights
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.values import Values
from penstock.wire.runs import ENTRIES, RUNS

from .encoding import id_in
from .messages import DEFAULT_MESSAGES, ReadMessage, SchemaShape, form_of, schemas_of
from .operations import BOUNDS, FLAG, NUMBER, READING, SHIPPED, TIMEOUT, TOPIC, Target
from .partition import START, Answered, Messages, check_offsets, id_at, log_of, start_of
from .parts import Bounds
from .services import Services
from .streams import EVENTS, LINES, Stream, stream_entries, stream_messages

READ: Final = (
    *START,
    TIMEOUT,
    *BOUNDS,
    Parameter("include_schema", "Name the schemas that occur.", FLAG),
    Parameter(
        "max_value_bytes",
        "Of a value that takes more in JSON, give only a text of how it begins; `valueSize` is then its size.",
        NUMBER,
    ),
    Parameter("follow", f"With `{LINES}`: go on when the end is reached.", FLAG),
    Parameter("Last-Event-ID", f"With `{EVENTS}`: start after this one.", where="header"),
)
SINCE: Final = (Parameter("publish_time", "Also the first offset published since, ms.", NUMBER),)

_ENTRIES_PER_READ: Final = 1000
_JSON: Final = frozenset(("application/json", "application/*", "*/*", "text/*"))  # what JSON satisfies


class ReadAnswer(Struct, kw_only=True):
    """Messages; `next_message_id` continues as `message_id`."""

    messages: list[ReadMessage]
    next_message_id: str | None
    schemas: list[SchemaShape] | UnsetType = UNSET


class OffsetsAnswer(Struct, kw_only=True):
    """The bounds of a partition (end exclusive), and the first offset published since a time."""

    ledger: int
    earliest: int
    latest: int
    offset: int | UnsetType = UNSET


operations: Final = Table("read", TOPIC, SHIPPED)


@operations.on(
    "GET",
    "/partitions/{partition}/messages",
    summary="Read messages of a partition.",
    description=f"As JSON; as a stream of lines (`{LINES}`), of server-sent events (`{EVENTS}`), or of raw "
    f"entries (`{ENTRIES}`: offset u64, count u32, entry id u64, length u32, entry; big endian; as `{RUNS}`, messages that were"
    " published alone share frames).",
    parameters=READ,
    answer=ReadAnswer,
    answers=(LINES, EVENTS, ENTRIES, RUNS),
    errors=READING,
)
async def messages(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    allowed = partial(caller.may_consume, target.topic)
    allowed()
    limits = rest.limits
    params = Params(exchange.scope["query_string"], READ)
    kind = negotiate(exchange.header(b"accept"))
    check_offsets(rest.broker, params)
    if kind in (ENTRIES, RUNS):  # whose frames have offsets
        require(rest.broker.capabilities, Capability.OFFSETS)
    topic = await log_of(rest.broker, target.topic, target.partition or 0)
    resumed = exchange.header(b"last-event-id") if kind == EVENTS else None
    start = await start_of(topic, params, resumed)
    end = params.number("end_offset")
    wait_ms = params.number("timeout", most=limits.max_wait_ms)
    if kind in (ENTRIES, RUNS):
        await stream_entries(exchange, topic, start, end, allowed, kind)
        return
    values = Values(rest.broker.schemas, target.topic, form=form_of(params))
    messages_max = params.number("max_messages")
    bytes_max = params.number("max_bytes")
    value_max = params.number("max_value_bytes")
    if kind != "json":
        following = Messages(topic, rest.decoding, values, start, Bounds(messages_max, bytes_max), value_max)
        follow = params.flag("follow") or kind == EVENTS
        async with LongPoll(rest.polls, exchange) as poll:
            poll.watch(caller, allowed)
            await stream_messages(
                exchange, poll, Stream(following, end, follow=follow, wait_ms=wait_ms), kind
            )
        return
    if wait_ms and topic.bounds.next_offset <= start and (end is None or end > start):
        async with LongPoll(rest.polls, exchange) as poll:
            await poll.until(topic.grown(start, limits.max_wait_ms), wait_ms)
        allowed()  # still, after the wait
    bounds = Bounds(
        min(messages_max or DEFAULT_MESSAGES, limits.max_read_messages),
        min(bytes_max or limits.max_read_bytes, limits.max_read_bytes),
    )
    page = Messages(topic, rest.decoding, values, start, bounds, value_max)
    answered = Answered(exchange)
    try:
        parts: list[bytes] = []
        versions: set[int | None] = set()
        last_id = await _collect(page, end, answered, parts, versions)
        next_id = last_id or await _unmoved(topic, params, start)
        parts += [b'],"next_message_id":', to_json(next_id)]
        if params.flag("include_schema"):
            parts += [b',"schemas":', to_json(schemas_of(rest.broker.schemas, target.topic, versions))]
        parts.append(b"}")
        await answered.send(exchange, parts)
    finally:
        answered.count(0)


async def _collect(
    page: Messages, end: int | None, answered: Answered, parts: list[bytes], versions: set[int | None]
) -> str | None:
    """Encode messages into `parts`, within the bounds and as far as there is room; at least one if there is one.

    Returns the id of the last, and adds the versions of their schemas to `versions`. What one read brings is encoded
    before the next, so that it is in memory once. Raises TOO_MANY_REQUESTS or UNAVAILABLE if there is no room for
    any.
    """
    topic, bounds, last_id = page.topic, page.bounds, None
    known_end = topic.bounds.next_offset
    end = known_end if end is None else min(end, known_end)
    parts.append(b'{"messages":[')
    while not bounds.full and page.at < end:
        if not await answered.room(2 * topic.read_bytes_max, needed=not bounds.count):
            break
        entries = await topic.read_at(page.at, min(_ENTRIES_PER_READ, bounds.messages_left))
        if not entries:
            break
        topic.has_read(sum([len(entry.data) for entry in entries]))
        found = page.take(entries, end)
        if found.texts:
            if last_id is not None:
                parts.append(b",")
            parts.append(",".join(found.texts).encode())
            last_id = id_in(found.texts[-1])
            versions |= found.versions
        del entries, found
        answered.count(bounds.size)
    return last_id


async def _unmoved(topic: Topic, params: Params, start: int) -> str | None:
    """What to give back after an answer without messages, so that nothing is missed or repeated."""
    given = params.text("message_id")
    if given not in (None, "latest"):
        return given
    bounds = topic.bounds
    if start <= bounds.first_offset:
        return "earliest"
    return await id_at(topic, min(start, bounds.next_offset) - 1) or "earliest"


@operations.on(
    "GET",
    "/partitions/{partition}/offsets",
    summary="Where a partition begins and ends.",
    parameters=SINCE,
    answer=OffsetsAnswer,
    errors=READING,
)
async def offsets(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    caller.may_consume(target.topic)
    require(rest.broker.capabilities, Capability.OFFSETS)
    params = Params(exchange.scope["query_string"], SINCE)
    topic = await log_of(rest.broker, target.topic, target.partition or 0)
    publish_time = params.number("publish_time")
    bounds = topic.bounds
    answer = {"ledger": topic.ledger, "earliest": bounds.first_offset, "latest": bounds.next_offset}
    if publish_time is not None:
        answer["offset"] = await topic.offset_at_time(publish_time)
    await exchange.answer(to_json(answer))


def negotiate(accept: str | None) -> str:
    """Which representation a client wants: `json`, or one of the streams; raises NOT_ACCEPTABLE."""
    if not accept:
        return "json"
    wanted = [name for name, weight in weights(accept).items() if weight]
    for name in wanted:
        if name in (LINES, EVENTS, ENTRIES, RUNS):
            return name
    if not _JSON.intersection(wanted):
        raise PenstockError(
            ErrorKind.NOT_ACCEPTABLE,
            f"messages are had as application/json, {LINES}, {EVENTS}, {ENTRIES} or {RUNS}",
        )
    return "json"

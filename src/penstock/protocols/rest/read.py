"""GET of a partition's messages and offsets (PIP-64); reading keeps nothing on the server."""

from functools import partial
from typing import Final

from penstock.core.broker import Broker
from penstock.core.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.patience import Patience, Waits
from penstock.protocols.session import Limits, Session
from penstock.protocols.values import Form, Values

from .decoding import Decoding
from .exchange import Exchange, to_json
from .messages import Found, encode_messages, messages_of, schemas_of
from .params import Params
from .places import PLACE_PARAMS, log_of, start_of
from .streams import ENTRIES, EVENTS, LINES, Stream, stream_entries, stream_events, stream_lines
from .target import Target

READ_PARAMS: Final = (
    *PLACE_PARAMS,
    "timeout",
    "max_messages",
    "max_bytes",
    "include_schema",
    "follow",
    "encoding",
)
FORMS: Final[tuple[Form, ...]] = ("json", "base64", "text")
DEFAULT_MESSAGES: Final = 1000  # an answer of a size that people and tools still handle at once

_ENTRIES_PER_READ: Final = 1000


class Read:
    """Read requests."""

    def __init__(self, broker: Broker, limits: Limits, waits: Waits, decoding: Decoding) -> None:
        self._decoding = decoding
        self._broker = broker
        self._limits = limits
        self._waits = waits

    async def messages(self, session: Session, target: Target, exchange: Exchange) -> None:
        """GET …/partitions/{p}/messages."""
        allowed = partial(session.may_consume, target.topic)
        allowed()
        params = Params(exchange.scope["query_string"], READ_PARAMS)
        kind = negotiate(exchange.header(b"accept"))
        topic = await log_of(self._broker, target.topic, target.partition or 0)
        resumed = exchange.header(b"last-event-id") if kind == EVENTS else None
        start = await start_of(topic, params, resumed)
        end = params.number("end_offset")
        wait_ms = params.number("timeout", most=self._limits.max_wait_ms)
        if kind == ENTRIES:
            await stream_entries(exchange, topic, start, end, allowed)
            return
        form = next(form for form in FORMS if form == params.choice("encoding", FORMS))
        values = Values(self._broker.schemas, target.topic, form=form)
        messages_max = params.number("max_messages", least=1)
        bytes_max = params.number("max_bytes", least=1)
        if kind != "json":
            stream = Stream(
                topic,
                self._decoding,
                values,
                start,
                end,
                messages_max=messages_max,
                bytes_max=bytes_max,
                follow=params.flag("follow") or kind == EVENTS,
                wait_ms=wait_ms,
            )
            async with Patience(self._waits, exchange.receive) as patience:
                patience.hold(session, allowed)
                await (stream_events if kind == EVENTS else stream_lines)(exchange, patience, stream)
            return
        if wait_ms and topic.next_offset <= start and (end is None or end > start):
            async with Patience(self._waits, exchange.receive) as patience:
                await patience.until(topic.grown(start, self._limits.max_wait_ms), wait_ms)
            allowed()  # still, after the wait
        found = await collect(
            self._decoding,
            values,
            topic,
            start,
            end,
            min(messages_max or DEFAULT_MESSAGES, self._limits.max_read_messages),
            min(bytes_max or self._limits.max_read_bytes, self._limits.max_read_bytes),
        )
        next_id = (
            to_json(found[-1].shown.message_id)
            if found
            else to_json(await self._unmoved(topic, params, start))
        )
        parts = [b'{"messages":', encode_messages(found), b',"next_message_id":', next_id]
        if params.flag("include_schema"):
            parts += [b',"schemas":', to_json(schemas_of(self._broker.schemas, target.topic, found))]
        await exchange.answer(b"".join((*parts, b"}")))

    async def _unmoved(self, topic: Topic, params: Params, start: int) -> str | None:
        """What to give back after an answer without messages, so that nothing is missed or repeated."""
        given = params.text("message_id")
        if given not in (None, "latest"):
            return given
        if start <= topic.first_offset:
            return "earliest"
        before = min(start, topic.next_offset) - 1
        entries = await topic.read_at(before, 1)
        if not entries:
            return "earliest"
        entry = entries[0]
        return str(topic.id_of(entry, before - entry.offset if entry.count > 1 else -1))

    async def offsets(self, session: Session, target: Target, exchange: Exchange) -> None:
        """GET …/partitions/{p}/offsets: where a partition begins and ends, for readers that plan."""
        session.may_consume(target.topic)
        params = Params(exchange.scope["query_string"], ("publish_time",))
        topic = await log_of(self._broker, target.topic, target.partition or 0)
        publish_time = params.number("publish_time")
        answer = {"ledger": topic.ledger, "earliest": topic.first_offset, "latest": topic.next_offset}
        if publish_time is not None:
            answer["offset"] = await topic.offset_at_time(publish_time)
        await exchange.answer(to_json(answer))


async def collect(
    decoding: Decoding,
    values: Values,
    topic: Topic,
    start: int,
    end: int | None,
    messages_max: int,
    bytes_max: int,
) -> list[Found]:
    """Messages from `start` on, within the bounds; at least one where there is one."""
    found: list[Found] = []
    size = 0
    at = start
    end = topic.next_offset if end is None else min(end, topic.next_offset)
    while at < end and len(found) < messages_max:
        entries = await topic.read_at(at, min(_ENTRIES_PER_READ, messages_max - len(found)))
        if not entries:
            break
        for entry in entries:
            for one in messages_of(decoding, values, topic, entry):
                offset = one.shown.offset
                if offset < at:
                    continue
                if offset >= end or len(found) >= messages_max or (found and size + one.size > bytes_max):
                    return found
                found.append(one)
                size += one.size
            at = max(at, entry.end)
    return found


def negotiate(accept: str | None) -> str:
    """Which representation a client wants: `json`, or one of the streams; raises NOT_ACCEPTABLE."""
    if not accept:
        return "json"
    refused = True
    for part in accept.split(","):
        name, *options = (piece.strip().lower() for piece in part.split(";"))
        if any(option.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for option in options):
            continue
        if name in (LINES, EVENTS, ENTRIES):
            return name
        if name in ("application/json", "application/*", "*/*", "text/*"):
            refused = False
    if refused:
        raise PenstockError(
            ErrorKind.NOT_ACCEPTABLE, f"messages are had as application/json, {LINES}, {EVENTS} or {ENTRIES}"
        )
    return "json"

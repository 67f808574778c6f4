"""GET of a partition's messages and offsets (PIP-64); reading keeps nothing on the server."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.topic import Topic
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll, LongPolls
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.limits import Limits
from penstock.protocols.values import Form, Values

from .answer_shapes import OffsetsAnswer, ReadAnswer
from .answered import Answered
from .decoding import Decoding
from .messages import Found, encode_messages, messages_of, schemas_of
from .operations import BOUNDS, FLAG, NUMBER, READING, SHIPPED, TIMEOUT, TOPIC
from .places import PLACES, log_of, start_of
from .streams import ENTRIES, EVENTS, LINES, Stream, stream_entries, stream_events, stream_lines
from .target import Target

READ: Final = (
    *PLACES,
    TIMEOUT,
    *BOUNDS,
    Parameter("include_schema", "Name the schemas that occur.", FLAG),
    Parameter("follow", f"With `{LINES}`: go on when the end is reached.", FLAG),
    Parameter("Last-Event-ID", f"With `{EVENTS}`: start after this one.", where="header"),
)
SINCE: Final = (Parameter("publish_time", "Also the first offset published since, ms.", NUMBER),)
FORMS: Final[tuple[Form, ...]] = ("json", "base64", "text")
DEFAULT_MESSAGES: Final = 1000  # an answer of a size that people and tools still handle at once

_ENTRIES_PER_READ: Final = 1000


class Collected:
    """Messages from the offset `at` on as JSON, an array without its end."""

    def __init__(self, at: int, end: int) -> None:
        self.at = at
        self.end = end
        self.full = False
        self.parts: list[bytes] = [b'{"messages":[']
        self.count = 0
        self.size = 0  # bytes of their keys and values
        self.last_id: str | None = None
        self.versions: set[int | None] = set()  # of their schemas

    def add(
        self,
        decoding: Decoding,
        values: Values,
        topic: Topic,
        entries: list[Entry],
        messages_max: int,
        bytes_max: int,
    ) -> None:
        """Encode the messages of entries that follow, within the bounds; `full` where they are reached."""
        found: list[Found] = []
        for one in self._within(decoding, values, topic, entries, messages_max, bytes_max):
            found.append(one)
            self.count += 1
            self.size += one.size
        if not found:
            return
        if self.count > len(found):
            self.parts.append(b",")
        self.parts.append(encode_messages(found)[1:-1])
        self.last_id = found[-1].shown.message_id
        self.versions.update([one.shown.schema_version for one in found])

    def _within(
        self,
        decoding: Decoding,
        values: Values,
        topic: Topic,
        entries: list[Entry],
        messages_max: int,
        bytes_max: int,
    ) -> Iterator[Found]:
        at = self.at
        for entry in entries:
            for one in messages_of(decoding, values, topic, entry):
                offset = one.shown.offset
                if offset < at:
                    continue
                if (
                    offset >= self.end
                    or self.count >= messages_max
                    or (self.count and self.size + one.size > bytes_max)
                ):
                    self.full = True
                    return
                yield one
            at = max(at, entry.end)
            self.at = at


class Read:
    """Read requests."""

    operations: Final = Table("read", TOPIC, SHIPPED)

    def __init__(self, broker: Broker, limits: Limits, waits: LongPolls, decoding: Decoding) -> None:
        self._decoding = decoding
        self._broker = broker
        self._limits = limits
        self._waits = waits

    @operations.on(
        "GET",
        "/partitions/{partition}/messages",
        summary="Read messages of a partition.",
        description=f"As JSON; as a stream of lines (`{LINES}`), of server-sent events (`{EVENTS}`), or of raw "
        f"entries (`{ENTRIES}`: offset u64, count u32, entry id u64, length u32, entry; big endian).",
        parameters=READ,
        answer=ReadAnswer,
        answers=(LINES, EVENTS, ENTRIES),
        errors=READING,
    )
    async def messages(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        allowed = partial(caller.may_consume, target.topic)
        allowed()
        params = Params(exchange.scope["query_string"], READ)
        kind = negotiate(exchange.header(b"accept"))
        topic = await log_of(self._broker, target.topic, target.partition or 0)
        resumed = exchange.header(b"last-event-id") if kind == EVENTS else None
        start = await start_of(topic, params, resumed)
        end = params.number("end_offset")
        wait_ms = params.number("timeout", most=self._limits.max_wait_ms)
        if kind == ENTRIES:
            await stream_entries(exchange, topic, start, end, allowed)
            return
        form = next(form for form in FORMS if form == params.choice("encoding"))
        values = Values(self._broker.schemas, target.topic, form=form)
        messages_max = params.number("max_messages")
        bytes_max = params.number("max_bytes")
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
            async with LongPoll(self._waits, exchange.receive) as poll:
                poll.watch(caller, allowed)
                await (stream_events if kind == EVENTS else stream_lines)(exchange, poll, stream)
            return
        if wait_ms and topic.next_offset <= start and (end is None or end > start):
            async with LongPoll(self._waits, exchange.receive) as poll:
                await poll.until(topic.grown(start, self._limits.max_wait_ms), wait_ms)
            allowed()  # still, after the wait
        answered = Answered(exchange)
        try:
            found = await collect(
                self._decoding,
                values,
                topic,
                start,
                end,
                min(messages_max or DEFAULT_MESSAGES, self._limits.max_read_messages),
                min(bytes_max or self._limits.max_read_bytes, self._limits.max_read_bytes),
                answered,
            )
            next_id = found.last_id if found.count else await self._unmoved(topic, params, start)
            parts = found.parts
            parts += [b'],"next_message_id":', to_json(next_id)]
            if params.flag("include_schema"):
                shapes = schemas_of(self._broker.schemas, target.topic, found.versions)
                parts += [b',"schemas":', to_json(shapes)]
            parts.append(b"}")
            await answered.send(exchange, parts)
        finally:
            answered.count(0)

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

    @operations.on(
        "GET",
        "/partitions/{partition}/offsets",
        summary="Where a partition begins and ends.",
        parameters=SINCE,
        answer=OffsetsAnswer,
        errors=READING,
    )
    async def offsets(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_consume(target.topic)
        params = Params(exchange.scope["query_string"], SINCE)
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
    answered: Answered,
) -> Collected:
    """Messages from `start` on, within the bounds and as far as there is room; at least one where there is one.

    What one read brings is encoded before the next, so that it is in memory once. Raises TOO_MANY_REQUESTS or
    UNAVAILABLE where there is no room for any.
    """
    made = Collected(start, topic.next_offset if end is None else min(end, topic.next_offset))
    while not made.full and made.at < made.end and made.count < messages_max:
        if not await answered.room(2 * topic.read_bytes_max, needed=not made.count):
            break
        entries = await topic.read_at(made.at, min(_ENTRIES_PER_READ, messages_max - made.count))
        if not entries:
            break
        topic.has_read(sum([len(entry.data) for entry in entries]))
        made.add(decoding, values, topic, entries, messages_max, bytes_max)
        del entries
        answered.count(made.size)
    return made


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

"""Answers without an end in sight: lines, server-sent events and raw entries, each as fast as the client takes it."""

from collections.abc import AsyncIterator, Callable, Sequence
from struct import Struct
from typing import Final

from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.values import Values

from .answered import Answered
from .decoding import Decoding
from .messages import Found, encode_message, messages_of

LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
ENTRIES: Final = "application/vnd.penstock.entries"

HEARTBEAT_MS: Final = 15_000  # proxies take a connection for dead after 30 s or more of silence

_BLOCK_BYTES: Final = 1 << 21  # one read of raw entries and one part of the answer
_BLOCK_ENTRIES: Final = 100_000
_PART_ENTRIES: Final = 200  # of decoded messages: short work on the loop
_PART_BYTES: Final = 1 << 18
_NEWS_MS: Final = 3_600_000  # a wait for news is renewed after this; what ends it sooner is its caller's

_HEAD: Final = Struct(">QIQI")  # offset, messages, entry id, length


class Stream:
    """A partition's messages from `start` to `end` (exclusive), or for ever with `follow`.

    `wait_ms` is how long it waits for a message that is not there yet; None: following waits for ever, and what
    does not follow not at all. The end of what does not follow is the log's as it is now.
    """

    def __init__(
        self,
        topic: Topic,
        decoding: Decoding,
        values: Values,
        start: int,
        end: int | None,
        *,
        messages_max: int | None,
        bytes_max: int | None,
        follow: bool,
        wait_ms: int | None,
    ) -> None:
        self._topic = topic
        self._decoding = decoding
        self._values = values
        self._at = start
        self._end = end
        self._messages_left = messages_max
        self._bytes_left = bytes_max
        self._follow = follow
        self._wait_ms = wait_ms
        self._any = False
        self._any = False

    async def parts(
        self, poll: LongPoll, heartbeat_ms: int | None = None, answered: Answered | None = None
    ) -> AsyncIterator[list[Found]]:
        """Messages, some at a time; an empty list is a heartbeat. What is read counts in `answered`."""
        topic = self._topic
        fixed = None if self._follow else topic.next_offset
        waited = 0
        while not poll.gone and poll.lapsed is None:
            end = topic.next_offset if fixed is None or not self._any else fixed
            end = end if self._end is None else min(end, self._end)
            if self._at < end:
                waited = 0
                if answered is not None:
                    await answered.wait(_PART_BYTES)
                found = await self._next(end)
                if answered is not None:
                    answered.count(sum([one.size for one in found]))
                if found:
                    yield found
                if self._full:
                    return
                continue
            left = self._wait_left(waited)
            if (self._end is not None and self._at >= self._end) or left == 0 or self._no_more:
                return
            waits = [ms for ms in (left, heartbeat_ms) if ms is not None]
            wait = min(waits) if waits else None
            news = await poll.until(topic.grown(self._at, _NEWS_MS), wait)
            if poll.over:
                return
            if not news:
                waited += int(wait or 0)
                if heartbeat_ms is not None and not self._no_more:
                    yield []

    @property
    def _no_more(self) -> bool:
        """Whether nothing can follow."""
        return self._topic.deleted or self._topic.terminated

    def _wait_left(self, waited: int) -> float | None:
        """How long to wait for the next message; None: for ever, 0: no longer."""
        if self._wait_ms is None:
            return None if self._follow else 0
        if not self._follow and self._any:
            return 0
        return max(0, self._wait_ms - waited)

    @property
    def _full(self) -> bool:
        return self._messages_left == 0 or (self._bytes_left is not None and self._bytes_left <= 0)

    async def _next(self, end: int) -> list[Found]:
        found: list[Found] = []
        entries = await self._topic.read_at(self._at, _PART_ENTRIES, _PART_BYTES)
        if not entries:
            self._at = end  # let go of in the meantime
        for entry in entries:
            for one in messages_of(self._decoding, self._values, self._topic, entry):
                offset = one.shown.offset
                if offset < self._at:
                    continue
                if offset >= end:
                    self._at = end
                    return found
                if self._bytes_left is not None:
                    if one.size > self._bytes_left and (found or self._any):
                        self._bytes_left = 0
                        return found
                    self._bytes_left -= one.size
                self._any = True
                found.append(one)
                self._at = offset + 1
                if self._messages_left is not None:
                    self._messages_left -= 1
                if self._full:
                    return found
            self._at = max(self._at, entry.end)
        return found


async def stream_lines(exchange: Exchange, poll: LongPoll, stream: Stream) -> None:
    """One message a line."""
    await exchange.head(200, (b"content-type", LINES.encode()))
    answered = Answered(exchange)
    try:
        async for found in stream.parts(poll, answered=answered):
            await exchange.part(b"".join(encode_message(one.shown) + b"\n" for one in found))
            answered.count(0)
    finally:
        answered.count(0)
    await exchange.end()


async def stream_events(exchange: Exchange, poll: LongPoll, stream: Stream) -> None:
    """Server-sent events; a client that comes again with `Last-Event-ID` goes on after it."""
    await exchange.head(200, (b"content-type", EVENTS.encode()), (b"cache-control", b"no-store"))
    await exchange.part(b":\n\n")  # so that the client sees at once that it is connected
    answered = Answered(exchange)
    try:
        async for found in stream.parts(poll, HEARTBEAT_MS, answered):
            events = [
                b"id: %s\ndata: %s\n\n" % (one.shown.message_id.encode(), encode_message(one.shown))
                for one in found
            ]
            await exchange.part(b"".join(events) or b":\n\n")
            answered.count(0)
    finally:
        answered.count(0)
    await exchange.end()


async def stream_entries(
    exchange: Exchange, topic: Topic, start: int, end: int | None, check: Callable[[], None]
) -> None:
    """Raw entries that hold the offsets `start .. end - 1`, up to the log's end as it is now.

    `check` raises where the client may have no more of it. Frame: offset u64 | count u32 | entry id u64 |
    length u32 | entry, all big endian.
    """
    end = topic.next_offset if end is None else min(end, topic.next_offset)
    await exchange.head(
        200, (b"content-type", ENTRIES.encode()), (b"x-penstock-ledger", b"%d" % topic.ledger)
    )
    entry_id = await topic.entry_at(start) if start < end else topic.next_entry
    answered = Answered(exchange)
    try:
        while entry_id >= 0:
            await answered.wait(_BLOCK_BYTES)
            entries = await topic.read(entry_id, _BLOCK_ENTRIES, _BLOCK_BYTES)
            check()
            block, entry_id = _block(entries, start, end)
            answered.count(len(block))
            del entries
            if block:
                await exchange.part(block)
    finally:
        answered.count(0)
    await exchange.end()


def _block(entries: Sequence[Entry], start: int, end: int) -> tuple[bytes, int]:
    """The frames of entries before `end`, and the entry to go on with; -1: none."""
    frames: list[bytes] = []
    for entry in entries:
        if entry.offset >= end or start >= end:
            return b"".join(frames), -1
        data = entry.data
        frames += (_HEAD.pack(entry.offset, entry.count, entry.entry_id, len(data)), data)
    done = not entries or entries[-1].end >= end
    return b"".join(frames), -1 if done else entries[-1].entry_id + 1

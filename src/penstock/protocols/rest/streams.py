"""Answers without an end in sight: lines, server-sent events and raw entries, each as fast as the client takes it."""

from collections.abc import AsyncIterator, Callable
from typing import Final

from penstock.broker.topic import Topic
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.wire.runs import RUNS, Frames

from .encoding import Shown, id_in
from .partition import Answered, Messages

LINES: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"

# nginx and others that know its header pass on at once what they would gather; what compresses gathers, too.
UNBUFFERED: Final = (b"x-accel-buffering", b"no")
EVENTS_HEAD: Final = (
    (b"content-type", EVENTS.encode()),
    (b"cache-control", b"no-store, no-transform"),
    UNBUFFERED,
)

HEARTBEAT_MS: Final = 15_000  # proxies take a connection for dead after 30 s or more of silence

_BLOCK_BYTES: Final = 1 << 21  # one read of raw entries and one part of the answer
_BLOCK_ENTRIES: Final = 100_000
_PART_ENTRIES: Final = 200  # of decoded messages: short work on the loop
_PART_BYTES: Final = 1 << 18
_NEWS_MS: Final = 3_600_000  # a wait for news is renewed after this; what ends it sooner is its caller's


class Stream:
    """A partition's `messages` up to the offset `end`, or for ever with `follow`.

    `wait_ms` is how long it waits for a message that is not there yet; None: following waits for ever, and what
    does not follow not at all. The end of what does not follow is the log's as it is now.
    """

    def __init__(self, messages: Messages, end: int | None, *, follow: bool, wait_ms: int | None) -> None:
        self._messages = messages
        self._topic = messages.topic
        self._end = end
        self._follow = follow
        self._wait_ms = wait_ms

    async def parts(
        self, poll: LongPoll, answered: Answered, heartbeat_ms: int | None = None
    ) -> AsyncIterator[Shown | None]:
        """Messages, some at a time; None is a heartbeat. Reads count in `answered`."""
        topic, messages, bounds = self._topic, self._messages, self._messages.bounds
        fixed = None if self._follow else topic.bounds.next_offset
        waited = 0
        while not poll.gone and poll.lapsed is None:
            end = topic.bounds.next_offset if fixed is None or not bounds.count else fixed
            end = end if self._end is None else min(end, self._end)
            if messages.at < end:
                waited = 0
                await answered.wait(_PART_BYTES)
                entries = await topic.read_at(messages.at, _PART_ENTRIES, _PART_BYTES)
                if not entries:
                    messages.at = end  # trimmed in the meantime
                before = bounds.size
                found = messages.take(entries, end)
                answered.count(bounds.size - before)
                if found.texts:
                    yield found
                del entries, found  # they would stay while news are waited for
                if bounds.full:
                    return
                continue
            left = self._wait_left(waited)
            if (self._end is not None and messages.at >= self._end) or left == 0 or self._no_more:
                return
            waits = [ms for ms in (left, heartbeat_ms) if ms is not None]
            wait = min(waits) if waits else None
            news = await poll.until(topic.grown(messages.at, _NEWS_MS), wait)
            if poll.over:
                return
            if not news:
                waited += int(wait or 0)
                if heartbeat_ms is not None and not self._no_more:
                    yield None

    @property
    def _no_more(self) -> bool:
        """Whether nothing can follow."""
        return self._topic.deleted or self._topic.bounds.terminated

    def _wait_left(self, waited: int) -> float | None:
        """How long to wait for the next message; None: for ever, 0: no longer."""
        if self._wait_ms is None:
            return None if self._follow else 0
        if not self._follow and self._messages.bounds.count:
            return 0
        return max(0, self._wait_ms - waited)


async def stream_messages(exchange: Exchange, poll: LongPoll, stream: Stream, kind: str) -> None:
    """One message a line (LINES); or server-sent events (EVENTS), whose client goes on after its `Last-Event-ID`."""
    if kind == EVENTS:
        encode, heartbeat_ms = _events, HEARTBEAT_MS
        await exchange.head(200, *EVENTS_HEAD)
        await exchange.part(b":\n\n")  # so that the client sees at once that it is connected
    else:
        encode, heartbeat_ms = _lines, None
        await exchange.head(200, (b"content-type", LINES.encode()), UNBUFFERED)
    answered = Answered(exchange)
    try:
        async for found in stream.parts(poll, answered, heartbeat_ms):
            await exchange.part(b":\n\n" if found is None else encode(found).encode())
            answered.count(0)
            del found  # it would stay while the next is waited for
    finally:
        answered.count(0)
    await exchange.end()


def _lines(found: Shown) -> str:
    return "\n".join(found.texts) + "\n"


def _events(found: Shown) -> str:
    return "".join([f"id: {id_in(text)}\ndata: {text}\n\n" for text in found.texts])


async def stream_entries(
    exchange: Exchange, topic: Topic, start: int, end: int | None, check: Callable[[], None], kind: str
) -> None:
    """What holds the offsets `start .. end - 1`, up to the log's end as it is now, in the frames of `wire.runs`; as RUNS, or as ENTRIES.

    `check` raises where the client may have no more of it.
    """
    bounds = topic.bounds
    end = bounds.next_offset if end is None else min(end, bounds.next_offset)
    await exchange.head(
        200,
        (b"content-type", kind.encode()),
        (b"x-penstock-ledger", b"%d" % topic.ledger),
        (b"x-penstock-dense", b"true" if topic.dense else b"false"),
        (b"x-penstock-earliest", b"%d" % bounds.first_offset),
        (b"x-penstock-latest", b"%d" % bounds.next_offset),
    )
    frames = Frames(topic.ledger, runs=kind == RUNS)
    read = topic.read_runs if kind == RUNS else topic.read
    by_offset = (
        topic.ledger < 0
    )  # ids of entries do not rise in a log of many ledgers, which is read by offsets
    at = start if by_offset or start >= end else await topic.entry_at(start)
    answered = Answered(exchange)
    try:
        while start < end:
            await answered.wait(_BLOCK_BYTES)
            found = await read(at, _BLOCK_ENTRIES, _BLOCK_BYTES)
            check()
            if not found:
                break
            last = found[-1]
            start, at = last.end, last.end if by_offset else last.next_entry
            block = frames.block(found, end)
            answered.count(len(block))
            del found, last
            if block:
                await exchange.part(block)
    finally:
        answered.count(0)
    await exchange.end()

"""Follows a topic for a page: one stream over all partitions, with the newest messages and how many came.

A browser opens at most six connections to a server: a stream for each partition would take them all. The stream never
sends more than a page can show: if more comes, or the client is slow, the rest is counted, not sent.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import msgspec

from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.http.operations import ALWAYS, Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.rest.partition import Answered, Messages, log_of
from penstock.protocols.rest.parts import Bounds
from penstock.protocols.rest.services import Services
from penstock.protocols.rest.streams import EVENTS, EVENTS_HEAD, HEARTBEAT_MS
from penstock.protocols.values import Values
from penstock.runtime.tasks import Tasks

PATH: Final = "/console/api/tail"
PERIOD_MS: Final = 200  # between two events
SHOWN_MAX: Final = 100  # messages of one event
VALUE_MAX: Final = 1000  # characters of each value
_READ_BYTES: Final = 1 << 18  # of one partition at once
_NEWS_MS: Final = 3_600_000  # a wait for news is renewed after this

table = Table("console", PATH)


class TailEvent(msgspec.Struct):
    """The data of an event: how many messages came since the last one, and the newest of them, as REST shows them."""

    count: int
    messages: list[msgspec.Raw]


class Tail:
    """The partitions of a topic from now on.

    With `skips`, what lies before the newest is passed over unread; without (positions that cannot be counted with),
    all is read, and the newest of it shown.
    """

    def __init__(self, following: list[Messages], tasks: Tasks, *, skips: bool) -> None:
        self._following = following
        self._tasks = tasks
        self._skips = skips
        self._waits: dict[int, asyncio.Task[bool]] = {}

    async def take(self, answered: Answered) -> TailEvent:
        """What came since the last time."""
        event = TailEvent(0, [])
        grown = [each for each in self._following if each.topic.bounds.next_offset > each.at]
        share = max(1, SHOWN_MAX // max(1, len(grown)))
        for messages in grown:
            await answered.wait(_READ_BYTES)
            count, texts = await self._newest(messages, share)
            event.count += count
            event.messages += [msgspec.Raw(text.encode()) for text in texts]
            answered.count(0)
        del event.messages[SHOWN_MAX:]
        return event

    async def _newest(self, messages: Messages, share: int) -> tuple[int, list[str]]:
        topic, end = messages.topic, messages.topic.bounds.next_offset
        count = end - messages.at
        if self._skips:
            messages.at = max(messages.at, end - share)
        messages.bounds = Bounds(None, None)
        entries = await topic.read_at(messages.at, share, _READ_BYTES)
        found = messages.take(entries, end)
        if self._skips:
            messages.at = end
        elif not entries:
            messages.at = end  # trimmed in the meantime
        return count if self._skips else len(found.texts), found.texts[-share:]

    async def news(self) -> bool:
        """Wait until something came; False once nothing can follow."""
        live = [
            (number, each)
            for number, each in enumerate(self._following)
            if not (each.topic.deleted or each.topic.bounds.terminated)
        ]
        for number, each in live:
            if number not in self._waits:
                self._waits[number] = self._tasks.spawn(
                    each.topic.grown(each.at, _NEWS_MS), f"follow {each.topic.name}"
                )
        if not live:
            return False
        done, _ = await asyncio.wait(self._waits.values(), return_when=asyncio.FIRST_COMPLETED)
        self._waits = {number: wait for number, wait in self._waits.items() if wait not in done}
        for wait in done:
            wait.result()
        return True

    async def close(self) -> None:
        """End what waits."""
        for each in self._waits.values():
            each.cancel()
        await asyncio.gather(*self._waits.values(), return_exceptions=True)

    async def events(self, poll: LongPoll, answered: Answered) -> AsyncIterator[TailEvent | None]:
        """What came, again and again; None is a heartbeat."""
        while not poll.over:
            event = await self.take(answered)
            if event.count:
                yield event
                await poll.until(asyncio.Event().wait(), PERIOD_MS)
                continue
            news = await poll.until(self.news(), HEARTBEAT_MS)
            if news is False:
                return
            if news is None and not poll.over:
                yield None


@table.on(
    "GET",
    "",
    summary="Follow all partitions of a topic: the newest messages some times a second, and how many came.",
    description=f"Each event has at most {SHOWN_MAX} messages, with at most {VALUE_MAX} characters of each value."
    " Those that came beyond are only counted. Before Kafka, numbers that are no message's are counted, too.",
    parameters=(Parameter("topic", "Its whole name."),),
    answer=None,
    answers=(EVENTS,),
    errors=(*ALWAYS, ErrorKind.INVALID_NAME, ErrorKind.TOPIC_NOT_FOUND),
)
async def tail(rest: Services, caller: Caller, exchange: Exchange, params: Params) -> None:
    topic = TopicName.parse(params.text("topic") or "")
    await rest.broker.topics.learn(topic)
    allowed = partial(caller.may_consume, topic)
    allowed()
    following = Tail(
        [_from_now(rest, topic, log) for log in await _logs(rest, topic)],
        rest.polls.tasks,
        skips=rest.broker.cluster is None or rest.broker.cluster.traits.kind == "kafka",
    )
    async with LongPoll(rest.polls, exchange) as poll:
        poll.watch(caller, allowed)
        await exchange.head(200, *EVENTS_HEAD)
        await exchange.part(b":\n\n")  # so that the client sees at once that it is connected
        answered = Answered(exchange)
        try:
            async for event in following.events(poll, answered):
                data = b":\n\n" if event is None else b"data: %b\n\n" % msgspec.json.encode(event)
                await exchange.part(data)
        finally:
            answered.count(0)
            await following.close()
    await exchange.end()


async def _logs(rest: Services, topic: TopicName) -> list[Topic]:
    partitions = rest.broker.topics.partitions(topic)
    return [await log_of(rest.broker, topic, each) for each in range(max(1, partitions))]


def _from_now(rest: Services, topic: TopicName, log: Topic) -> Messages:
    values = Values(rest.broker.schemas, topic)
    return Messages(log, rest.decoding, values, log.bounds.next_offset, Bounds(None, None), VALUE_MAX)


(OPERATION,) = table

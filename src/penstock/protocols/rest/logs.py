"""POST of offsets and cursors: many logs in one request, so that a reader of many topics polls with one call."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.registry.patterns import Pattern
from penstock.engines.embedded.runtime.slices import Slices
from penstock.engines.embedded.subscription import Subscription
from penstock.engines.embedded.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_local
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll, LongPolls
from penstock.protocols.http.operations import Table
from penstock.protocols.limits import Limits

from .logs_shapes import (
    LogOffsets,
    ManyOffsets,
    Mark,
    MarkResult,
    MarksAnswer,
    MarksRequest,
    OffsetsRequest,
    Size,
    SizeResult,
    SizesAnswer,
    SizesRequest,
    TopicOffsets,
)
from .operations import ALWAYS, READING
from .places import log_of
from .produce_shapes import decoded
from .receipts import error_code
from .target import Target

T = TypeVar("T")

_offsets_request: Final = msgspec.json.Decoder(OffsetsRequest)
_sizes_request: Final = msgspec.json.Decoder(SizesRequest)
_marks_request: Final = msgspec.json.Decoder(MarksRequest)


class Logs:
    """Requests about many logs."""

    operations: Final = Table("read")

    def __init__(self, broker: Broker, limits: Limits, waits: LongPolls) -> None:
        self._broker = broker
        self._limits = limits
        self._waits = waits

    @operations.on(
        "POST",
        "/topics/offsets",
        summary="Where the partitions of many topics begin and end.",
        description="With what an answer before said it had `seen`, waits until there is something new.",
        request=OffsetsRequest,
        answer=ManyOffsets,
        errors=(*ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    )
    async def offsets(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        wanted = await self._body(exchange, _offsets_request)
        if wanted.wait_ms > self._limits.max_wait_ms:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"wait_ms is at most {self._limits.max_wait_ms}")
        if wanted.wait_ms and wanted.publish_times:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "wait_ms and publish_times exclude one another")
        names = Names(self._broker, caller, wanted)
        if wanted.wait_ms and wanted.seen is not None:
            news = News(wanted.seen)
            async with LongPoll(self._waits, exchange.receive) as poll:
                poll.watch(caller, names.check)
                await poll.until(self._changed(names, news), wanted.wait_ms)
                if poll.lapsed is not None:
                    raise poll.lapsed
            found = news.found or ManyOffsets(seen=wanted.seen, changed=True, topics=[], missing=[])
        else:
            found = await self._look(names, wanted.publish_times)
        if found.seen == wanted.seen:
            found = ManyOffsets(seen=found.seen, changed=False, topics=[], missing=[])
        await exchange.answer(to_json(found))

    async def _look(self, names: "Names", times: list[int]) -> ManyOffsets:
        topics: list[TopicOffsets] = []
        missing: list[str] = []
        for name in await names.now():
            try:
                partitioned = self._broker.topics.partitions(name) > 0
                logs = await self._broker.topics.all_of(name, create=False)
            except PenstockError as error:
                if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                    raise
                missing.append(str(name))
                continue
            partitions = [await _log(topic, times) for topic in logs]
            topics.append(TopicOffsets(topic=str(name), partitioned=partitioned, partitions=partitions))
        digest = blake2b(to_json((topics, missing)), digest_size=8).hexdigest()
        return ManyOffsets(seen=digest, changed=True, topics=topics, missing=missing)

    async def _changed(self, names: "Names", news: "News") -> bool:
        """Wait until a look finds something else; an idle reader costs one look."""
        while True:
            with self._following(await names.now(), news.told) as count:
                found = await self._look(names, [])
                if found.seen != news.seen:
                    news.found = found
                    return True
                if count < sum(len(topic.partitions) for topic in found.topics):
                    continue  # the look opened logs; they are to be followed too
                await news.wait()

    @contextmanager
    def _following(self, names: list[TopicName], told: Callable[..., None]) -> Iterator[int]:
        """Have `told` called when a log grows, or a topic comes or goes; yields how many logs are followed."""
        wanted = set(names)
        logs = [
            topic
            for topic in self._broker.topics.open_topics
            if topic.name in wanted or topic.name.base in wanted
        ]
        for topic in logs:
            topic.followers.add(told)
        self._broker.topics.listeners.add(told)
        try:
            yield len(logs)
        finally:
            self._broker.topics.listeners.discard(told)
            for topic in logs:
                topic.followers.discard(told)

    @operations.on(
        "POST",
        "/topics/sizes",
        summary="How many bytes there are in ranges of offsets.",
        request=SizesRequest,
        answer=SizesAnswer,
        errors=(*READING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    )
    async def sizes(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        wanted = await self._body(exchange, _sizes_request)
        names = [TopicName.parse(each.topic) for each in wanted.ranges]
        for name in set(names):
            caller.may_consume(name)
        sizes = [
            await _size(await log_of(self._broker, name, each.partition), each)
            for name, each in zip(names, wanted.ranges, strict=True)
        ]
        await exchange.answer(to_json(SizesAnswer(ranges=sizes)))

    @operations.on(
        "POST",
        "/topics/cursors",
        tag="consume",
        summary="Have a durable subscription follow a reader, by offsets.",
        request=MarksRequest,
        answer=MarksAnswer,
        errors=(*ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
    )
    async def cursors(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        """What it answers is durable."""
        wanted = await self._body(exchange, _marks_request)
        check_local("subscription", wanted.subscription)
        names = [TopicName.parse(mark.topic) for mark in wanted.marks]
        for name in set(names):
            caller.may_consume(name, wanted.subscription)
        results: list[MarkResult] = []
        moved: set[Subscription] = set()
        for name, mark in zip(names, wanted.marks, strict=True):
            result = MarkResult(topic=mark.topic, partition=mark.partition, offset=None)
            try:
                one = await self._move(name, wanted.subscription, mark, exact=wanted.exact)
                result.offset = one.cursor.mark
                moved.add(one)
            except PenstockError as error:
                result.error_code, result.error = error_code(error), error.message
            results.append(result)
        await asyncio.gather(*(one.flush() for one in moved))
        await exchange.answer(to_json(MarksAnswer(marks=results)))

    async def _move(self, name: TopicName, subscription: str, mark: Mark, *, exact: bool) -> Subscription:
        topic = await log_of(self._broker, name, mark.partition)
        if topic.ledger != mark.ledger:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{topic.name} was deleted and made anew")
        return await self._broker.subscriptions.set_mark(topic, subscription, mark.offset, exact=exact)

    async def _body(self, exchange: Exchange, decoder: msgspec.json.Decoder[T]) -> T:
        body = await exchange.body(self._limits.max_request_bytes)
        return decoded(decoder, body)


class News:
    """What a waiting request is told: that something may have changed, and what was found then."""

    def __init__(self, seen: str) -> None:
        self.seen = seen
        self.found: ManyOffsets | None = None
        self._event = asyncio.Event()

    def told(self, _: object = None) -> None:
        self._event.set()

    async def wait(self) -> None:
        """Until something may have changed since the last time."""
        await self._event.wait()
        self._event.clear()


class Names:
    """The topics that a request is about, as they are at any moment."""

    def __init__(self, broker: Broker, caller: Caller, wanted: OffsetsRequest) -> None:
        self._broker = broker
        self._session = caller
        self._named = {TopicName.parse(name) for name in wanted.topics}
        self._namespaces: set[NamespaceName] = set()
        self._patterns: list[tuple[NamespaceName, Callable[[str], bool]]] = []
        for pattern in wanted.patterns:
            matches = Pattern(pattern.regex).fullmatch
            namespace = NamespaceName.parse(pattern.namespace)
            self._namespaces.add(namespace)
            self._patterns.append((namespace, matches))
        self.check()

    def check(self) -> None:
        """Raise FORBIDDEN for a topic that was named and may not be read, or a namespace that may not be listed."""
        for name in self._named:
            self._session.may_consume(name)
        for namespace in self._namespaces:
            self._session.may_list(namespace)

    async def now(self) -> list[TopicName]:
        """The topics named, and those that match and may be read, sorted; raises as `check`."""
        self.check()
        found = set(self._named)
        slices = Slices()
        for namespace, matches in self._patterns:
            for name in self._broker.topics.names(namespace, "persistent"):
                await slices.step()
                if name not in found and matches(name.local) and self._session.consumes(name):
                    found.add(name)
        return sorted(found)


async def _log(topic: Topic, times: list[int]) -> LogOffsets:
    found = LogOffsets(
        ledger=topic.ledger, earliest=topic.first_offset, latest=topic.next_offset, bytes=topic.size_bytes
    )
    if times:
        # The log goes on growing meanwhile; the answer is of the moment of its first look.
        found.at = [min(await topic.offset_at_time(time), found.latest) for time in times]
    return found


async def _size(topic: Topic, wanted: Size) -> SizeResult:
    first = await topic.entry_at(wanted.offset)
    total = await topic.store.size_since(topic.ledger, first)
    if wanted.bytes is None or wanted.bytes >= total:
        return SizeResult(total=total, bytes=total, end=max(wanted.offset, topic.next_offset))
    # The entry whose end goes past what is asked for is the one before the first that has so much after it.
    after = await topic.store.find_size(topic.ledger, total - wanted.bytes)
    end = topic.next_entry if after is None else after.entry_id
    left = await topic.store.size_since(topic.ledger, end)
    if total - left > wanted.bytes and end - 1 > first:
        end -= 1
        left = await topic.store.size_since(topic.ledger, end)
    offset = topic.next_offset if end >= topic.next_entry else (await topic.entry(end)).offset
    return SizeResult(total=total, bytes=total - left, end=offset)

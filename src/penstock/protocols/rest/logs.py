"""POST of offsets and cursors: many logs in one request, so that a reader of many topics polls with one call."""

import asyncio
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from hashlib import blake2b
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, require
from penstock.broker.subscription import Subscription
from penstock.broker.topic import Topic
from penstock.broker.topics import Topics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_subscription
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Long
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.http.operations import Table
from penstock.runtime.patterns import Pattern
from penstock.runtime.tasks import Slices, each

from .operations import ALWAYS, READING, Target, error_code
from .partition import log_of
from .services import Services

LOGS_MAX: Final = 10_000  # named in one request, which is worked on in one go
PATTERNS_MAX: Final = 100  # each is matched with every topic of its namespace
TIMES_MAX: Final = 100  # each is looked for in every log


class TopicsPattern(Struct, forbid_unknown_fields=True, kw_only=True):
    """The persistent topics of a namespace whose local names match a regular expression as a whole."""

    namespace: str
    regex: str


class OffsetsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which topics; `publish_times` (ms) ask for the first offset published since each.

    `seen` is what an answer before this one said: then the request waits, for at most `wait_ms`, until there is
    something new.
    """

    topics: Annotated[list[str], Meta(max_length=LOGS_MAX)] = []
    patterns: Annotated[list[TopicsPattern], Meta(max_length=PATTERNS_MAX)] = []
    publish_times: Annotated[list[Long], Meta(max_length=TIMES_MAX)] = []
    seen: str | None = None
    wait_ms: Long = 0


class LogOffsets(Struct, kw_only=True):
    """The bounds of a partition (end exclusive), and the bytes of its entries; `at` answers
    `publish_times`. If it is not `dense`, some offsets belong to no message."""

    ledger: int
    earliest: int
    latest: int
    bytes: int
    dense: bool
    at: list[int] | UnsetType = UNSET


class TopicOffsets(Struct, kw_only=True):
    """A topic's logs by partition; a topic that is not `partitioned` is its own partition 0."""

    topic: str
    partitioned: bool
    partitions: list[LogOffsets]


class ManyOffsets(Struct, kw_only=True):
    """The topics sorted by name, and missing ones; both empty if nothing `changed`."""

    seen: str
    changed: bool
    topics: list[TopicOffsets]
    missing: list[str]


class Size(Struct, forbid_unknown_fields=True, kw_only=True):
    """The size of a partition from `offset` on, and the end of the first `bytes` of it."""

    topic: str
    partition: int
    offset: Long
    bytes: Long | None = None


class SizesRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The ranges to be measured."""

    ranges: Annotated[list[Size], Meta(max_length=LOGS_MAX)]


class SizeResult(Struct, kw_only=True):
    """`total` bytes of entries up to the end; `bytes` of them up to `end`, which is the end of an entry. That is as
    much as was asked for at most, but one entry if there is one."""

    total: int
    bytes: int
    end: int


class SizesAnswer(Struct, kw_only=True):
    """One result a range, in their order."""

    ranges: list[SizeResult]


class Mark(Struct, forbid_unknown_fields=True, kw_only=True):
    """Messages below `offset` in a partition are done. `ledger` distinguishes the log from another of the same name."""

    topic: str
    partition: int
    ledger: int
    offset: Long


class MarksRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Move a durable subscription after a reader; it is created if missing. `exact` also moves it back."""

    subscription: str
    marks: Annotated[list[Mark], Meta(min_length=1, max_length=LOGS_MAX)]
    exact: bool = False


class MarkResult(Struct, kw_only=True):
    """The position of a subscription in a partition, or why it was not moved."""

    topic: str
    partition: int
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class MarksAnswer(Struct, kw_only=True):
    """One result a mark, in their order."""

    marks: list[MarkResult]


_offsets_request: Final = msgspec.json.Decoder(OffsetsRequest)
_sizes_request: Final = msgspec.json.Decoder(SizesRequest)
_marks_request: Final = msgspec.json.Decoder(MarksRequest)

LOGS_AT_ONCE: Final = 16

operations: Final = Table("read")


@operations.on(
    "POST",
    "/topics/offsets",
    summary="Where the partitions of many topics begin and end.",
    description="With what an answer before said it had `seen`, waits until there is something new.",
    request=OffsetsRequest,
    answer=ManyOffsets,
    errors=(*ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE, ErrorKind.NOT_SUPPORTED),
)
async def offsets(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    require(rest.broker.capabilities, Capability.OFFSETS)
    wanted = await exchange.json(_offsets_request, rest.limits.max_request_bytes)
    if wanted.wait_ms > rest.limits.max_wait_ms:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"wait_ms is at most {rest.limits.max_wait_ms}")
    if wanted.wait_ms and wanted.publish_times:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "wait_ms and publish_times exclude one another")
    names = Names(rest.broker.topics, caller, wanted)
    at_once = _at_once(rest.broker)
    await names.learn(at_once)
    found: ManyOffsets | None = None
    if wanted.wait_ms and wanted.seen is not None:
        async with LongPoll(rest.polls, exchange) as poll:
            poll.watch(caller, names.check)
            found = await poll.until(
                _changed(rest.broker.topics, names, wanted.seen, at_once), wanted.wait_ms
            )
            if poll.lapsed is not None:
                raise poll.lapsed
    else:
        found = await _offsets(rest.broker.topics, await names.now(), wanted.publish_times, at_once)
    if found is None or found.seen == wanted.seen:
        found = ManyOffsets(seen=wanted.seen or "", changed=False, topics=[], missing=[])
    await exchange.answer(to_json(found))


def _at_once(broker: Broker) -> int:
    """How many logs are asked for at a time: a cluster is waited for, the engine's own log is not."""
    return 1 if broker.cluster is None else LOGS_AT_ONCE


async def _offsets(
    known: Topics, names: Sequence[TopicName], times: Sequence[int], at_once: int
) -> ManyOffsets:
    topics: list[TopicOffsets] = []
    missing: list[str] = []
    await each(known.learn, names, at_once)
    for name in names:
        try:
            partitioned = known.partitions(name) > 0
            logs = await known.all_of(name, create=False)
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
            missing.append(str(name))
            continue
        partitions = await each(lambda topic: _log(topic, times), logs, at_once)
        topics.append(TopicOffsets(topic=str(name), partitioned=partitioned, partitions=partitions))
    digest = blake2b(to_json((topics, missing)), digest_size=8).hexdigest()
    return ManyOffsets(seen=digest, changed=True, topics=topics, missing=missing)


async def _log(topic: Topic, times: Sequence[int]) -> LogOffsets:
    await topic.refresh()
    bounds = topic.bounds
    found = LogOffsets(
        ledger=topic.ledger,
        earliest=bounds.first_offset,
        latest=bounds.next_offset,
        bytes=bounds.size_bytes,
        dense=topic.dense,
    )
    if times:
        # The log may grow during this; the answer is of the moment of the first look.
        found.at = [min(await topic.offset_at_time(time), found.latest) for time in times]
    return found


async def _changed(topics: Topics, names: "Names", seen: str, at_once: int) -> ManyOffsets:
    """Wait until the offsets are others than were `seen`; an idle reader costs one look."""
    event = asyncio.Event()
    while True:
        current = await names.now()
        with _following(topics, set(current), event.set) as count:
            found = await _offsets(topics, current, (), at_once)
            if found.seen != seen:
                return found
            if count < sum(len(topic.partitions) for topic in found.topics):
                continue  # the look opened logs, which must be followed, too
            await event.wait()
            event.clear()


@contextmanager
def _following(topics: Topics, names: Set[TopicName], changed: Callable[[], None]) -> Iterator[int]:
    """Have `changed` called when a log grows, or a topic comes or goes; yields how many logs are followed."""

    def listener(_: TopicName) -> None:
        changed()

    logs = [topic for topic in topics.open_topics if topic.name in names or topic.name.base in names]
    for topic in logs:
        topic.followers.add(changed)
    topics.listeners.add(listener)
    try:
        yield len(logs)
    finally:
        topics.listeners.discard(listener)
        for topic in logs:
            topic.followers.discard(changed)


class Names:
    """The topics that a request is about, as they are at any moment."""

    def __init__(self, topics: Topics, caller: Caller, wanted: OffsetsRequest) -> None:
        self._topics = topics
        self._session = caller
        self._named = {TopicName.parse(name) for name in wanted.topics}
        self._namespaces: set[NamespaceName] = set()
        self._patterns: list[tuple[NamespaceName, Callable[[str], bool]]] = []
        for pattern in wanted.patterns:
            matches = Pattern(pattern.regex).fullmatch
            namespace = NamespaceName.parse(pattern.namespace)
            self._namespaces.add(namespace)
            self._patterns.append((namespace, matches))

    async def learn(self, at_once: int) -> None:
        """Learn what a cluster grants there, by which `check` decides."""
        await each(self._topics.learn, sorted(self._named), at_once)
        for namespace in self._namespaces:
            await self._topics.learn_names(namespace)

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
        for namespace in self._namespaces:
            await self._topics.learn_names(namespace)
        for namespace, matches in self._patterns:
            for name in self._topics.names(namespace, "persistent"):
                await slices.step()
                if name not in found and matches(name.local) and self._session.consumes(name):
                    found.add(name)
        return sorted(found)


@operations.on(
    "POST",
    "/topics/sizes",
    summary="How many bytes there are in ranges of offsets.",
    description="Before a cluster these are estimates: it counts the bytes of whole ledgers.",
    request=SizesRequest,
    answer=SizesAnswer,
    errors=(*READING, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE),
)
async def sizes(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    require(rest.broker.capabilities, Capability.OFFSETS)
    wanted = await exchange.json(_sizes_request, rest.limits.max_request_bytes)
    names = [TopicName.parse(one.topic) for one in wanted.ranges]
    at_once = _at_once(rest.broker)
    await each(rest.broker.topics.learn, sorted(set(names)), at_once)
    for name in set(names):
        caller.may_consume(name)

    async def measure(one: tuple[TopicName, Size]) -> SizeResult:
        return await _size(await log_of(rest.broker, one[0], one[1].partition), one[1])

    found = await each(measure, list(zip(names, wanted.ranges, strict=True)), at_once)
    await exchange.answer(to_json(SizesAnswer(ranges=found)))


async def _size(topic: Topic, wanted: Size) -> SizeResult:
    first = await topic.entry_at(wanted.offset)
    total = await topic.size_since(first)
    if wanted.bytes is None or wanted.bytes >= total:
        return SizeResult(total=total, bytes=total, end=max(wanted.offset, topic.bounds.next_offset))
    # The entry that ends beyond the requested bytes is the one before the first that has so many after it.
    after = await topic.find_size(total - wanted.bytes)
    end = topic.bounds.next_entry
    if after is not None:  # in a log of many ledgers, entries go by their offsets
        end = max(first + 1, after.entry_id if topic.ledger >= 0 else after.offset)
    left = await topic.size_since(end)
    if total - left > wanted.bytes and end - 1 > first:
        end -= 1
        left = await topic.size_since(end)
    offset = topic.bounds.next_offset
    if end < topic.bounds.next_entry:
        for entry in await topic.read(end, 1):  # or the next one: an id may be none's
            offset = entry.offset if entry.offset > wanted.offset else entry.end  # one entry at least
    return SizeResult(total=total, bytes=total - left, end=offset)


@operations.on(
    "POST",
    "/topics/cursors",
    tag="consume",
    summary="Have a durable subscription follow a reader, by offsets.",
    request=MarksRequest,
    answer=MarksAnswer,
    errors=(*ALWAYS, ErrorKind.BAD_JSON, ErrorKind.TOO_LARGE, ErrorKind.NOT_SUPPORTED),
)
async def cursors(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    """What it answers is durable."""
    require(rest.broker.capabilities, Capability.OFFSETS)
    wanted = await exchange.json(_marks_request, rest.limits.max_request_bytes)
    check_subscription(wanted.subscription)
    names = [TopicName.parse(mark.topic) for mark in wanted.marks]
    at_once = _at_once(rest.broker)
    await each(
        rest.broker.topics.learn, sorted(set(names)), at_once
    )  # a cluster's grants, before they are asked
    for name in set(names):
        caller.may_consume(name, wanted.subscription)
    moved: set[Subscription] = set()

    async def move(one: tuple[TopicName, Mark]) -> MarkResult:
        name, mark = one
        result = MarkResult(topic=mark.topic, partition=mark.partition, offset=None)
        try:
            subscription = await _move(rest.broker, name, mark, wanted)
            result.offset = subscription.figures().mark
            moved.add(subscription)
        except PenstockError as error:
            result.error_code, result.error = error_code(error), error.message
        return result

    results = await each(move, list(zip(names, wanted.marks, strict=True)), at_once)
    await asyncio.gather(*(one.flush() for one in moved))
    await exchange.answer(to_json(MarksAnswer(marks=results)))


async def _move(broker: Broker, name: TopicName, mark: Mark, wanted: MarksRequest) -> Subscription:
    topic = await log_of(broker, name, mark.partition)
    if topic.ledger != mark.ledger:
        raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{topic.name} was deleted and made anew")
    return await broker.subscriptions.set_mark(topic, wanted.subscription, mark.offset, exact=wanted.exact)

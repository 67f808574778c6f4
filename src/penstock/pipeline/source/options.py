"""The options of the data source, read and checked. Spark hands them over in lower case."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName, check_subscription
from penstock.pipeline.decode.options import Typed, parse_typed
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import (
    DECODE,
    SERVER,
    SOURCE,
    parse_server,
    read_options,
    shown,
    split_prefixed,
)
from penstock.pipeline.rows import columns

from .cluster import PREFIX, parse_cluster
from .offsets import End, Time, Where, parse_times, parse_where

POLL_MS_MAX: Final = 20_000  # a server's answer is waited for no longer than 30 s
TRIGGER_DELAY_MS: Final = 15 * 60_000  # as Kafka's connector has it
_DELAY_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
POLL_MS: Final = 100  # Spark itself would ask 75 times a second

# One task of Spark costs 25 to 45 ms; half a million messages take ten times as long.
RECORDS_PER_PARTITION: Final = 500_000

_TOPICS: Final = "topics are named by option subscribe"
_HINTS: Final = {
    "path": f"load() takes no name; {_TOPICS}",
    "topic": _TOPICS,
    "topics": _TOPICS,
    "topicspattern": "a pattern of topics is option subscribePattern",
    "archive": "read the table by format penstock_lake, and union what the topic has behind it",
}


class Pattern(msgspec.Struct, frozen=True):
    """Topics of a namespace whose local names match as a whole."""

    namespace: NamespaceName
    local: str

    def matches(self, topic: TopicName) -> bool:
        return topic.persistent and re.fullmatch(self.local, topic.local) is not None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a query asks for.

    `topics` maps each topic to the partitions wanted, None for all; it is empty where there is a `pattern`.
    """

    server: Access
    topics: dict[TopicName, tuple[int, ...] | None]
    pattern: Pattern | None
    start: Where
    end: Where
    include: tuple[str, ...]
    partitions_min: int
    records_max: int
    fail_on_data_loss: bool
    batch_rows_max: int | None = None
    batch_bytes_max: int | None = None
    batch_rows_min: int = 0
    trigger_delay_ms: int = TRIGGER_DELAY_MS
    poll_ms: int = POLL_MS
    subscription: str = ""
    kafka: dict[str, str] = {}  # how tasks reach the brokers of Kafka; empty: they read from the server
    typed: Typed | None = None
    push: bool = False  # whether the source applies filters itself

    def __repr__(self) -> str:
        return shown(self, "kafka")

    def wants(self, topic: TopicName, partition: int) -> bool:
        """Whether a log is part of the query."""
        if self.pattern is not None:
            return self.pattern.matches(topic)
        wanted = self.topics.get(topic, ())
        return wanted is None or partition in wanted


def parse_options(given: Mapping[str, str], *, stream: bool | None = None) -> Options:
    """Check the options of a query, a `stream` or a batch (None: either). Raises PipelineError, which names the
    option."""
    kafka, given = split_prefixed(given, PREFIX)
    found = read_options(given, (*SERVER, *SOURCE, *DECODE), hints=_HINTS, stream=stream)
    server = parse_server(found)
    topics, pattern = _topics(found)
    start = _where(found, "starting", End.LATEST if stream else End.EARLIEST)
    end = _where(found, "ending", End.LATEST)
    if end == End.EARLIEST:
        raise PipelineError("option endingOffsets: earliest would read nothing")
    return Options(
        server=server,
        topics=topics,
        pattern=pattern,
        start=start,
        end=end,
        include=parse_include(found["include"]),
        partitions_min=found["minPartitions"],
        records_max=found["maxRecordsPerPartition"] or RECORDS_PER_PARTITION,
        fail_on_data_loss=found["failOnDataLoss"],
        batch_rows_max=found["maxOffsetsPerTrigger"],
        batch_bytes_max=found["maxBytesPerTrigger"],
        batch_rows_min=_rows_min(found),
        trigger_delay_ms=_trigger_delay_ms(found),
        poll_ms=_poll_ms(found["pollInterval"] or POLL_MS),
        subscription=_subscription(found["subscription"]),
        kafka=parse_cluster(found["fetch"], kafka),
        typed=parse_typed(found),
        push=found["pushFilters"],
    )


def parse_include(text: str) -> tuple[str, ...]:
    """The further columns, in the order in which they are named."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in columns.INCLUDABLE:
            raise PipelineError(
                f"option include: no column {name!r}; there are {', '.join(columns.INCLUDABLE)}"
            )
    if len(set(names)) < len(names):
        raise PipelineError("option include: a column is named twice")
    return tuple(names)


def _topics(found: Mapping[str, Any]) -> tuple[dict[TopicName, tuple[int, ...] | None], Pattern | None]:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if found[name] is not None]
    if not ways:
        raise PipelineError(
            "which topics? one of the options subscribe, subscribePattern and assign is needed"
        )
    if len(ways) > 1:
        raise PipelineError(f"options {' and '.join(ways)} exclude one another")
    text = found[ways[0]]
    match ways[0]:
        case "subscribe":
            return _subscribed(text), None
        case "assign":
            return _assigned(text), None
        case _:
            return {}, _pattern(text)


def _subscribed(text: str) -> dict[TopicName, tuple[int, ...] | None]:
    topics: dict[TopicName, tuple[int, ...] | None] = {}
    for name in (each.strip() for each in text.split(",")):
        if not name:
            continue
        topic = _topic("subscribe", name)
        wanted: tuple[int, ...] | None = None
        if topic.partition >= 0:  # one partition, by its own name
            before = topics.get(topic.base, ())
            wanted = None if before is None else tuple(sorted({*before, topic.partition}))
        topics[topic.base] = wanted
    if not topics:
        raise PipelineError("option subscribe: no topic is named")
    return topics


def _assigned(text: str) -> dict[TopicName, tuple[int, ...] | None]:
    try:
        raw = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.DecodeError as error:
        raise PipelineError(f'option assign: expected JSON like {{"topic": [0, 1]}} ({error})') from None
    topics: dict[TopicName, tuple[int, ...] | None] = {}
    for name, partitions in raw.items():
        if not partitions or min(partitions) < 0:
            raise PipelineError(f"option assign: {name} needs partitions, counted from 0")
        topics[_topic("assign", name).base] = tuple(sorted(set(partitions)))
    if not topics:
        raise PipelineError("option assign: no topic is named")
    return topics


def _pattern(text: str) -> Pattern:
    """A regular expression for local names, behind a namespace as in a topic's full name."""
    domain, separator, rest = text.strip().partition("://")
    if not separator:
        domain, rest = "persistent", text.strip()
        if rest.count("/") < 2:
            rest = f"public/default/{rest}"
    parts = rest.split("/", 2)
    if domain != "persistent" or len(parts) != 3 or not parts[2]:
        raise PipelineError("option subscribePattern: expected tenant/namespace/regex, or a regex alone")
    try:
        re.compile(parts[2])
        return Pattern(NamespaceName.of(parts[0], parts[1]), parts[2])
    except (re.error, PenstockError) as error:
        raise PipelineError(f"option subscribePattern: {error}") from None


def _topic(option: str, name: str) -> TopicName:
    try:
        topic = TopicName.parse(name)
    except PenstockError as error:
        raise PipelineError(f"option {option}: {error.message}") from None
    if not topic.persistent:
        raise PipelineError(f"option {option}: {topic} keeps no history to be read")
    return topic


def _poll_ms(interval: int) -> int:
    if interval > POLL_MS_MAX:
        raise PipelineError(f"option pollInterval: {interval} ms is more than {POLL_MS_MAX}")
    return interval


def _rows_min(found: Mapping[str, Any]) -> int:
    least: int = found["minOffsetsPerTrigger"]
    most = found["maxOffsetsPerTrigger"]
    if most and least > most:
        raise PipelineError(f"option minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, {most}")
    return least


def _trigger_delay_ms(found: Mapping[str, Any]) -> int:
    text = found["maxTriggerDelay"]
    if text is None:
        return TRIGGER_DELAY_MS
    if not found["minOffsetsPerTrigger"]:
        raise PipelineError("option maxTriggerDelay is for use with minOffsetsPerTrigger")
    delay = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
    unit = _DELAY_UNITS_MS.get(delay[2] or "ms") if delay else None
    if delay is None or unit is None:
        raise PipelineError(
            f"option maxTriggerDelay: {text!r} is no time like 15m (units: {', '.join(_DELAY_UNITS_MS)})"
        )
    return int(delay[1]) * unit


def _subscription(text: str) -> str:
    if not text.strip():
        return ""
    try:
        return check_subscription(text.strip())
    except PenstockError as error:
        raise PipelineError(f"option subscription: {error.message}") from None


def _where(found: Mapping[str, Any], which: str, default: Where) -> Where:
    offsets, timestamp, by_time = f"{which}Offsets", f"{which}Timestamp", f"{which}OffsetsByTimestamp"
    named = [name for name in (offsets, timestamp, by_time) if found[name] is not None]
    if len(named) > 1:
        raise PipelineError(f"options {' and '.join(named)} exclude one another")
    match named:
        case [name] if name == timestamp:
            return Time(found[timestamp])
        case [name] if name == by_time:
            return parse_times(by_time, found[by_time])
        case [_]:
            return parse_where(offsets, found[offsets])
    return default

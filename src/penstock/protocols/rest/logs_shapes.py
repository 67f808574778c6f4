"""Bodies of the operations on many logs at once: for readers that plan, and follow, more than one topic."""

from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.protocols.declarations import Long

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
    """Where a partition begins and ends (exclusive), and how many bytes its entries take; `at` answers
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
    """The topics sorted by name, and those that are not there; both empty where nothing `changed`."""

    seen: str
    changed: bool
    topics: list[TopicOffsets]
    missing: list[str]


class Size(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is in a partition from `offset` on, and how far `bytes` of it go."""

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
    """What is below `offset` in a partition is done with. `ledger` tells the log from one of the same name."""

    topic: str
    partition: int
    ledger: int
    offset: Long


class MarksRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Have a durable subscription follow a reader; it is made where it is missing. `exact` also moves it back."""

    subscription: str
    marks: Annotated[list[Mark], Meta(min_length=1, max_length=LOGS_MAX)]
    exact: bool = False


class MarkResult(Struct, kw_only=True):
    """Where a subscription now is in a partition, or why it was not moved."""

    topic: str
    partition: int
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class MarksAnswer(Struct, kw_only=True):
    """One result a mark, in their order."""

    marks: list[MarkResult]

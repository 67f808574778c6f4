"""Bodies of staged publishing."""

from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from msgspec import Meta, Struct, convert

from penstock.broker import staging
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.stage import Commit, Span

T = TypeVar("T")
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def copied(value: Any, kind: type[T]) -> T:
    """A value as a type whose fields have the same names."""
    return convert(value, kind, from_attributes=True)


class OpenRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Topics that are about to be published to; those that are missing are made, as the server is configured."""

    topics: Annotated[list[str], Meta(max_length=10_000)]
    # By topic, the version of its key/value schema (SEPARATED) that keys are encoded with.
    key_versions: Annotated[dict[str, int], Meta(max_length=10_000)] = {}


class OpenTopic(Struct, kw_only=True, omit_defaults=True):
    """A topic, its number of partitions (0: not partitioned), and the `partitioner` by which a key chooses one.

    `murmur2`, `crc32` and `fnv1a` hash the bytes of the key, `java` and `murmur3` its text (base64, if the key is bytes).
    `key_prefix` (base64) precedes the bytes when they are hashed: a schema registry's framing, if the request names the version.
    """

    topic: str
    partitions: int
    partitioner: Partitioner
    key_prefix: str = ""


class OpenAnswer(Struct, kw_only=True):
    """The topics in the order of the request, what one part and one message may be at most, and whether parts can be
    `staged`: else entries are published at once."""

    topics: list[OpenTopic]
    staged: bool
    max_part_bytes: int
    max_message_bytes: int


class StageCount(Struct, forbid_unknown_fields=True, kw_only=True):
    """A stage as its writer counted it: parts, messages, and the bytes of the entries."""

    stage: str
    parts: Count
    messages: Count
    size_bytes: Count


class CommitRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The stages to be appended, in this order, and the topics that the writer writes to, dead letters aside.

    A writer's batches are numbered for each set of `topics`; none is a separate set. With `keep` off the commit
    is forgotten after an hour.
    """

    topics: Annotated[list[str], Meta(max_length=1_000)] = []
    stages: Annotated[list[StageCount], Meta(max_length=1_000_000)]
    keep: bool = True


class CommittedSpan(Struct, kw_only=True):
    """What a commit appended to one log: how many messages, with offsets up to and without `end_offset` (null before a
    cluster); ids of its first and last entry."""

    topic: str
    messages: int
    offset: int | None
    end_offset: int | None
    size_bytes: int
    first_message_id: str
    last_message_id: str

    @classmethod
    def of(cls, span: Span) -> Self:
        partition = TopicName.parse(span.topic).partition
        known = span.offset >= 0
        last = span.last or (span.ledger, span.entry_id + span.entries - 1)
        return cls(
            topic=span.topic,
            messages=span.messages,
            offset=span.offset if known else None,
            end_offset=span.offset + span.messages if known else None,
            size_bytes=span.size_bytes,
            first_message_id=str(MessageId(span.ledger, span.entry_id, partition)),
            last_message_id=str(MessageId(*last, partition)),
        )


class CommitAnswer(Struct, kw_only=True):
    """A batch is committed: by this request, or (`repeated`) by one before it. `at` is ms since the epoch.

    `topics` are the declared ones, by their full names; `spans` is what the batch appended.
    """

    writer: str
    topics: list[str]
    batch: int
    at: int
    repeated: bool
    spans: list[CommittedSpan]

    @classmethod
    def of(cls, commit: Commit, *, repeated: bool) -> Self:
        return cls(
            writer=commit.writer,
            topics=list(commit.topics or ()),
            batch=commit.batch,
            at=commit.at,
            repeated=repeated,
            spans=[CommittedSpan.of(span) for span in commit.spans],
        )


class CommitState(StrEnum):
    """Of a batch: its commit runs in this process, the batch is among the writer's last commits, or neither."""

    COMMITTING = "committing"
    COMMITTED = "committed"
    OPEN = "open"


class CommitProgress(Struct, kw_only=True):
    """The progress of a commit. `process` identifies the process of the service: another than the one that began the commit says
    `open` until the batch is committed. `since` (ms since the epoch) is when it began here, null unless it runs here."""

    writer: str
    batch: int
    state: CommitState
    process: str
    since: int | None


class StageAnswer(Struct, kw_only=True):
    """What a part holds."""

    messages: int
    size_bytes: int


class StagedBatch(Struct, kw_only=True):
    """The stages of a batch."""

    batch: int
    at: int
    stages: list[StageCount]

    @classmethod
    def of(cls, number: int, held: staging.StagedBatch) -> Self:
        return cls(batch=number, at=held.at, stages=copied(held.stages, list[StageCount]))


class CommittedTarget(Struct, kw_only=True):
    """The last batch that a writer committed to a set of topics.

    `topics` is null for a commit that was made before commits named their topics: it counts for every set that has
    none of their own.
    """

    topics: list[str] | None
    batch: int
    at: int
    messages: int
    keep: bool


class WriterAnswer(Struct, kw_only=True):
    """A writer: its owner ("" without one), its last commits, and what it has staged. `at`: when it was last used."""

    writer: str
    owner: str
    at: int
    targets: list[CommittedTarget]
    staged: list[StagedBatch]


class ListedWriter(Struct, kw_only=True):
    """A writer in a list: its owner, its last commits, and how much it has staged."""

    writer: str
    owner: str
    at: int
    targets: list[CommittedTarget]
    staged_batches: int
    staged_bytes: int


class WritersAnswer(Struct, kw_only=True):
    """Writers in the order of their names. `next` continues as `after`; null at the end."""

    writers: list[ListedWriter]
    next: str | None


class ForgetAnswer(Struct, kw_only=True):
    """The writer that was forgotten, wholly (`topics` null) or for a set of topics."""

    forgotten: str
    topics: list[str] | None


class AbortAnswer(Struct, kw_only=True):
    """How many stages were dropped."""

    dropped: int


class Appended(Struct, kw_only=True):
    """The entries published to one log. `repeats` counts entries that were there already; `offset` is null if all were.

    `last_sequence_id` is the highest that the log has of the last entry's producer, if repeats are looked for: a
    producer that repeats itself ends there.
    """

    topic: str
    messages: int
    repeats: int
    offset: int | None = None
    message_id: str | None = None
    last_sequence_id: int | None = None


class AppendAnswer(Struct, kw_only=True):
    """One result a section of the body, in their order."""

    results: list[Appended]

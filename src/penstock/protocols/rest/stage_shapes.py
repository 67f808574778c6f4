"""Bodies of staged publishing."""

from typing import Annotated, Self

from msgspec import Meta, Struct

from penstock.core.staged import Expected
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class OpenRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """Topics that are about to be published to; those that are missing are made, as the server is configured."""

    topics: Annotated[list[str], Meta(max_length=10_000)]


class OpenTopic(Struct, kw_only=True):
    """A topic and how many partitions it has, 0 for one without."""

    topic: str
    partitions: int


class OpenAnswer(Struct, kw_only=True):
    """The topics in the order of the request, and what one part and one message may be at most."""

    topics: list[OpenTopic]
    max_part_bytes: int
    max_message_bytes: int


class StageCount(Struct, forbid_unknown_fields=True, kw_only=True):
    """A stage as its writer counted it: parts, messages, and the bytes of the entries."""

    stage: str
    parts: Count
    messages: Count
    size_bytes: Count

    @classmethod
    def of(cls, found: Expected) -> Self:
        return cls(stage=found.stage, parts=found.parts, messages=found.messages, size_bytes=found.size_bytes)

    def expected(self) -> Expected:
        return Expected(self.stage, self.parts, self.messages, self.size_bytes)


class CommitRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """The stages to be appended, in this order. With `keep` off the commit is forgotten after a time."""

    stages: Annotated[list[StageCount], Meta(max_length=1_000_000)]
    keep: bool = True


class CommittedSpan(Struct, kw_only=True):
    """What a commit appended to one log: offsets up to and without `end_offset`; ids of its first and last entry."""

    topic: str
    offset: int
    end_offset: int
    size_bytes: int
    first_message_id: str
    last_message_id: str

    @classmethod
    def of(cls, span: Span) -> Self:
        partition = TopicName.parse(span.topic).partition
        last = span.entry_id + span.entries - 1
        return cls(
            topic=span.topic,
            offset=span.offset,
            end_offset=span.offset + span.messages,
            size_bytes=span.size_bytes,
            first_message_id=str(MessageId(span.ledger, span.entry_id, partition)),
            last_message_id=str(MessageId(span.ledger, last, partition)),
        )


class CommitAnswer(Struct, kw_only=True):
    """A batch is committed: by this request, or (`repeated`) by one before it. `at` is ms since the epoch.

    `batch` is the writer's last; `spans` are its, and empty where an older one was asked for.
    """

    writer: str
    batch: int
    at: int
    repeated: bool
    spans: list[CommittedSpan]

    @classmethod
    def of(cls, commit: Commit, batch: int, *, repeated: bool) -> Self:
        spans = [CommittedSpan.of(span) for span in commit.spans] if commit.batch == batch else []
        return cls(writer=commit.writer, batch=commit.batch, at=commit.at, repeated=repeated, spans=spans)


class StageAnswer(Struct, kw_only=True):
    """What came of a part. `committed`: the batch is committed already, and the part was passed over."""

    messages: int
    size_bytes: int
    committed: bool


class StagedBatch(Struct, kw_only=True):
    """What is staged for a batch."""

    batch: int
    at: int
    stages: list[StageCount]


class WriterAnswer(Struct, kw_only=True):
    """A writer: its last commit, and what it has staged since."""

    writer: str
    committed: CommitAnswer | None
    staged: list[StagedBatch]


class AbortAnswer(Struct, kw_only=True):
    """How many stages were dropped."""

    dropped: int


class Appended(Struct, kw_only=True):
    """What was published to one log. `repeats` counts entries that were there already; `offset` is none if all."""

    topic: str
    messages: int
    repeats: int
    offset: int | None = None
    message_id: str | None = None


class AppendAnswer(Struct, kw_only=True):
    """One result a section of the body, in their order."""

    results: list[Appended]

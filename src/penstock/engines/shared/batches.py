"""Batches that are staged and committed, in numbers: what an engine knows of stages, which set of topics a commit is for,
and whether it repeats the last one to its set."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from penstock.broker.staging import Caller, Expected, StagedBatch
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, StagedRun, Targets

Counts = dict[str, int]  # messages by topic; those of partitions count for their topic

TARGETS_MAX: Final = 1_000  # of one writer before a cluster; an answer tells of them all
TARGET_BYTES_MAX: Final = 4096  # the names of a set; they are the key of its commit
_SHOWN_MAX = 5  # topics in a message

log = logging.getLogger(__name__)


class Share:
    """What a stage holds for one log."""

    __slots__ = ("ledger", "messages", "size_bytes", "topic")

    def __init__(self, ledger: int, topic: str) -> None:
        self.ledger = ledger
        self.topic = topic
        self.messages = 0
        self.size_bytes = 0


class Stage:
    """One stage: which parts have come, and what they hold for each log."""

    __slots__ = ("checksums", "shares")

    def __init__(self) -> None:
        self.checksums: dict[int, int] = {}  # by part
        self.shares: dict[int, Share] = {}  # by ledger

    def add(self, run: StagedRun) -> None:
        self.checksums[run.part] = run.checksum
        share = self.shares.get(run.ledger)
        if share is None:
            share = self.shares[run.ledger] = Share(run.ledger, run.topic)
        share.messages += run.messages
        share.size_bytes += run.size_bytes

    @property
    def size_bytes(self) -> int:
        return sum(share.size_bytes for share in self.shares.values())

    @property
    def pieces(self) -> int:
        """How many numbers of it are in memory."""
        return len(self.checksums) + len(self.shares)

    def counted(self, name: str) -> Expected:
        """The stage as a commit has to name it."""
        messages = sum(share.messages for share in self.shares.values())
        return Expected(name, len(self.checksums), messages, self.size_bytes)


class Batch:
    """The stages of one batch of a writer. `origin` is what its batches are counted by."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin
        self.stages: dict[str, Stage] = {}
        self.at = 0  # when the last part came, ms since the epoch

    @property
    def size_bytes(self) -> int:
        return sum(stage.size_bytes for stage in self.stages.values())

    @property
    def topics(self) -> set[str]:
        """The topics and partitions that something is staged for."""
        return {share.topic for stage in self.stages.values() for share in stage.shares.values()}

    def expected(self, name: str) -> Expected:
        """A stage as a commit has to name it; of one that is not there, nothing."""
        return self.stages.get(name, Stage()).counted(name)

    def shown(self) -> StagedBatch:
        """The stages as a commit has to name them."""
        return StagedBatch(self.at, [self.expected(name) for name in self.stages])

    def won(self, stages: Sequence[Expected]) -> list[Share]:
        """What `stages` hold. Raises STAGE_NOT_FOUND, and STAGE_CONFLICT where one is not as it is said."""
        names = [each.stage for each in stages]
        if len(set(names)) < len(names):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, "a stage is named twice")
        for each in stages:
            if each.parts and each.stage not in self.stages:
                raise PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {each.stage}")
            found = self.expected(each.stage)
            if found != each:
                raise PenstockError(
                    ErrorKind.STAGE_CONFLICT,
                    f"stage {each.stage} has {found.parts} parts with {found.messages} messages,"
                    f" not {each.parts} with {each.messages}",
                )
        held = [self.stages[name] for name in names if name in self.stages]
        return [share for stage in held for share in stage.shares.values()]


def bases_of(topics: Iterable[str]) -> set[str]:
    """The topics that these topics and partitions are of."""
    return {str(TopicName.parse(topic).base) for topic in set(topics)}


def counts_of(found: Iterable[Share | Span]) -> Counts:
    """How many messages there are for each topic."""
    by_log: Counter[str] = Counter()
    for each in found:
        by_log[each.topic] += each.messages
    counts: Counter[str] = Counter()
    for topic, messages in by_log.items():
        counts[str(TopicName.parse(topic).base)] += messages
    return dict(counts)


def digest_of(stages: Sequence[Expected]) -> str:
    """What tells one request to commit from another: its stages, as they were counted."""
    return sha256(msgspec.json.encode(list(stages))).hexdigest()[:32]


def below(last: Commit, batch: int, topics: Targets) -> PenstockError:
    """The error of a batch before the last."""
    return PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)}: batch {batch} is below it,"
        " and is not committed",
    )


def check_same(last: Commit, topics: Targets, staged: Counts) -> None:
    """Raise BATCH_CONFLICT unless what is staged has the numbers of what was committed."""
    committed = counts_of(last.spans)
    if staged != committed:
        raise PenstockError(
            ErrorKind.BATCH_CONFLICT,
            f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)} with"
            f" {shown_counts(committed)}; what is staged under the same number has {shown_counts(staged)}",
        )


def deleted_since(last: Commit, topics: Targets, gone: Iterable[str]) -> PenstockError:
    """The error of a repeat whose messages are gone with their topics."""
    return PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)} with"
        f" {shown_counts(counts_of(last.spans))}; since then {shown_topics(tuple(sorted(gone)))} was deleted, and"
        " the messages with it. To write the whole batch again, forget the writer's commit to these topics"
        " (penstock writers forget) or use another writer name",
    )


def check_targets(writer: str, known: int) -> None:
    """Raise TOO_MANY_REQUESTS for one more set of topics that a writer commits to."""
    if known >= TARGETS_MAX:
        raise PenstockError(
            ErrorKind.TOO_MANY_REQUESTS,
            f"writer {writer} has committed to {TARGETS_MAX} sets of topics; use another, or forget some",
        )


def no_commit(writer: str, topics: Targets) -> PenstockError:
    """The error of a set of topics that a writer has not committed to."""
    return PenstockError(ErrorKind.NOT_FOUND, f"writer {writer} has no commit to {shown_topics(topics)}")


def superseded(batch: Batch, taken: Sequence[str], targets: Targets) -> list[str]:
    """The stages that a commit took, and those for its topics that no commit will take."""
    topics = set(targets) or bases_of(
        share.topic for name in taken if name in batch.stages for share in batch.stages[name].shares.values()
    )
    return [
        name
        for name, stage in batch.stages.items()
        if name in taken or topics & bases_of(share.topic for share in stage.shares.values())
    ]


def skipped(last: Commit, topics: Targets) -> None:
    """Log that a repeat was skipped, with its numbers."""
    about = {
        "writer": last.writer,
        "batch": last.batch,
        "topics": shown_topics(topics),
        "committed": shown_counts(counts_of(last.spans)),
        "committed_at": last.at,
    }
    log.info("skipped a repeated batch", extra=about)


def shown_topics(topics: Targets) -> str:
    """A set of topics in a message."""
    if not topics:
        return "undeclared topics"
    return ", ".join(topics[:_SHOWN_MAX]) + _more(len(topics))


def shown_counts(counts: Counts) -> str:
    """Messages by topic, in a message."""
    total = sum(counts.values())
    each = [f"{count} to {topic}" for topic, count in sorted(counts.items())[:_SHOWN_MAX]]
    detail = f" ({', '.join(each)}{_more(len(counts))})" if each else ""
    return f"{total} messages{detail}"


def _more(count: int) -> str:
    return f" and {count - _SHOWN_MAX} more" if count > _SHOWN_MAX else ""


def names_of(topics: Sequence[TopicName]) -> Targets:
    """A set of topics as a key."""
    return tuple(sorted({str(name.base) for name in topics}))


def declared(topics: Sequence[TopicName], caller: Caller) -> Targets:
    """The set that a writer declares. Raises FORBIDDEN, BAD_PARAMETER."""
    for name in topics:
        caller.may_produce(name)
        check_kept(name)
    names = names_of(topics)
    if sum(len(name.encode()) for name in names) > TARGET_BYTES_MAX:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"the names of a commit's topics have more than {TARGET_BYTES_MAX} bytes; declare none instead",
        )
    return names


def check_kept(name: TopicName) -> None:
    """Raise BAD_PARAMETER for a topic that keeps nothing."""
    if not name.persistent:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} keeps nothing: it cannot be staged for")

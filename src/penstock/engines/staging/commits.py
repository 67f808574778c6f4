"""Commits of staged batches: their set of topics, repeats, and refusals."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from penstock.broker.staging import Caller, Expected
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Targets

from .batches import B, Share

Counts = dict[str, int]  # messages by topic; those of partitions count for their topic

TARGETS_MAX: Final = 1_000  # of one writer; an answer has all of them
TARGET_BYTES_MAX: Final = 4096  # the names of a set; they are the key of its commit
_SHOWN_MAX = 5  # topics in a message

log = logging.getLogger(__name__)


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
    """The identity of a request to commit: its stages, as they were counted."""
    return sha256(msgspec.json.encode(list(stages))).hexdigest()[:32]


def below(last: Commit, batch: int, topics: Targets) -> PenstockError:
    """The error of a batch before the last."""
    return PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)}: batch {batch} is below it,"
        " and is not committed",
    )


def check_same(last: Commit, topics: Targets, staged: Counts) -> None:
    """Raise BATCH_CONFLICT unless the staged counts equal those of the commit."""
    committed = counts_of(last.spans)
    if staged != committed:
        raise PenstockError(
            ErrorKind.BATCH_CONFLICT,
            f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)} with"
            f" {shown_counts(committed)}; what is staged under the same number has {shown_counts(staged)}",
        )


def deleted_since(last: Commit, topics: Targets, gone: Iterable[str], *, again: bool) -> PenstockError:
    """The error of a repeat whose messages are gone with their topics; `again`: each of them was created again."""
    created = " and created again" if again else ""
    return PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)} with"
        f" {shown_counts(counts_of(last.spans))}; since then {shown_topics(tuple(sorted(gone)))} was deleted"
        f"{created}, and the messages with it. To write the whole batch again, forget the writer's commit to these topics"
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


def no_writer(writer: str) -> PenstockError:
    """The error of a writer that is not known."""
    return PenstockError(ErrorKind.NOT_FOUND, f"there is no writer {writer}")


def still_staging(writer: str, batches: int, size_bytes: int) -> PenstockError:
    """The error of a writer that cannot be forgotten yet."""
    return PenstockError(
        ErrorKind.STAGE_CONFLICT,
        f"writer {writer} is staging {batches} batches ({size_bytes} bytes); abort them first",
    )


def superseded(
    batches: Iterable[B], held: B, taken: Collection[str], targets: Targets
) -> list[tuple[B, list[str]]]:
    """What goes with a commit: the stages that it took, and those for its topics that no commit will take, of its batch and
    of those before it among `batches`."""
    shares = [share for name in taken if name in held.stages for share in held.stages[name].shares.values()]
    topics = set(targets) or bases_of(share.topic for share in shares)
    over = []
    for batch in [held, *(one for one in batches if one.number < held.number)]:
        names = [
            name
            for name, stage in batch.stages.items()
            if (batch is held and name in taken)
            or topics & bases_of(share.topic for share in stage.shares.values())
        ]
        if names:
            over.append((batch, names))
    return over


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

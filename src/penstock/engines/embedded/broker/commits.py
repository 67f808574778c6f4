"""The sets of topics that staged batches are numbered for, and whether a commit repeats the last one to its set."""

import logging
from collections.abc import Sequence
from typing import Final

from penstock.broker.staging import Caller
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Targets

from .staged import Counts, counts_of
from .topics import Topics

TARGET_BYTES_MAX: Final = 4096  # the names of a set; they are the key of its commit
_SHOWN_MAX = 5  # topics in a message
# The errors of a log that no longer exists; BAD_PARAMETER where its name is that of a partitioned topic now.
_GONE = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.BAD_PARAMETER)

log = logging.getLogger(__name__)


def below(last: Commit, batch: int, topics: Targets) -> PenstockError:
    """The error of a batch before the last."""
    return PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)}: batch {batch} is below it,"
        " and is not committed",
    )


async def check_there(last: Commit, targets: Targets, topics: Topics) -> None:
    """Raise BATCH_CONFLICT unless each log that the commit appended to still exists: else its messages are gone."""
    gone = {TopicName.parse(span.topic).base for span in last.spans if not await _is_there(span, topics)}
    if not gone:
        return
    names = shown_topics(tuple(sorted(map(str, gone))))
    again = " and created again" if all(map(topics.exists, gone)) else ""
    raise PenstockError(
        ErrorKind.BATCH_CONFLICT,
        f"writer {last.writer} has committed batch {last.batch} to {shown_topics(targets)} with"
        f" {shown_counts(counts_of(last.spans))}; since then {names} was deleted{again}, and the messages with it."
        " To write the whole batch again, forget the writer's commit to these topics (penstock writers forget) or"
        " use another writer name",
    )


async def _is_there(span: Span, topics: Topics) -> bool:
    """Whether the log of a span is the one that it was; a log that was created again has another ledger."""
    try:
        return (await topics.get(TopicName.parse(span.topic), create=False)).ledger == span.ledger
    except PenstockError as error:
        if error.kind in _GONE:
            return False
        raise


def check_same(last: Commit, topics: Targets, staged: Counts) -> None:
    """Raise BATCH_CONFLICT unless what is staged has the numbers of what was committed."""
    committed = counts_of(last.spans)
    if staged != committed:
        raise PenstockError(
            ErrorKind.BATCH_CONFLICT,
            f"writer {last.writer} has committed batch {last.batch} to {shown_topics(topics)} with"
            f" {shown_counts(committed)}; what is staged under the same number has {shown_counts(staged)}",
        )


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

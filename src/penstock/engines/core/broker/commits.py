"""Whether what a commit appended is still there."""

from penstock.engines.shared.batches import counts_of, shown_counts, shown_topics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Targets

from .topics import Topics

# The errors of a log that no longer exists; BAD_PARAMETER where its name is that of a partitioned topic now.
_GONE = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.BAD_PARAMETER)


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

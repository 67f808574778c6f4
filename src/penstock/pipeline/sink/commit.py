"""The commit of a batch, and whether the server has what the tasks have.

That a batch is committed is not enough to go on: the answer's counts must be those of the rows that Spark has, by
topic, whether this request committed it or one before.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.http.stages import StageCount, Stages

from .task import Identity

log = logging.getLogger(__name__)


def commit(
    server: Access,
    identity: Identity,
    topics: Sequence[TopicName],
    stages: Sequence[StageCount],
    rows: Mapping[str, int],
    *,
    keep: bool,
) -> None:
    """Commit a batch to its target topics (none: any). `rows` says by topic how many messages it has.

    Raises BatchConflict where the server takes the batch neither for new nor for a repeat, PipelineError where it
    committed something else.
    """
    writer, batch = identity.writer, identity.batch
    with Stages(server) as client:
        try:
            answer = client.commit(writer, batch, stages, topics, keep=keep)
        except PenstockError as error:
            if error.kind is not ErrorKind.BATCH_CONFLICT:
                raise
            came = sum(rows.values())
            raise BatchConflict(
                f"{error.message}; the batch that came has {came} messages, and nothing of it was written"
            ) from None
    committed = messages_of(answer)
    for topic in sorted({*committed, *rows}):
        if committed.get(topic, 0) != rows.get(topic, 0):
            raise PipelineError(
                f"writer {writer}, batch {batch}: the server says that it committed {committed.get(topic, 0)} messages"
                f" to {topic}, and the batch has {rows.get(topic, 0)} for it: the two are not the same batch. Compare the"
                " topic with its input before the query goes on: see 'Batches that come again' in docs/spark.md",
                ErrorKind.BATCH_CONFLICT,
            )
    if answer["repeated"]:
        told = ", ".join(f"{count} messages to {topic}" for topic, count in sorted(committed.items()))
        log.warning(
            "writer %s, batch %d is committed already (%s): it is a repeat and is not written again",
            *(writer, batch, told or "no messages"),
        )


def messages_of(answer: Mapping[str, Any]) -> Counter[str]:
    """By topic, without its partitions, the messages that a commit's answer tells of."""
    found: Counter[str] = Counter()
    for span in answer["spans"]:
        found[str(TopicName.parse(span["topic"]).base)] += span["end_offset"] - span["offset"]
    return +found

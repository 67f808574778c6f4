"""The writers of the data source `penstock`, for Spark's Python data source API.

A writer is made in another process for each batch and for its commit: what a commit needs comes with the
tasks' messages. Every attempt at a task has a stage of its own; the driver commits those of the attempts that won. That
a batch is committed is not enough to go on: the answer's counts must be those of the rows that the tasks have, by topic,
whether this request committed it or one before.
"""

import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.garbage import freeze_modules
from penstock.pipeline.http.retry import AWAY_S, retrying
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.pipeline.versions import DataSourceStreamArrowWriter

from .entries import EntryWriter, PublishingWriter, StagingWriter, drop
from .options import Delivery, Options, check_columns, offered, parse_options
from .task import Identity, Plans, Task

log = logging.getLogger(__name__)

PLAN_RETRY_S: Final = 10.0  # for a server that restarts; a wrong address has to fail soon

# Properties that Spark gives tasks; nothing else says which batch of which query it is.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


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
        done = ", ".join(f"{count} messages to {topic}" for topic, count in sorted(committed.items()))
        log.warning(
            "writer %s, batch %d is committed already (%s): it is a repeat and is not written again",
            *(writer, batch, done or "no messages"),
        )


def messages_of(answer: Mapping[str, Any]) -> Counter[str]:
    """By topic, without its partitions, the messages in a commit's answer."""
    found: Counter[str] = Counter()
    for span in answer["spans"]:
        found[str(TopicName.parse(span["topic"]).base)] += span["messages"]
    return +found


class Written(WriterCommitMessage):
    """What a task wrote: its stage (None where nothing was staged), and messages by topic, dead letters too."""

    def __init__(self, identity: Identity, stage: StageCount | None, messages: Mapping[str, int]) -> None:
        self.identity = identity
        self.stage = stage
        self.messages = dict(messages)

    @property
    def rows(self) -> int:
        return sum(self.messages.values())

    @property
    def key(self) -> StageKey | None:
        if self.stage is None:
            return None
        return StageKey(self.identity.writer, self.identity.batch, self.stage.stage)


class TopicSink:
    """What both writers do. Made on the driver, pickled to the tasks."""

    def __init__(
        self, given: Mapping[str, str], schema: StructType, *, streaming: bool, suffix: str = ""
    ) -> None:
        self._suffix = suffix  # of the query's id, where a query writes to several sinks
        self._options = options = parse_options(given, streaming=streaming)
        self._writer, self._number = options.writer, options.batch
        self._once = not streaming and not options.writer
        if self._once:
            self._writer, self._number = f"once-{secrets.token_hex(16)}", 0
        check_columns(
            schema, topic=options.topic is not None, dead_letter_topic=options.dead_letter_topic is not None
        )
        # Of a stream this may be any batch: it outlasts a restart.
        most_s = AWAY_S if streaming else PLAN_RETRY_S
        self._plans = retrying(lambda: Plans(options, schema), most_s)
        self._delivery = offered(options, staged=retrying(lambda: _open_topics(options), most_s))
        if self._delivery is not options.delivery:
            log.warning(
                "%s is written at least once: the server has no staged publishing, as the Pulsar cluster behind it has no transactions",
                options.topic or "what column topic names",
            )
        freeze_modules("write planning")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        identity, stage = self._identify()
        entry_writer: EntryWriter
        if self._delivery is Delivery.EXACTLY_ONCE:
            entry_writer = StagingWriter(
                self._options.server, StageKey(identity.writer, identity.batch, stage)
            )
        else:
            deduplicate = self._delivery is Delivery.SEQUENCE
            entry_writer = PublishingWriter(self._options.server, deduplicate=deduplicate)
        with entry_writer:
            task = Task(self._options, identity, entry_writer, self._plans)
            task.write(iterator)
        count = None
        if isinstance(entry_writer, StagingWriter) and entry_writer.parts:
            count = entry_writer.count(task.messages.total())
        freeze_modules("write")
        return Written(identity, count, task.messages)

    def _identify(self) -> tuple[Identity, str]:
        """Which batch this task is of, and a name for its stage that no other attempt has."""
        context = TaskContext.get()
        if context is None:
            raise PipelineError("a write runs in tasks of Spark only")
        writer, number = self._writer, self._number
        if number < 0:
            batch = context.getLocalProperty(_BATCH)
            query = context.getLocalProperty(_QUERY)
            if batch is None or not (writer or query):
                raise PipelineError("Spark does not tell this task which batch of which query it is of")
            writer = writer or f"{query}{self._suffix}"
            number = int(batch)
        partition = context.partitionId()
        # A driver that was started again counts its attempts from the start: hence the random part.
        stage = f"{partition}-{context.taskAttemptId()}-{secrets.token_hex(4)}"
        return Identity(writer, number, partition), stage

    @property
    def at_once(self) -> bool:
        """Whether rows are seen as soon as a task writes them."""
        return self._delivery is not Delivery.EXACTLY_ONCE

    def nothing(self, query: str, batch: int) -> WriterCommitMessage:
        """What the tasks of a batch say that has no rows for this sink: to be committed, so that its number is looked at."""
        return Written(Identity(f"{query}{self._suffix}", batch, 0), None, {})

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Make what was written visible to consumers, once: commit the stages of the attempts that won.

        A batch without rows is committed too: a number that went back is seen then.
        """
        written = [message for message in messages if isinstance(message, Written)]
        stages = [message.stage for message in written if message.stage is not None]
        if self._delivery is not Delivery.EXACTLY_ONCE or not written:
            return
        if not stages and self._once:
            return  # its name is for this write alone: nothing comes after it
        rows: Counter[str] = Counter()
        for message in written:
            rows.update(message.messages)
        topic = self._options.topic
        commit(
            self._options.server,
            written[0].identity,
            [] if topic is None else [topic],
            stages,
            rows,
            keep=not self._once,
        )

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Drop the stages that there are. A commit that was reported as failed may have been made: it stays."""
        keys = [message.key for message in messages if isinstance(message, Written)]
        with Stages(self._options.server, retry_s=0) as client:
            drop(client, [key for key in keys if key is not None])


class TopicWriter(TopicSink, DataSourceArrowWriter):
    """`df.write.format("penstock")`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise PipelineError("a topic is not overwritten: write with mode append")
        super().__init__(given, schema, streaming=False)


class TopicStreamWriter(TopicSink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("penstock")`."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, suffix: str = "") -> None:
        super().__init__(given, schema, streaming=True, suffix=suffix)


def _open_topics(options: Options) -> bool:
    """Have the topics that the options name made, so that a wrong one fails before anything runs; whether the server can
    stage."""
    topics: list[TopicName] = [t for t in (options.topic, options.dead_letter_topic) if t is not None]
    with Stages(options.server, retry_s=0) as client:
        return client.open_topics(topics).staged

"""The writers of the data source `penstock`, for Spark's Python data source API.

A writer is made in another process for each batch and for its commit: what a commit needs comes with the
tasks' messages. Every attempt at a task has a separate stage; the driver commits those of the attempts that won. That
a batch is committed is not enough to go on: the answer's counts must be those of the rows that the tasks have, by topic,
whether this request committed it or one before.
"""

import logging
import secrets
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StringType, StructType

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.garbage import freeze_modules
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.retry import AWAY_S, retrying
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.pipeline.versions import DataSourceStreamArrowWriter

from .entries import EntryWriter, PublishingWriter, StagingWriter, drop
from .messages import columns_of, dead_letters, milliseconds, pairs_of, text_of
from .options import (
    Delivery,
    Options,
    check_columns,
    chooses_version,
    is_plain,
    offered,
    parse_options,
    parse_topic,
)
from .target import Target

if TYPE_CHECKING:
    from penstock.pipeline.encode.plan import Encoding

log = logging.getLogger(__name__)

PLAN_RETRY_S: Final = 10.0  # for a server that restarts; a wrong address has to fail soon

# Properties that Spark gives tasks; nothing else says which batch of which query it is.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"

BATCH_BYTES_MAX: Final = 64 << 20  # worked on at once


class Identity(NamedTuple):
    """Which batch of whom, and which of its partitions."""

    writer: str
    batch: int
    partition: int


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

    Raises BatchConflict if the server takes the batch neither as new nor as a repeat, PipelineError if it
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
    """What a task wrote: its stage (None if nothing was staged), and messages by topic, dead letters too."""

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
        self._suffix = suffix  # of the query's id, if a query writes to several sinks
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
        """The messages of tasks without rows for this sink: they are committed, so that the batch number is checked."""
        return Written(Identity(f"{query}{self._suffix}", batch, 0), None, {})

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Make the written messages visible to consumers, once: commit the stages of the attempts that won.

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


class Plans:
    """The encoding of each topic. The option's is planned on the driver; others at their first use, in tasks.

    So are those of text: they cannot be refused, and a plan is made for every batch.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._kind = schema["value"].dataType
        self._how = options.encode
        self._known: dict[TopicName, Encoding | None] = {}
        self._versions: dict[TopicName, set[int]] = {}
        if options.topic is not None and not self._is_automatic_text:
            self.encoding_of(options.topic)

    @property
    def _is_automatic_text(self) -> bool:
        """Text that takes the topic's schema if that is of text."""
        return isinstance(self._kind, StringType) and self._how == "auto"

    def encoding_of(self, topic: TopicName) -> "Encoding | None":
        """The encoding for a topic's values; None if they go out as the bytes they are. Raises PipelineError."""
        if topic not in self._known:
            self._known[topic] = self._plan(topic)
        return self._known[topic]

    def check_versions(self, topic: TopicName, versions: Collection[int]) -> None:
        """Raises PipelineError for a version that the topic's schema does not have."""
        known = self._versions.setdefault(topic, set())
        if all(version in known for version in versions):
            return
        from penstock.pipeline.http.schemas import all_versions

        with Calls(self._options.server) as client:
            known |= set(all_versions(client, str(topic.base)))
        for version in versions:
            if version not in known:
                there = f"there are {', '.join(map(str, sorted(known)))}" if known else "it has no schema"
                raise PipelineError(
                    f"column schema_version: {topic} has no schema version {version}; {there}"
                )

    def _plan(self, topic: TopicName) -> "Encoding | None":
        if is_plain(self._kind) and self._how in ("auto", "none") and not self._is_automatic_text:
            return None
        from penstock.pipeline.encode.plan import plan_encoding

        with Calls(self._options.server) as client:
            return plan_encoding(self._how, self._kind, topic, client)


class Task:
    """Writes the rows of one partition."""

    def __init__(self, options: Options, identity: Identity, entry_writer: EntryWriter, plans: Plans) -> None:
        self._options = options
        self._identity = identity
        self._entry_writer = entry_writer
        self._plans = plans
        self._targets: dict[TopicName, Target] = {}
        self._dead_letters: Target | None = None
        self.messages: Counter[str] = Counter()  # by topic, without its partitions; dead letters too

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write everything. Raises PipelineError, which names the place; BatchConflict."""
        for whole in batches:
            for batch in _pieces(whole):
                self._write(batch)
        targets = [*self._targets.values(), *filter(None, (self._dead_letters,))]
        for target in targets:
            target.finish()
        self._entry_writer.finish()
        for target in targets:
            self._entry_writer.confirm(target.last_sequence_ids())

    def _write(self, batch: pa.RecordBatch) -> None:
        if "_error" in batch.schema.names:
            bad = pc.is_valid(batch.column("_error"))
            if pc.any(bad).as_py():
                self._write_dead_letters(batch.filter(bad))
                batch = batch.filter(pc.invert(bad))
        if batch.num_rows == 0:
            return
        if self._options.topic is not None:
            self._write_to(self._options.topic, batch)
            return
        column = batch.column("topic")
        if column.null_count:
            raise PipelineError("column topic is null in some row: option topic would say where it goes")
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        for number, name in enumerate(names):
            rows = batch if len(names) == 1 else batch.filter(pc.equal(encoded.indices, number))
            self._write_to(parse_topic("column topic", name), rows)

    def _write_to(self, topic: TopicName, batch: pa.RecordBatch) -> None:
        self.messages[str(topic.base)] += batch.num_rows
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = self._target(topic, self._plans.encoding_of(topic))
        values = batch.column("value")
        columns = columns_of(batch, target.encode(values))
        keys = target.keys(values)
        if keys is not None:
            if "key" in batch.schema.names:
                raise PipelineError(f"column key is not for {topic}: its schema takes keys from column value")
            columns = columns._replace(key=keys)
        wanted = None
        if "partition" in batch.schema.names and "offset" not in batch.schema.names:
            wanted = batch.column("partition")
        versions = None
        if chooses_version(batch.schema.names):
            versions = batch.column("schema_version").cast(pa.int64())
            self._plans.check_versions(topic, pc.unique(versions).drop_null().to_pylist())
        target.write(columns, wanted, _deliver_at(batch), lambda row: _properties(batch, row), versions)

    def _write_dead_letters(self, batch: pa.RecordBatch) -> None:
        topic = self._options.dead_letter_topic
        assert topic is not None, "checked with the columns"
        if self._dead_letters is None:
            # A producer of their own: where they share a topic with good rows, their numbers are not those rows'.
            self._dead_letters = self._target(topic, None, "-dead-letters")
        self.messages[str(topic.base)] += batch.num_rows
        found = dead_letters(batch, self._identity.writer, self._identity.batch)
        self._dead_letters.write(found, None, None, None)

    def _target(self, topic: TopicName, encoding: "Encoding | None", suffix: str = "") -> Target:
        identity = self._identity
        versions = {topic: encoding.schema_version} if encoding is not None and encoding.has_keys else None
        opened = self._entry_writer.stages.open_topics([topic], versions)
        return Target(
            topic,
            opened.topics[topic],
            encoding,
            producer=f"spark-{identity.writer}-{identity.partition}{suffix}",
            batch=identity.batch,
            compression=self._options.compression,
            start=identity.partition,
            put=self._entry_writer.put,
        )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are not too large to be worked on at once."""
    step = batch.num_rows
    if batch.nbytes > BATCH_BYTES_MAX:
        step = max(1, batch.num_rows * BATCH_BYTES_MAX // batch.nbytes)
    for start in range(0, batch.num_rows, max(1, step)):
        yield batch.slice(start, step)


def _deliver_at(batch: pa.RecordBatch) -> Any:
    names = batch.schema.names
    if "deliver_at" in names:
        return milliseconds(batch.column("deliver_at"))
    if "deliver_after_ms" in names:
        after = batch.column("deliver_after_ms").cast(pa.int64())
        now = time.time_ns() // 1_000_000
        return pc.if_else(pc.greater(after, 0), pc.add(after, now), pa.scalar(None, pa.int64()))
    return None


def _properties(batch: pa.RecordBatch, row: int) -> dict[str, str] | None:
    return {name: text_of(value) for name, value in pairs_of(batch.slice(row, 1))[0]} or None

"""Starts the streaming query of a pipeline, or checks that it would start.

Every batch is one job, whose tasks write to all sinks, each under its writer's name (`writers`) and the batch's number, and
then one commit for each sink (`writing`). A sink that has the batch already changes nothing, so a batch that was
interrupted between two sinks is simply run again.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.options import server_options
from penstock.pipeline.sink.options import Delivery, offered, parse_options
from penstock.pipeline.spec.options import table_options, topic_options
from penstock.pipeline.spec.spec import Source, Spec
from penstock.pipeline.versions import map_in_arrow

from .causes import spark_sentence
from .checks import DEAD
from .failures import BatchSinks, at_sink, of_batch, sink_place
from .folder import Folder, SinkWriter
from .lateness import BatchWatermark, begun, interrupted
from .outputs import Outputs, collect_outputs, sink_columns
from .preflight import preflight
from .state import folder_of
from .tables import check_tables
from .views import build_views, session_for
from .writers import DEAD_WRITER, check_open_batch, plan_writers
from .writing import RESULT, commit, row_writer

DEAD_LETTERS: Final = "deadLetterTopic"


def start_query(
    spec: Spec,
    outputs: Outputs,
    writers: Mapping[str, SinkWriter],
    watermark: BatchWatermark,
    folder: Folder,
    *,
    once: bool,
) -> StreamingQuery:
    """Start it; from here on the checkpoint is in use."""
    sinks = open_sinks(spec, outputs, writers)
    write = row_writer(sinks, {name: sink_place(spec, name) for name in sinks})
    writer = BatchWriter(spec, {name: sink for name, (sink, _) in sinks.items()}, watermark, folder)
    frame = outputs.frame
    if any(sink.at_once for sink, _ in sinks.values()):
        writer.before = write
    else:
        frame = map_in_arrow(frame, write, RESULT)
    stream = frame.writeStream.foreachBatch(writer).outputMode(spec.output)
    stream = stream.option("checkpointLocation", folder.checkpoint_url).queryName(spec.name)
    stream = stream.trigger(availableNow=True) if once else stream.trigger(processingTime=spec.trigger)
    query: StreamingQuery = stream.start()
    return query


def open_sinks(
    spec: Spec, outputs: Outputs, writers: Mapping[str, SinkWriter]
) -> dict[str, tuple[Any, tuple[str, ...]]]:
    """Each sink as `writers` says, and the columns of structs that it takes. Raises PipelineError."""
    from penstock.pipeline.sink.writer import TopicStreamWriter

    sinks: dict[str, tuple[Any, tuple[str, ...]]] = {}
    for name, sink in spec.sinks.items():
        column = outputs.columns[name]
        schema = outputs.frame.schema[column].dataType
        suffix = writers[name].suffix
        if sink.path:
            from penstock.pipeline.lake.sink import StreamWriter

            with at_sink(f"{spec.file}: {sink_place(spec, name)}"):
                table = StreamWriter(table_options(spec, sink), schema, overwrite=False, suffix=suffix)
                table.create()
            sinks[name] = table, (column,)
            continue
        columns: tuple[str, ...] = (column,)
        options = topic_options(spec, sink)
        if writers[name].letters:
            options[DEAD_LETTERS], columns = spec.dead_letters, (column, DEAD)
        with at_sink(f"{spec.file}: {sink_place(spec, name)}"):
            sinks[name] = TopicStreamWriter(options, schema, suffix=suffix), columns
    if DEAD_WRITER in writers:
        options = server_options(spec.server) | dict.fromkeys(("topic", DEAD_LETTERS), spec.dead_letters)
        schema = StructType([StructField("value", BinaryType())])
        sinks[DEAD_WRITER] = TopicStreamWriter(options, schema, suffix=writers[DEAD_WRITER].suffix), (DEAD,)
    return sinks


def check_streaming(spec: Spec, session: SparkSession, frame: DataFrame) -> None:
    """What Spark itself asks of a streaming query before it starts it."""
    if not frame.isStreaming:
        raise PipelineError(f"{spec.file}: no sink has rows of a source")
    jvm: Any = session._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}[spec.output]()
    try:
        analysis.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise PipelineError(f"{spec.file}: {spark_sentence(error)}") from None


class BatchWriter:
    """Has a batch computed and written, and commits it in every sink that got rows of it.

    The first batch of a run may be one that was committed before, or come from a checkpoint that was rolled back: every
    sink looks at its number, rows or not. Those behind it are new.
    """

    def __init__(
        self, spec: Spec, writers: dict[str, Any], watermark: BatchWatermark, folder: Folder
    ) -> None:
        self._spec = spec
        self._writers = writers
        self._watermark = watermark
        self._folder = folder
        self._unseen = begun(folder)
        self._interrupted = interrupted(folder)
        # Writes rows that are seen at once, when all of them are computed: an expectation that fails must do so before.
        self.before: Any = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        at_once = self.before is not None
        with of_batch(self._spec, number, at_once=at_once, may_repeat=number == self._interrupted) as sinks:
            self._folder.begin_batch(number)
            self._write(batch, number, sinks)
        self._unseen = False
        self._watermark.advance(number)

    def _write(self, batch: DataFrame, number: int, sinks: BatchSinks) -> None:
        self._watermark.check(number)
        nothing: dict[str, WriterCommitMessage] = {}
        if self._unseen:
            if not (query := self._folder.query()):
                raise PipelineError(f"{self._folder.checkpoint_url}/metadata cannot be read")
            nothing = {name: writer.nothing(query, number) for name, writer in self._writers.items()}
        commit(self._writers, self._written(batch), number, nothing, sinks.writing)

    def _written(self, batch: DataFrame) -> list[Any]:
        if self.before is None:
            return batch.collect()
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            batch.count()
            return map_in_arrow(batch, self.before, RESULT).collect()
        finally:
            batch.unpersist()


def _deliveries(spec: Spec) -> list[str]:
    """A line for each topic that is written otherwise than exactly once. Raises PipelineError for what the server lacks."""
    with Stages(spec.server, retry_s=0) as client:
        staged = client.open_topics([]).staged
    lines: list[str] = []
    for name, sink in spec.sinks.items():
        if not sink.path:
            delivery = offered(parse_options(topic_options(spec, sink), streaming=True), staged=staged)
            if delivery is not Delivery.EXACTLY_ONCE:
                lines.append(f"[sinks.{name}] delivery: {delivery}")
    return lines


def _limits(name: str, source: Source) -> str:
    """How much of a source a batch takes at most."""
    rows, size = source.max_rows_per_batch, source.max_bytes_per_batch
    texts = [f"{rows:,} rows"] if rows else []
    texts += [f"{size / (1 << 20):,.6g} MiB"] if size else []
    return f"[sources.{name}] a batch takes at most {' and '.join(texts) or 'all that there is'}"


class Checked(msgspec.Struct):
    """What a check found out: the columns of every view and sink, Catalyst's plan as text, and what is not exactly once."""

    views: dict[str, dict[str, str]]
    sinks: dict[str, dict[str, str]]
    plan: str
    deliveries: list[str]  # a line for each topic that is written otherwise than exactly once
    readings: int  # how often a batch of a source is read
    limits: list[str]  # a line for each source: how much of it a batch takes at most


def check(spec: Spec, spark: SparkSession) -> Checked:
    """Everything that can be known without running a pipeline. Nothing is written, nothing of a topic read.

    Raises PipelineError for the first thing that would not run.
    """
    folder = folder_of(spec)
    owner = folder.check_owner(spec)
    preflight(spec)
    session = session_for(spec, spark)
    views = build_views(spec, session, BatchWatermark(session, folder))
    outputs = collect_outputs(spec, views)
    sinks: dict[str, dict[str, str]] = {}
    for name, sink in spec.sinks.items():
        rows = views[sink.input].frame
        sinks[name] = dict(rows.select(*sink_columns(spec, name, rows)).dtypes)
    check_streaming(spec, session, outputs.frame)
    if owner is not None:
        writers = plan_writers(spec, owner.sinks, letters=outputs.letters)
        check_open_batch(spec, folder, owner.sinks, writers, change_sinks=False)
    check_tables(spec, views)
    return Checked(
        views={name: dict(view.frame.dtypes) for name, view in views.items()},
        sinks=sinks,
        plan=outputs.frame._jdf.queryExecution().analyzed().treeString(),
        deliveries=_deliveries(spec),
        readings=outputs.readings,
        limits=[_limits(name, source) for name, source in spec.sources.items()],
    )

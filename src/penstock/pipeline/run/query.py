"""Starts the streaming query of a pipeline, or checks that it would start.

One sink that takes every row is Spark's own to write. Everything else goes batch by batch: the batch is cached while
it is written to one sink after the other, each under its own name and the batch's number. A sink that has the batch
already changes nothing, so a batch that was interrupted between two sinks is simply run again.
"""

import json
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.options import server_options
from penstock.pipeline.sink.options import Delivery, offered, parse_options
from penstock.pipeline.spec.options import table_options, topic_options
from penstock.pipeline.spec.spec import Spec

from .causes import spark_sentence
from .folder import Folder
from .outputs import Outputs, collect_outputs, dead_letters, dead_letters_alone, topic_rows, with_dead_letters
from .preflight import preflight
from .views import View, build_views, session_for

TOPICS: Final = "penstock"
TABLES: Final = "penstock_lake"
DEAD_LETTERS: Final = "deadLetterTopic"
DEAD: Final = "dead-letters"  # part of a writer's name


def start_query(
    spec: Spec, views: dict[str, View], outputs: Outputs, checkpoint: Path, *, once: bool
) -> StreamingQuery:
    """Start it; from here on the checkpoint is in use."""
    if is_direct(spec, outputs):
        ((name, sink),) = spec.sinks.items()
        frame = outputs.frame
        if sink.path:
            writer = frame.writeStream.format(TABLES).options(**table_options(spec, sink))
        else:
            rows = topic_rows(spec, name, sink, frame)
            writer = rows.writeStream.format(TOPICS).options(**topic_options(spec, sink))
    else:
        writer = outputs.frame.writeStream.foreachBatch(BatchWriter(spec, outputs, checkpoint))
    writer = writer.outputMode(spec.output).option("checkpointLocation", str(checkpoint)).queryName(spec.name)
    writer = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=spec.trigger)
    query: StreamingQuery = writer.start()
    return query


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


def is_direct(spec: Spec, outputs: Outputs) -> bool:
    """Whether Spark writes without us in between; into a Python sink it writes no updates."""
    return len(spec.sinks) == 1 and not outputs.mixed and spec.output != "update"


def query_id(checkpoint: Path) -> str:
    """The id that a query has as long as its checkpoint lives."""
    return str(json.loads((checkpoint / "metadata").read_text("utf-8"))["id"])


class BatchWriter:
    """Writes a batch to all sinks, dead letters in the commit of the first topic."""

    def __init__(self, spec: Spec, outputs: Outputs, checkpoint: Path) -> None:
        self._spec = spec
        self._outputs = outputs
        self._checkpoint = checkpoint

    def __call__(self, batch: DataFrame, number: int) -> None:
        query = query_id(self._checkpoint)
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            if len(self._spec.sinks) > 1:
                batch.count()  # an expectation that fails must do so before anything is written
            self._write(batch, number, query)
        finally:
            batch.unpersist()

    def _write(self, batch: DataFrame, number: int, query: str) -> None:
        spec = self._spec
        dead = self._outputs.dead(batch)
        waiting = dead_letters(dead) if dead is not None else None
        for name, sink in spec.sinks.items():
            rows = self._outputs.rows(batch, sink.input)
            writer = f"{query}-{name}"
            if sink.path:
                _save(rows, TABLES, table_options(spec, sink), writer, number)
                continue
            rows, options = topic_rows(spec, name, sink, rows), topic_options(spec, sink)
            # Rows that name their topic cannot also say where they came from.
            if waiting is not None and sink.topic:
                rows, waiting = with_dead_letters(rows, waiting), None
                options[DEAD_LETTERS] = spec.dead_letters
            _save(rows, TOPICS, options, writer, number)
        if waiting is not None:
            options = server_options(spec.server) | dict.fromkeys(("topic", DEAD_LETTERS), spec.dead_letters)
            _save(dead_letters_alone(waiting), TOPICS, options, f"{query}-{DEAD}", number)


def _save(rows: DataFrame, format: str, options: dict[str, Any], writer: str, batch: int) -> None:
    target = rows.write.format(format).mode("append").options(**options)
    target.option("writer", writer).option("batch", str(batch)).save()


def _deliveries(spec: Spec) -> list[str]:
    """A line for each topic that is written otherwise than exactly once. Raises PipelineError for what the server lacks."""
    with Stages(spec.server, retry_s=0) as client:
        staged = client.open_topics([]).staged
    lines: list[str] = []
    for name, sink in spec.sinks.items():
        if not sink.path:
            delivery = offered(parse_options(topic_options(spec, sink), streaming=True), staged=staged)
            if delivery is not Delivery.EXACTLY_ONCE:
                lines.append(f"[sinks.{name}] delivery: {delivery}\n")
    return lines


class Checked(msgspec.Struct):
    """What a check found out: the columns of every view and sink, and the plan, as text."""

    views: dict[str, dict[str, str]]
    sinks: dict[str, dict[str, str]]
    plan: str
    direct: bool
    branches: int


def check(spec: Spec, spark: SparkSession) -> Checked:
    """Everything that can be known without running a pipeline. Nothing is written, nothing of a topic read.

    Raises PipelineError for the first thing that would not run.
    """
    folder = Folder(spec.home)
    folder.check_owner(spec)
    preflight(spec)
    session = session_for(spec, spark)
    views = build_views(spec, session, folder.checkpoint)
    outputs = collect_outputs(spec, views)
    sinks: dict[str, dict[str, str]] = {}
    for name, sink in spec.sinks.items():
        rows = views[sink.input].frame
        sinks[name] = dict((rows if sink.path else topic_rows(spec, name, sink, rows)).dtypes)
    check_streaming(spec, session, outputs.frame)
    return Checked(
        views={name: dict(view.frame.dtypes) for name, view in views.items()},
        sinks=sinks,
        plan="".join([outputs.frame._jdf.queryExecution().analyzed().treeString(), *_deliveries(spec)]),
        direct=is_direct(spec, outputs),
        branches=outputs.branches,
    )

"""Starts the streaming query of a pipeline, or checks that it would start.

Every batch is one job, whose tasks write to all sinks, each under its writer's name (`writers`) and the batch's number, and
then one commit for each sink (`writing`). A sink that has the batch already changes nothing, so a batch that was
interrupted between two sinks is simply run again.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Source, Spec
from penstock.pipeline.versions import map_in_arrow

from .causes import spark_sentence
from .folder import Folder, SinkWriter
from .lateness import BatchWatermark
from .outputs import Outputs, collect_outputs, sink_columns
from .preflight import preflight
from .sinks import BatchWriter, deliveries, open_sinks
from .state import folder_of
from .tables import check_tables
from .upkeep import Upkeep
from .views import build_views, session_for
from .writers import check_open_batch, plan_writers
from .writing import RESULT


def start_query(
    spec: Spec,
    spark: SparkSession,
    outputs: Outputs,
    writers: Mapping[str, SinkWriter],
    watermark: BatchWatermark,
    folder: Folder,
    upkeep: Upkeep | None,
    *,
    once: bool,
) -> StreamingQuery:
    """Start it; from here on the checkpoint is in use. `upkeep` learns of each batch that is over."""
    sinks = open_sinks(spec, spark, outputs, writers)
    writer = BatchWriter(spec, sinks, watermark, folder, upkeep)
    frame = outputs.frame if sinks.at_once else map_in_arrow(outputs.frame, writer.write, RESULT)
    stream = frame.writeStream.foreachBatch(writer).outputMode(spec.output)
    stream = stream.option("checkpointLocation", folder.checkpoint_url).queryName(spec.name)
    stream = stream.trigger(availableNow=True) if once else stream.trigger(processingTime=spec.trigger)
    query: StreamingQuery = stream.start()
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


def _limits(name: str, source: Source) -> str:
    """How much of a source a batch takes at most."""
    if source.format:
        return f"[sources.{name}] a batch takes what the options of format {source.format} say"
    rows, size = source.max_rows_per_batch, source.max_bytes_per_batch
    texts = [f"{rows:,} rows"] if rows else []
    texts += [f"{size / (1 << 20):,.6g} MiB"] if size else []
    return f"[sources.{name}] a batch takes at most {' and '.join(texts) or 'all that there is'}"


class Checked(msgspec.Struct):
    """What a check found out: the columns of every view and sink, Catalyst's plan as text, and how sinks are written."""

    views: dict[str, dict[str, str]]
    sinks: dict[str, dict[str, str]]
    plan: str
    deliveries: list[str]  # a line for each sink
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
        deliveries=deliveries(spec, session),
        readings=outputs.readings,
        limits=[_limits(name, source) for name, source in spec.sources.items()],
    )

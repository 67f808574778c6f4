"""`check`: everything that can be known without running a pipeline. Nothing is written, nothing of a topic read."""

from typing import Any

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from .causes import spark_sentence
from .folder import Folder
from .outputs import collect_outputs
from .preflight import preflight
from .query import is_direct
from .runner import session_for
from .shape import topic_rows
from .views import build_views


class Checked(msgspec.Struct):
    """What a check found out: the columns of every view and sink, and the plan, as text."""

    views: dict[str, dict[str, str]]
    sinks: dict[str, dict[str, str]]
    plan: str
    direct: bool
    branches: int


def check(spec: Spec, spark: SparkSession) -> Checked:
    """Raises PipelineError for the first thing that would not run."""
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
    _check_streaming(spec, session, outputs.frame)
    return Checked(
        views={name: dict(view.frame.dtypes) for name, view in views.items()},
        sinks=sinks,
        plan=_plan(outputs.frame),
        direct=is_direct(spec, outputs),
        branches=outputs.branches,
    )


def _check_streaming(spec: Spec, session: SparkSession, frame: DataFrame) -> None:
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


def _plan(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().analyzed().treeString()
    return text

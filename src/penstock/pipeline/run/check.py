"""`check`: everything that can be known without running a pipeline. Nothing is written, nothing of a topic read."""

import msgspec
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.spec.spec import Spec

from .folder import Folder
from .outputs import collect_outputs
from .preflight import preflight
from .query import check_streaming, is_direct
from .runner import session_for
from .topic_rows import topic_rows
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
    check_streaming(spec, session, outputs.frame)
    return Checked(
        views={name: dict(view.frame.dtypes) for name, view in views.items()},
        sinks=sinks,
        plan=_plan(outputs.frame),
        direct=is_direct(spec, outputs),
        branches=outputs.branches,
    )


def _plan(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().analyzed().treeString()
    return text

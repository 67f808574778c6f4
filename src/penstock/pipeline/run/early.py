"""What can be known of a pipeline's columns and functions before Spark is started: a mistake there is said at once.

The columns of sources are known, and of the steps that leave them as they are. What SQL makes of them, Spark alone
knows. Nothing is checked here that is not checked again when the pipeline is planned.
"""

from pyspark.sql.types import StructType

from penstock.pipeline.source.query import table_schema
from penstock.pipeline.spec.options import source_options
from penstock.pipeline.spec.spec import Spec, Step

from .checks import HIDDEN
from .outputs import check_column
from .views import check_columns, check_time, load_callable, named

_COLUMNS = ("key", "properties", "event_time", "ordering_key", "topic_column")


def check_early(spec: Spec) -> None:
    """Raises PipelineError, which names the place. Asks the server for schemas; imports the user's modules."""
    known: dict[str, StructType] = {}
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            schema = known[name] = table_schema(source_options(spec, name, source))
            if source.watermark is not None:
                check_time(schema, source.watermark.column)
    for step in spec.steps:
        with named(spec, f"[[steps]] {step.name}"):
            _check_step(spec, step, known)
    for name, sink in spec.sinks.items():
        if sink.input in known:
            there = [column for column in known[sink.input].names if column not in HIDDEN]
            values = (sink.value,) if isinstance(sink.value, str) else sink.value
            named_columns = [("value", column) for column in values if column]
            named_columns += [(key, column) for key in _COLUMNS if (column := getattr(sink, key))]
            for key, column in named_columns:
                check_column(spec, name, key, column, there)


def _check_step(spec: Spec, step: Step, known: dict[str, StructType]) -> None:
    for key in ("python", "stateful"):
        if text := getattr(step, key):
            load_callable(spec.folder, text, key)
    before = known.get(step.inputs[0]) if step.inputs else None
    if before is None:
        return
    check_columns(before, "keys", step.keys)
    if step.deduplicate:
        check_columns(before, "deduplicate", step.deduplicate)
        known[step.name] = before
        if step.watermark is not None:
            check_time(before, step.watermark.column)

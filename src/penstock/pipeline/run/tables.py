"""Whether the rows of a pipeline can go into its tables, as they are now: looked at before anything is written."""

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.options import table_options
from penstock.pipeline.spec.spec import Spec

from .outputs import sink_columns
from .views import View


def check_tables(spec: Spec, views: dict[str, View]) -> None:
    """Raises PipelineError, which names the sink, for a type that no table keeps and for rows that do not fit a table."""
    for name, sink in spec.sinks.items():
        if not sink.path:
            continue
        from penstock.pipeline.lake.options import write_options
        from penstock.pipeline.lake.sink import planned

        rows = views[sink.input].frame
        columns = rows.select(*sink_columns(spec, name, rows)).schema
        try:
            planned(write_options(table_options(spec, sink)), columns)
        except PipelineError as error:
            place = f"{spec.file}: [sinks.{name}] (table {sink.path})"
            raise PipelineError(f"{place}: {error.message}", error.kind) from None

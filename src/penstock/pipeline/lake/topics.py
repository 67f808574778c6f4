"""Option `archive` of the source `penstock`: one query over an archive and the logs that it was made from."""

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from penstock.pipeline.rows import columns
from penstock.pipeline.source.batch import TopicReader
from penstock.pipeline.source.offsets import Log, ranges
from penstock.pipeline.source.tasks import raw_include, splits_for

from .span import Span


class ArchiveReader(TopicReader):
    """Reads what the archive has from its table, and the rest from the server."""

    def tasks(self, logs: Sequence[Log]) -> list[InputPartition]:
        """The tasks over table and logs."""
        options, plan = self._options, self._plan
        span = Span(options.archive, fail_on_data_loss=options.fail_on_data_loss)
        reached = span.reach_back(logs)
        wanted = ranges(reached, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        archived, live = span.cut(wanted)
        raw = columns.arrow_schema(raw_include(options.include, plan))
        old = span.splits(archived, raw, options.records_max, include=options.include, plan=plan)
        return [*old, *splits_for(options, live, plan)]

"""The data source `penstock`: topics as rows, in batches; Spark's Python data source API."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.client.http import HttpClient

from .discovery import find_logs
from .offsets import Log, ranges, times
from .options import parse_options
from .schema import carried, check_schema, plan_for
from .tasks import read_split, splits_for


class TopicReader(DataSourceReader):
    """Reads the messages that are there when the query is planned.

    The driver asks the server for offsets and cuts ranges; each task reads one.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_options(carried(schema, given), stream=False)
        self._plan = plan_for(self._options, schema)
        check_schema(schema, self._options, self._plan)

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        with HttpClient(options.server) as client:
            logs = find_logs(client, options, times(options.start, options.end))
        return self.tasks(logs)

    def tasks(self, logs: Sequence[Log]) -> list[InputPartition]:
        """The tasks that read what the options want of these logs."""
        options = self._options
        wanted = ranges(logs, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        return splits_for(options, wanted, self._plan)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_split(partition)


def names_archive(given: Mapping[str, str], schema: StructType) -> bool:
    """Whether a query's options name an archive, which is read along with the logs."""
    return bool(parse_options(carried(schema, given), stream=False).archive)

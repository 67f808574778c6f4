"""The data source `penstock`: topics as rows, in batches; Spark's Python data source API.

The driver asks the server for offsets and cuts ranges; each task fetches the raw entries of one range and
decodes them where it runs. What a task needs travels in its partition, so that a stream reader can share it.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.rows import columns
from penstock.pipeline.rows.rows import Place, decode

from .declared import carried, carry, given_options
from .discovery import find_logs
from .fetch import fetch
from .offsets import Range, ranges, times
from .options import Options, parse_options
from .splits import split


class Split(InputPartition):
    """One task: a range of offsets and how to read it."""

    def __init__(
        self, server: Access, wanted: Range, include: tuple[str, ...], *, fail_on_data_loss: bool
    ) -> None:
        super().__init__(None)
        self.server = server
        self.wanted = wanted
        self.include = include
        self.fail_on_data_loss = fail_on_data_loss


def table_schema(given: Mapping[str, str]) -> StructType:
    """The columns that a query's options make."""
    options, declared = given_options(given)
    schema = columns.spark_schema(parse_options(options).include)
    return carry(schema, options) if declared else schema


class TopicReader(DataSourceReader):
    """Reads the messages that are there when the query is planned."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_options(carried(schema, given))
        check_schema(schema, self._options)

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        with HttpClient(options.server) as client:
            logs = find_logs(client, options, times(options.start, options.end))
        wanted = ranges(logs, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        pieces = split(wanted, rows_max=options.records_max, pieces_min=options.partitions_min)
        return [
            Split(options.server, piece, options.include, fail_on_data_loss=options.fail_on_data_loss)
            for piece in pieces
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_split(partition)


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; Spark makes one without a range of its own where there is nothing to read."""
    if not isinstance(partition, Split):
        return
    wanted = partition.wanted
    place = Place(wanted.topic, wanted.partition, wanted.ledger, wanted.partitioned)
    with HttpClient(partition.server) as client:
        frames = fetch(client, wanted, fail_on_data_loss=partition.fail_on_data_loss)
        yield from decode(place, frames, wanted.start, wanted.end, partition.include)


def check_schema(schema: StructType, options: Options) -> None:
    """A schema that the user gave must be the table's own: columns are chosen with `include`."""
    given, expected = schema.simpleString(), columns.spark_schema(options.include).simpleString()
    if given != expected:
        raise PipelineError(
            f"the schema given is {given}, but these options make {expected}; leave it out, and choose columns"
            " with option include"
        )

"""The data source `penstock`: topics as rows, in batches; Spark's Python data source API.

The driver asks the server for offsets and cuts ranges; each task fetches the raw entries of one range and
decodes them where it runs. What a task needs travels in its partition, so that a stream reader can share it.
"""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.decode.typed import VERSION, TypedRows
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.rows import columns
from penstock.pipeline.rows.rows import Place, decode

from .declared import carried, carry, given_options
from .discovery import find_logs
from .elsewhere import Elsewhere
from .fetch import fetch
from .offsets import Log, Range, ranges, times
from .options import Options, parse_options
from .planned import plan_for, table_columns
from .splits import split


class Split(InputPartition):
    """One task: a range of offsets and how to read it."""

    def __init__(
        self,
        server: Access,
        wanted: Range,
        include: tuple[str, ...],
        *,
        fail_on_data_loss: bool,
        plan: Plan | None = None,
    ) -> None:
        super().__init__(None)
        self.server = server
        self.wanted = wanted
        self.include = include
        self.fail_on_data_loss = fail_on_data_loss
        self.plan = plan


def table_schema(given: Mapping[str, str]) -> StructType:
    """The columns that a query's options make."""
    options, declared = given_options(given)
    parsed = parse_options(options)
    schema = table_columns(parsed, plan_for(parsed))
    return carry(schema, options) if declared else schema


class TopicReader(DataSourceReader):
    """Reads the messages that are there when the query is planned."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_options(carried(schema, given), stream=False)
        self._plan = plan_for(self._options, schema)
        check_schema(schema, self._options, self._plan)

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        with HttpClient(options.server) as client:
            logs = find_logs(client, options, times(options.start, options.end))
        if options.archive:
            return spanning(options, logs, self._plan)
        wanted = ranges(logs, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        pieces = split(wanted, rows_max=options.records_max, pieces_min=options.partitions_min)
        return [split_for(options, piece, self._plan) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_split(partition)


def spanning(options: Options, logs: list[Log], plan: Plan | None = None) -> list[InputPartition]:
    """The tasks of a query over an archive and the logs."""
    from penstock.pipeline.lake.span import Span  # here: most queries need no tables

    span = Span(options.archive, fail_on_data_loss=options.fail_on_data_loss)
    reached = span.reach_back(logs)
    wanted = ranges(reached, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
    archived, live = span.cut(wanted)
    raw = columns.arrow_schema(raw_include(options.include, plan))
    old = span.splits(archived, raw, options.records_max, include=options.include, plan=plan)
    new = split(live, rows_max=options.records_max, pieces_min=options.partitions_min)
    return [*old, *(split_for(options, piece, plan) for piece in new)]


def split_for(options: Options, wanted: Range, plan: Plan | None = None) -> Split:
    """A task of a query."""
    return Split(
        options.server, wanted, options.include, fail_on_data_loss=options.fail_on_data_loss, plan=plan
    )


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task; Spark makes one without a range of its own where there is nothing to read."""
    if isinstance(partition, Elsewhere):
        yield from typed(partition.rows(), partition.place, partition.include, partition.plan)
    if not isinstance(partition, Split):
        return
    wanted = partition.wanted
    place = Place(wanted.topic, wanted.partition, wanted.ledger, wanted.partitioned)
    with HttpClient(partition.server) as client:
        frames = fetch(client, wanted, fail_on_data_loss=partition.fail_on_data_loss)
        include = raw_include(partition.include, partition.plan)
        rows = decode(place, frames, wanted.start, wanted.end, include)
        yield from typed(rows, place, partition.include, partition.plan)


def raw_include(include: tuple[str, ...], plan: Plan | None) -> tuple[str, ...]:
    """The further columns that decoding starts from: it needs each row's schema version."""
    return include if plan is None or VERSION in include else (*include, VERSION)


def typed(
    rows: Iterable[pa.RecordBatch], place: Place, include: tuple[str, ...], plan: Plan | None
) -> Iterator[pa.RecordBatch]:
    """Messages as the query's options want their values."""
    if plan is None:
        yield from rows
        return
    decoder = TypedRows(plan, place, keep_version=VERSION in include)
    for batch in rows:
        yield decoder.apply(batch)


def check_schema(schema: StructType, options: Options, plan: Plan | None = None) -> None:
    """A schema that the user gave must be the table's own: columns are chosen with `include`."""
    given, expected = schema.simpleString(), table_columns(options, plan).simpleString()
    if given != expected:
        raise PipelineError(
            f"the schema given is {given}, but these options make {expected}; leave it out, and choose columns"
            " with option include"
        )

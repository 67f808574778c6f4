"""A query over topics: the logs it reads, asked of the server in one call, its columns, and the reader of a batch.

A table may be declared in SQL: `CREATE TABLE t USING penstock OPTIONS (…)`. Spark asks for such a table's schema with
the options, among properties of its own, but reads it without any: what it hands to the reader is the schema alone.
So the schema carries the options, as metadata of its first column. Only the schemas of declared tables do.
"""

import json
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.garbage import freeze_modules
from penstock.pipeline.http.calls import Caller, Calls
from penstock.pipeline.http.logs import Log, Look, look
from penstock.pipeline.rows import columns

from .cluster import KafkaTopic, kafka_topics
from .filters import Filters, take
from .offsets import ranges, times
from .options import Options, parse_options
from .tasks import read_split, splits_for

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from penstock.pipeline.decode.plan import Plan

log = logging.getLogger(__name__)

_METADATA: Final = "penstock.options"

# The module of Spark's workers that ask for `pushFilters`.
_PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"

# A declared table's properties have each option twice, once behind this prefix; all else there is Spark's.
_PREFIX: Final = "option."


def ask(
    client: Caller,
    options: Options,
    *,
    times: Sequence[int] = (),
    seen: str | None = None,
    wait_ms: int = 0,
) -> Look:
    """The logs of the query as they are now, with the offsets of `times`; None if nothing changed since `seen`."""
    pattern = options.pattern
    patterns = [] if pattern is None else [(pattern.namespace, pattern.local)]
    try:
        found = look(client, list(options.topics), patterns, times=times, seen=seen, wait_ms=wait_ms)
    except PenstockError as error:
        if error.kind is not ErrorKind.NOT_SUPPORTED:
            raise
        raise PipelineError(f"topics cannot be read here: {error.message}", error.kind) from None
    if found.logs is None:
        return found
    wanted = [log for log in found.logs if options.wants(TopicName.parse(log.topic), log.partition)]
    return found._replace(logs=wanted)


def check_topics(found: Look) -> None:
    """Raise PipelineError for a topic that is named and not there."""
    if found.missing:
        raise PipelineError(f"topic {found.missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND)


def check_there(options: Options, found: Look) -> list[Log]:
    """The logs found. Raises PipelineError for a topic or partition that is named and not there."""
    check_topics(found)
    logs = found.logs or []
    there = {log.key for log in logs}
    for topic, wanted in options.topics.items():
        for partition in wanted or ():
            if (str(topic), partition) not in there:
                raise PipelineError(
                    f"topic {topic} has no partition {partition}", ErrorKind.PARTITION_NOT_FOUND
                )
    return logs


def given_options(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The user's own options, and whether they are those of a declared table."""
    declared = {key.removeprefix(_PREFIX): text for key, text in options.items() if key.startswith(_PREFIX)}
    return (declared, True) if declared else (dict(options), False)


def carry(schema: StructType, options: Mapping[str, str]) -> StructType:
    """`schema` with the options in it."""
    first = schema.fields[0]
    metadata = {_METADATA: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, metadata=metadata), *schema.fields[1:]])


def carried(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options to read with: those that the schema carries, and the reader's own, which win."""
    found: dict[str, Any] = {}
    if schema.fields and _METADATA in (schema.fields[0].metadata or {}):
        found = json.loads(schema.fields[0].metadata[_METADATA])
    return found | given_options(options)[0]


def table_schema(given: Mapping[str, str]) -> StructType:
    """The columns that a query's options make."""
    options, declared = given_options(given)
    parsed = parse_options(options)
    schema = _table_columns(parsed, plan_for(parsed))
    freeze_modules("schema")
    return carry(schema, options) if declared else schema


def check_schema(schema: StructType, options: Options, plan: "Plan | None" = None) -> None:
    """A schema that the user gave must be the table's own: columns are chosen with `include`."""
    given, expected = schema.simpleString(), _table_columns(options, plan).simpleString()
    if given != expected:
        raise PipelineError(
            f"the schema given is {given}, but these options make {expected}; leave it out, and choose columns"
            " with option include"
        )


def plan_for(options: Options, given: StructType | None = None) -> "Plan | None":
    """How the query's values are decoded, planned once on the driver; None if they stay bytes.

    `given` is the schema that an earlier plan made: Spark asks for it first, and reads with it later. Raises
    PipelineError, as `make_plan`.
    """
    if options.typed is None:
        return None
    from penstock.pipeline.decode.plan import make_plan

    with Calls(options.server) as client:
        topics = [str(topic) for topic in options.topics]
        if options.pattern is not None:
            topics = sorted({state.topic for state in ask(client, options).logs or []})
        else:
            check_there(options, ask(client, options))
        return make_plan(client, options.typed, options.server, topics, given)


def _table_columns(options: Options, plan: "Plan | None") -> StructType:
    plain = columns.spark_schema(options.include)
    return plain if plan is None else plan.columns(plain)


class TopicReader(DataSourceReader):
    """Reads the messages that are there when the query is planned.

    The driver asks the server for offsets and cuts ranges; each task reads one.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_options(carried(schema, given), stream=False)
        self._plan = plan_for(self._options, schema)
        self._kafka: dict[str, KafkaTopic] = {}  # with fetch=direct, known once the query is planned
        check_schema(schema, self._options, self._plan)

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        if any(ms > time.time() * 1000 for ms in times(options.start)):
            log.warning("option startingTimestamp is in the future: there is nothing to read")
        with Calls(options.server) as client:
            found = ask(client, options, times=times(options.start, options.end))
            logs = check_there(options, found)
            if options.kafka:
                self._kafka = kafka_topics(client, (log.topic for log in logs))
        tasks = self.tasks(logs)
        freeze_modules("read planning")
        return tasks

    def tasks(self, logs: Sequence[Log]) -> list[InputPartition]:
        """The tasks that read what the options want of these logs."""
        options = self._options
        wanted = ranges(logs, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        return splits_for(options, wanted, self._plan, kafka=self._kafka)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_split(partition)


class FilteringReader(TopicReader):
    """A reader to which Spark pushes filters down."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema)
        self._filters = Filters()

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        """Take the filters on partition, offset and timestamp; returns those that are left to Spark."""
        self._filters, left = take(filters)
        return left

    def tasks(self, logs: Sequence[Log]) -> list[InputPartition]:
        """The tasks that read what options and filters want of these logs."""
        options = self._options
        wanted = ranges(logs, options.start, options.end, fail_on_data_loss=options.fail_on_data_loss)
        return splits_for(options, self._filters.cut(wanted), self._plan, self._filters.times, self._kafka)


def asks_for_filters() -> bool:
    """Whether the process of Spark that asks for a reader pushes filters down.

    Where the session has `spark.sql.python.filterPushdown.enabled` off, Spark fails for a reader that takes filters; where it
    is on, it asks in processes of their own.
    """
    return _PUSHING in sys.argv or getattr(sys.modules["__main__"].__spec__, "name", "") == _PUSHING


def reader_for(given: Mapping[str, str], schema: StructType) -> TopicReader:
    """A reader for the process of Spark that asks for one.

    Spark 4.3 keeps what a reader planned with the filters of one query for the next query of the same DataFrame, which may have
    others or none, and would then lack rows: so only `pushFilters` has the source apply filters.
    """
    pushes = asks_for_filters() and parse_options(carried(schema, given), stream=False).push
    return (FilteringReader if pushes else TopicReader)(given, schema)

"""Sources, tables and sinks of Spark's other formats, and sinks that are functions of the user's.

Spark, or the function, writes a batch from the driver. Two formats recognize a repeated batch: Delta by `txnAppId` and
`txnVersion`, Iceberg by properties of its snapshots. All others have it twice if something fails after they were written.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j has no types
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.model.schema import SchemaInfo
from penstock.pipeline.decode.frame import decode_column
from penstock.pipeline.decode.framed import Writers
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import revealed
from penstock.pipeline.spec.options import keeps_bytes
from penstock.pipeline.spec.spec import Lookup, Sink, Source, Spec

from .failures import cause_of
from .schemas import schema_for, writers_for

# Packages of formats that Spark comes without, for the Scala that PySpark is built with.
_PACKAGES: Final = {
    "kafka": f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}",
    "avro": f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}",
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
    "hudi": "org.apache.hudi:hudi-spark4.0-bundle_2.13:VERSION",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_2.13:VERSION",
}

# Iceberg's names for a property of a snapshot, in a write and in the snapshot.
_SNAPSHOT: Final = "snapshot-property."
_WRITER, _BATCH = "penstock.writer", "penstock.batch"


def read_format(spec: Spec, spark: SparkSession, given: Source | Lookup, *, stream: bool) -> DataFrame:
    """The rows of a source, decoded as it says, or those of a table. Raises PipelineError."""
    check_format(spark, given.format)
    reader: Any = (spark.readStream if stream else spark.read).format(given.format)
    reader = reader.options(**_revealed(given.options))
    if given.schema:
        reader = reader.schema(given.schema)
    try:
        frame: DataFrame = reader.load()
    except PySparkException as error:
        sentence = cause_of(error).sentence
        if stream and "stream" in sentence.lower():
            sentence += f"; a format without streams is read by [tables.…] format = '{given.format}'"
        raise PipelineError(sentence) from None
    if not isinstance(given, Source) or given.decode == "none":
        return frame
    reader = schema_for(spec, given.reader_schema)
    return decoded(given, frame, reader, writers_for(spec, given.reader_schema))


def decoded(
    source: Source, frame: DataFrame, schema: SchemaInfo, writers: Writers | None = None
) -> DataFrame:
    """The rows of a foreign source with its `column` decoded."""
    return decode_column(
        frame,
        source.column,
        schema,
        flat=source.decode == "flat",
        keeps_broken=source.on_bad_value != "fail",
        keep_bytes=keeps_bytes(source),
        writers=writers,
    )


def check_format(spark: SparkSession, format: str) -> None:
    """Raises PipelineError for a format that the session does not have, with the package to add."""
    jvm: Any = spark._jvm
    sources = jvm.org.apache.spark.sql.execution.datasources.DataSource
    state = spark._jsparkSession.sessionState()
    try:
        if not state.dataSourceManager().dataSourceExists(format):
            sources.lookupDataSource(format, state.conf())
    except (PySparkException, Py4JJavaError) as error:
        package = _PACKAGES.get(format.lower())
        way = f'"spark.jars.packages" = "{package or "GROUP:NAME:VERSION"}" in [spark]'
        if package is None:
            way = f"the Python package that has it, or {way}"
        raise PipelineError(
            f"format: this Spark has no format {format}: add {way} ({cause_of(error).sentence})"
        ) from None


def _revealed(options: Mapping[str, str]) -> dict[str, str]:
    return {name: revealed(name, text) for name, text in options.items()}


def delivery_of(sink: Sink) -> str:
    """How often a foreign sink has a row, and why."""
    match "python" if sink.python else sink.format.lower():
        case "delta":
            return "exactly_once, by txnAppId and txnVersion of delta"
        case "iceberg":
            return "exactly_once, by a property of iceberg's snapshots"
        case "python":
            return "at_least_once, unless the function looks at the batch's number"
    return f"at_least_once: {sink.format} does not know a batch that is repeated"


class ForeignSink:
    """A sink that the driver writes, as the writer `suffix` of a query."""

    def __init__(
        self, spark: SparkSession, sink: Sink, suffix: str, function: Callable[[DataFrame, int], Any] | None
    ) -> None:
        """`function` is that of `python`. Raises PipelineError for a format that is not there."""
        self.suffix = suffix
        self.exactly_once = delivery_of(sink).startswith("exactly_once")
        self._spark = spark
        self._sink = sink
        self._function = function
        if function is None:
            check_format(spark, sink.format)

    def write(self, rows: DataFrame, query: str, batch: int, *, repeated: bool) -> None:
        """Write a batch. `repeated`: the sink may have it already."""
        if self._function is not None:
            self._function(rows, batch)
            return
        sink, writer = self._sink, f"{query}{self.suffix}"
        options = _revealed(sink.options)
        match sink.format.lower():
            case "delta":
                options |= {"txnAppId": writer, "txnVersion": str(batch)}
            case "iceberg":
                if repeated and self._has(options, writer, batch):
                    return
                options |= {f"{_SNAPSHOT}{_WRITER}": writer, f"{_SNAPSHOT}{_BATCH}": str(batch)}
        rows.write.format(sink.format).mode(sink.mode).options(**options).save()

    def _has(self, options: Mapping[str, str], writer: str, batch: int) -> bool:
        """Whether a snapshot of the Iceberg table is of a writer's batch, or a later one."""
        path = options.get("path", "")
        snapshots = self._spark.read.format("iceberg").load(f"{path}{'#' if '/' in path else '.'}snapshots")
        its = snapshots.where(snapshots["summary"][_WRITER] == writer)
        return bool(its.where(its["summary"][_BATCH].cast("bigint") >= batch).limit(1).count())

"""The sources of a pipeline as bounded reads: the newest messages, or those of a range of time.

A bounded read has no subscription and no checkpoint, and its steps run as a batch.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.logs import Log
from penstock.pipeline.source.offsets import write
from penstock.pipeline.source.options import parse_options
from penstock.pipeline.source.query import TopicReader, ask, check_there, table_schema
from penstock.pipeline.spec.options import source_options
from penstock.pipeline.spec.spec import Spec
from penstock.pipeline.versions import arrow_schema

from .formats import read_format
from .views import named

_OF_STREAMS: Final = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "subscription",
)
_NEWEST_FIRST: Final[Any] = [("timestamp", "descending"), ("offset", "descending")]


def batch_options(spec: Spec, name: str) -> dict[str, str]:
    """The options of `format("penstock")` for a bounded read of a source, without its bounds."""
    options = source_options(spec, name, spec.sources[name])
    return {key: text for key, text in options.items() if key not in _OF_STREAMS}


def newest(spec: Spec, spark: SparkSession, count: int) -> dict[str, DataFrame]:
    """By source, at most `count` messages, the newest first; of another format the first rows that a batch read finds.

    This process reads the messages itself and hands them to Spark: few rows need no task of Spark's and no Python process for
    one, which take seconds to start.
    """
    frames = {}
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            if source.format:
                frames[name] = read_format(spec, spark, source, stream=False).limit(count)
                continue
            logs = logs_of(spec, name)
            starts = [(log, max(log.earliest, log.latest - count)) for log in logs]
            options = batch_options(spec, name) | {
                "failOnDataLoss": "false",
                "startingOffsets": _listed(starts),
                "endingOffsets": _listed([(log, log.latest) for log in logs]),
            }
            columns = table_schema(options)
            reader = TopicReader(options, columns)
            found, held = [], 0
            for task in reader.partitions():
                for batch in reader.read(task):
                    found.append(batch)
                    held += batch.num_rows
                    if held > 2 * count:  # no more than that is held
                        found, held = _newest(found, count), count
            table = pa.Table.from_batches(_newest(found, count), arrow_schema(columns))
            frames[name] = spark.createDataFrame(table, columns)
    return frames


def _newest(batches: Sequence[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    if not batches:
        return []
    found: list[pa.RecordBatch] = (
        pa.Table.from_batches(batches).sort_by(_NEWEST_FIRST).slice(0, count).to_batches()
    )
    return found


def between(spec: Spec, spark: SparkSession, start_ms: int, end_ms: int | None) -> dict[str, DataFrame]:
    """By source, the messages published from a time on and before another; None: until now."""
    frames = {}
    for name in spec.sources:
        with named(spec, f"[sources.{name}]"):
            reader = spark.read.format("penstock").options(**batch_options(spec, name))
            reader = reader.option("startingTimestamp", str(start_ms))
            if end_ms is not None:
                reader = reader.option("endingTimestamp", str(end_ms))
            frames[name] = reader.load()
    return frames


def check_kept(spec: Spec, since_ms: int) -> None:
    """Raises PipelineError if messages published at or after a time may have been removed by retention."""
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            for log in logs_of(spec, name, since_ms):
                if source.fail_on_data_loss and 0 < log.earliest == log.at[since_ms]:
                    raise PipelineError(
                        f"{log.topic}, partition {log.partition}: the first message that is kept, at offset"
                        f" {log.earliest}, is already in the range: earlier ones of the range may have been removed; begin later,"
                        " or say fail_on_data_loss = false"
                    )


def logs_of(spec: Spec, name: str, *times: int) -> list[Log]:
    """The logs of a source, with the offsets of `times` in ms since the epoch. Raises PipelineError."""
    options = parse_options(batch_options(spec, name), stream=False)
    with Calls(options.server) as client:
        return check_there(options, ask(client, options, times=times))


def _listed(offsets: Iterable[tuple[Log, int]]) -> str:
    """Offsets as an option has them; `latest` for a source that has no topic yet."""
    found: dict[str, dict[int, int]] = {}
    for log, offset in offsets:
        found.setdefault(log.topic, {})[log.partition] = offset
    return write(found) if found else "latest"

"""A range of an archive published again: `run_replay`, exactly once for each replay id.

What a replay consists of is written down beside the table before its first message is published, with a writer's name
that no other replay has. So a replay that was broken off goes on with the same batches, from the last one that the
server has, and one that is through changes nothing.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.schemas import all_versions, register
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.options import server_options, storage_options
from penstock.pipeline.versions import be_active

from .archive import FORMAT
from .archive_plan import Progress, Report
from .options import write_offsets
from .replay_plan import ReplaySpec, planned
from .store import Location
from .values import OffsetRange

__all__ = ["ReplaySpec", "run_replay"]

ORIGIN: Final = "x-replay-of"

_CARRIED: Final = ("key", "value", "event_time", "ordering_key")


def run_replay(
    spark: SparkSession,
    spec: ReplaySpec,
    *,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Publish the range; `progress` is called with every batch. Raises PipelineError, DataLoss."""
    be_active(spark)
    folder = Location.of(spec.table, spec.storage)
    plan = planned(spec, folder)
    report = Report()
    left = sum(piece.end - piece.start for batch in plan.batches for piece in batch)
    sources = {piece.topic for batch in plan.batches for piece in batch}
    versions = _versions(spec.server, sources, spec.topic)
    writer = plan.writer or f"replay-{spec.id}"
    last = _last(spec, writer) if plan.batches else 0
    for number, pieces in enumerate(plan.batches):
        if stopped():
            break
        begun = time.monotonic()
        size = sum(piece.end - piece.start for piece in pieces)
        left -= size
        report.batches += 1
        if number < last:  # the server has it
            report.rows += size
            continue
        counted = Observation()  # where offsets skip there are fewer messages
        frame = _frame(spark, spec, tuple(pieces), versions).observe(counted, f.count(f.lit(1)).alias("rows"))
        frame.write.format("penstock").mode("append").options(
            topic=spec.topic, writer=writer, batch=str(number), **server_options(spec.server)
        ).save()
        rows = int(counted.get["rows"])
        report.rows += rows
        if progress is not None:
            progress(
                Progress(
                    batch=number,
                    rows=rows,
                    rows_total=report.rows,
                    lag=left,
                    seconds=time.monotonic() - begun,
                )
            )
    return report


def _last(spec: ReplaySpec, writer: str) -> int:
    """The last batch that the server has of the replay: it is written again, and compared. 0 before the first."""
    topic = TopicName.parse(spec.topic)
    with Stages(spec.server) as client:
        client.open_topics([topic])
        targets = {tuple(found["topics"] or ()): found["batch"] for found in client.status(writer)["targets"]}
    return int(targets.get((str(topic),), targets.get((), 0)))


def _frame(
    spark: SparkSession, spec: ReplaySpec, pieces: tuple[OffsetRange, ...], versions: dict[int, int]
) -> DataFrame:
    """The rows as the sink takes them, each with its origin and the version of its schema."""
    reading = {"path": spec.table, "offsets": write_offsets(pieces), **storage_options(spec.storage)}
    table = spark.read.format(FORMAT).options(**reading).load()
    origin = f.concat_ws(":", "topic", f.col("partition").cast("string"), f.col("offset").cast("string"))
    own = f.create_map(f.lit(ORIGIN), origin)
    if "properties" in table.columns:
        others = f.map_filter("properties", lambda name, _: name != ORIGIN)
        properties = f.when(f.col("properties").isNull(), own).otherwise(f.map_concat(others, own))
    else:
        properties = own
    columns = [f.col(name) for name in _CARRIED if name in table.columns]
    if versions and "schema_version" in table.columns:
        pairs = [f.lit(number) for pair in versions.items() for number in pair]
        columns.append(f.create_map(*pairs)[f.col("schema_version")].cast("bigint").alias("schema_version"))
    if spec.keep_partitions:
        columns.append(f.col("partition"))
    return table.select(*columns, properties.alias("properties"))


def _versions(server: Access, sources: Iterable[str], topic: str) -> dict[int, int]:
    """The version that each schema of the sources has in `topic`, registered there where that is another topic.

    What is no longer registered is left out. Raises PipelineError where the topic refuses a schema.
    """
    found: dict[int, int] = {}
    target = str(TopicName.parse(topic).base)
    with HttpClient(server) as client:
        for source in sources:
            for version, schema in sorted(all_versions(client, source).items()):
                try:
                    found[version] = version if source == target else register(client, target, schema)
                except PenstockError as error:
                    if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA:
                        raise
                    raise PipelineError(
                        f"{target} refuses schema version {version} of {source}, which the archive's messages were"
                        f" written with: {error.message}",
                        error.kind,
                    ) from None
    return found

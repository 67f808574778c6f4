"""A topic archived as a table: `run_archive` reads what is new and appends it, as often as it is asked to.

The table is its own checkpoint. Each commit holds, for every partition, the offset at which it ends, in the same
step as the rows; the next batch begins there, and a commit that would leave a gap or bring an offset twice is
refused. So there is no folder to lose, and nothing to set right after a crash between any two steps. A durable
subscription follows it afterwards: retention deletes only what the table has.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import Log, Look, Mark, set_marks
from penstock.pipeline.http.retry import retrying
from penstock.pipeline.options import server_options, storage_options
from penstock.pipeline.source.offsets import write
from penstock.pipeline.source.options import Options, parse_options
from penstock.pipeline.source.query import ask, check_topics
from penstock.pipeline.versions import be_active

from .archive_plan import ArchiveSpec, Progress, Report, Step, plan
from .delta import Table
from .options import table_at, write_offsets
from .store import Location
from .values import OffsetRange

__all__ = ["ArchiveSpec", "append", "archive", "run_archive", "server_options"]

FORMAT: Final = "penstock_lake"
WAIT_MS: Final = 1_000  # how long a stop may go unnoticed


def archive(spark: SparkSession, url: str, topic: str, table: str) -> Report:
    """Archive what a topic has now, all columns; what the table has already is not read again."""
    return run_archive(spark, ArchiveSpec(server=Access(url=url), topics=(topic,), table=table))


def run_archive(
    spark: SparkSession,
    spec: ArchiveSpec,
    *,
    progress: Callable[[Progress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Report:
    """Archive until everything is there (`once`) or until `stopped`; `progress` is called with every commit.

    Raises PipelineError for what cannot be archived, DataLoss where retention was faster.
    """
    be_active(spark)
    options = _checked(spec)
    table = table_at(Location.of(spec.table, spec.storage))
    report = Report()
    with HttpClient(spec.server) as client:
        seen: str | None = None
        found = _look(client, options, None, 0)
        ends = {log.key: log.latest for log in found.logs or []}
        # Where a new table begins; logs that come later begin with their first message.
        begins = {} if spec.start == "earliest" else dict(ends)
        _follow(client, spec, table, found.logs or [], begins)
        while not stopped():
            steps = plan(spec, table.snapshot(), found.logs or [], ends if spec.once else None, begins)
            if steps:
                begun = time.monotonic()
                rows = append(spark, spec, steps)
                _mark(client, spec, steps)
                report.batches += 1
                report.rows += rows
                if progress is not None:
                    ends_now = {step.key: step.end for step in steps}
                    progress(
                        Progress(
                            batch=report.batches - 1,
                            rows=rows,
                            rows_total=report.rows,
                            lag=sum(
                                log.latest - ends_now[log.key]
                                for log in found.logs or []
                                if log.key in ends_now
                            ),
                            seconds=time.monotonic() - begun,
                        )
                    )
                if spec.once:
                    continue
                wait = spec.every_ms / 1000 - (time.monotonic() - begun)
                planned = sum(step.end - step.start for step in steps)
                _sleep(wait if planned < spec.rows_max else 0, stopped)
                found = _look(client, options, None, 0)
            elif spec.once:
                break
            else:
                seen = found.seen
                later = _look(client, options, seen, WAIT_MS)
                found = later if later.logs is not None else found
    return report


def _checked(spec: ArchiveSpec) -> Options:
    """The source's options, checked before anything is done."""
    if bool(spec.topics) == bool(spec.pattern):
        raise PipelineError("an archive needs either topics or a pattern")
    if spec.start not in ("earliest", "latest"):
        raise PipelineError(f"an archive starts at earliest or latest, not at {spec.start!r}")
    if spec.start == "latest" and spec.once:
        raise PipelineError(
            "an archive that starts at latest has to go on: at once there is nothing to archive"
        )
    if spec.rows_max < 1 or spec.every_ms < 0:
        raise PipelineError("an archive's commits have at least one row, and no negative time between them")
    which = {"subscribe": ",".join(spec.topics)} if spec.topics else {"subscribePattern": spec.pattern}
    return parse_options(server_options(spec.server) | which)


def _look(client: HttpClient, options: Options, seen: str | None, wait_ms: int) -> Look:
    found = retrying(lambda: ask(client, options, seen=seen, wait_ms=wait_ms))
    check_topics(found)
    return found


def append(spark: SparkSession, spec: ArchiveSpec, steps: Sequence[Step]) -> int:
    """One commit: the messages of `steps`, which must begin where the table ends. Returns how many there are."""
    planned = tuple(OffsetRange(*step.key, step.start, step.end) for step in steps)
    writing = {"path": spec.table, "archive": "true", "partitionBy": spec.partition_by}
    writing["offsets"] = write_offsets(planned)
    writing["compact"] = str(spec.compact).lower()
    writing |= storage_options(spec.storage)
    if spec.target_bytes:
        writing["targetFileBytes"] = str(spec.target_bytes)
    counted = Observation()
    frame = _frame(spark, spec, steps).observe(counted, f.count(f.lit(1)).alias("rows"))
    frame.write.format(FORMAT).mode("append").options(**writing, **server_options(spec.server)).save()
    return int(counted.get["rows"])


def _frame(spark: SparkSession, spec: ArchiveSpec, steps: Sequence[Step]) -> DataFrame:
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    for step in steps:
        starts.setdefault(step.log.topic, {})[step.log.partition] = step.start
        ends.setdefault(step.log.topic, {})[step.log.partition] = step.end
    options = server_options(spec.server) | {
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in starts.items()}),
        "startingOffsets": write(starts),
        "endingOffsets": write(ends),
        "minPartitions": str(spec.partitions_min),
        **spec.reading,
    }
    if spec.include:
        options["include"] = ",".join(spec.include)
    if spec.decode != "none":
        options["value.decode"] = spec.decode
    return spark.read.format("penstock").options(**options).load()


def _follow(
    client: HttpClient,
    spec: ArchiveSpec,
    table: Table,
    logs: Sequence[Log],
    begins: Mapping[tuple[str, int], int],
) -> None:
    """The subscription stands where the table ends, also after a crash between the two; from now on it holds
    what is not archived yet."""
    now = table.snapshot()
    marks = []
    for log in logs:
        position = now.position(log.topic, log.partition) if now is not None else None
        if position is not None and position.ledger not in (-1, log.ledger):
            continue  # `plan` refuses it
        end = min(position.end, log.latest) if position else begins.get(log.key, log.earliest)
        marks.append(Mark(*log.key, log.ledger, end))
    _set(client, spec, marks)


def _mark(client: HttpClient, spec: ArchiveSpec, steps: Sequence[Step]) -> None:
    _set(client, spec, [Mark(*step.key, step.log.ledger, step.end) for step in steps])


def _set(client: HttpClient, spec: ArchiveSpec, marks: Sequence[Mark]) -> None:
    if not spec.follower or not marks:
        return
    refused = retrying(lambda: set_marks(client, spec.follower, marks))
    if refused:
        mark, reason = next(iter(refused.items()))
        raise PipelineError(
            f"subscription {spec.follower} cannot follow the archive of {mark.topic}, partition"
            f" {mark.partition}: {reason}"
        )


def _sleep(seconds: float, stopped: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stopped() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, WAIT_MS / 1000))

"""`penstock pipeline archive`, `replay` and `redrive`: work that is done once, not declared."""

import re
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.extras import need_extras
from penstock.pipeline.http.logs import look
from penstock.pipeline.run.state import folder_of
from penstock.pipeline.spec.spec import Spec

from . import output
from .connection import by_reference
from .pipeline_group import declared, named_values, parse_time, pipeline_command, spark_session


@pipeline_command.command()
@declared
@click.option("--error", default="", metavar="REGEX", help="Only letters whose reason matches.")
@click.option("--since", metavar="TIME", help="Only letters that died at or after it.")
@click.option("--until", metavar="TIME", help="Only letters that died before it.")
def redrive(spec: Spec, error: str, since: str | None, until: str | None) -> None:
    """Publish the dead letters of FILE again where they came from, each once."""
    need_extras()
    from penstock.pipeline.run.preflight import preflight
    from penstock.pipeline.run.redrive import Choice, run_redrive

    if not spec.dead_letters:
        raise PipelineError(f"{spec.file}: the pipeline has no dead_letters")
    choice = Choice(error=error, since=parse_time("--since", since), until=parse_time("--until", until))
    try:
        re.compile(error)
    except re.error as wrong:
        raise PipelineError(f"--error: {error!r} is no regular expression: {wrong}") from None
    folder_of(spec).owner()
    preflight(spec)
    _check_there(spec.server, [spec.dead_letters], "there are no dead letters: ")
    with spark_session(spec.name, spec.master, spec.spark) as spark:
        report = run_redrive(spec, spark, choice)
    more = f"; {report.without_origin} hold no message of a topic" if report.without_origin else ""
    output.done(
        f"redrove {report.redriven} dead letters{more}",
        redriven=report.redriven,
        without_origin=report.without_origin,
    )


_table = click.option(
    "--table", required=True, metavar="PATH", help="The table's folder, or its URL (s3://…)."
)
_storage = click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the table's object store; VALUE env:VARIABLE is looked up.",
)
_master = click.option("--master", default="local[*]", show_default=True, help="Spark's master.")


def _check_there(server: Access, topics: Sequence[str], so: str = "") -> None:
    """Before Spark is started. `so`: what it means when a topic is not there."""
    with HttpClient(server) as client:
        missing = look(client, [TopicName.parse(topic) for topic in topics]).missing
    if missing:
        raise PipelineError(f"{so}topic {missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND)


@pipeline_command.command()
@click.argument("topics", nargs=-1, required=True)
@_table
@_storage
@click.option("--format", "kind", default="delta", hidden=True)  # of earlier versions: now Delta alone
@click.option("--decode", type=click.Choice(["none", "struct", "flat"]), default="none", show_default=True)
@click.option("--partition-by", default="day(timestamp)", show_default=True)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@_master
@by_reference
def archive(
    topics: tuple[str, ...],
    table: str,
    storage: tuple[str, ...],
    kind: str,
    decode: str,
    partition_by: str,
    follow: bool,
    master: str,
    server: Access,
) -> None:
    """Keep TOPICS as a table: append what is new."""
    need_extras(tables=True)
    from penstock.pipeline.lake.archive import run_archive
    from penstock.pipeline.lake.archive_plan import ArchiveSpec
    from penstock.pipeline.lake.options import table_at
    from penstock.pipeline.lake.store import Location

    spec = ArchiveSpec(
        server=server,
        table=table,
        storage=named_values("--storage", storage),
        topics=topics,
        kind=kind,
        decode=decode,
        partition_by=partition_by,
        once=not follow,
    )
    _check_there(server, topics)
    table_at(Location.of(spec.table, spec.storage))
    with spark_session("penstock-archive", master, {}) as spark:
        report = run_archive(spark, spec, progress=_told, stopped=_stopping())
    output.done(
        f"archived {report.rows:,} messages in {report.batches} batches",
        rows=report.rows,
        batches=report.batches,
    )


@pipeline_command.command()
@click.argument("topic")
@_table
@_storage
@click.option("--id", "name", required=True, help="Names the replay: the same again publishes nothing twice.")
@click.option("--source", default="", help="The archived topic, where the table has several.")
@click.option("--from", "since", metavar="TIME", help="From the first message published at or after it.")
@click.option("--until", metavar="TIME", help="Up to the first message published at or after it.")
@click.option(
    "--from-offset", multiple=True, metavar="PARTITION:OFFSET", help="From that message of a partition on."
)
@click.option(
    "--until-offset", multiple=True, metavar="PARTITION:OFFSET", help="Up to it, itself not included."
)
@click.option("--keep-partitions", is_flag=True, help="Into the partitions they came from.")
@_master
@by_reference
def replay(
    topic: str,
    table: str,
    storage: tuple[str, ...],
    name: str,
    source: str,
    since: str | None,
    until: str | None,
    from_offset: tuple[str, ...],
    until_offset: tuple[str, ...],
    keep_partitions: bool,
    master: str,
    server: Access,
) -> None:
    """Publish a range of an archive to TOPIC again."""
    need_extras(tables=True)
    from penstock.pipeline.lake.options import snapshot_of
    from penstock.pipeline.lake.replay import ReplaySpec, run_replay
    from penstock.pipeline.lake.store import Location

    spec = ReplaySpec(
        server=server,
        table=table,
        storage=named_values("--storage", storage),
        topic=topic,
        id=name,
        source=source,
        from_time=parse_time("--from", since),
        to_time=parse_time("--until", until),
        from_offsets=_offsets("--from-offset", from_offset),
        to_offsets=_offsets("--until-offset", until_offset),
        keep_partitions=keep_partitions,
    )
    snapshot_of(Location.of(spec.table, spec.storage))
    with spark_session("penstock-replay", master, {}) as spark:
        report = run_replay(spark, spec, progress=_told, stopped=_stopping())
    output.done(
        f"replayed {report.rows:,} messages in {report.batches} batches",
        rows=report.rows,
        batches=report.batches,
    )


def _offsets(option: str, texts: Sequence[str]) -> dict[int, int]:
    """Offsets by partition."""
    found: dict[int, int] = {}
    for text in texts:
        partition, _, offset = text.partition(":")
        if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (partition, offset)):
            raise PipelineError(f"{option}: {text!r} is no PARTITION:OFFSET like 0:100")
        if int(partition) in found:
            raise PipelineError(f"{option}: partition {int(partition)} is named twice")
        found[int(partition)] = int(offset)
    return found


def _stopping() -> Callable[[], bool]:
    """Whether the user asked for the end: after the batch that runs then."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked.is_set


def _told(progress: Any) -> None:
    if output.for_people():
        click.echo(f"batch {progress.batch}: {progress.rows:,} rows, {progress.lag:,} to go", err=True)

"""`penstock pipeline archive`, `replay` and `redrive`: work that is done once, not declared."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from penstock.client.access import Access
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.spec.spec import Spec

from . import output
from .pipeline import _declared, _spark, _time, command


@command.command()
@_declared
@click.option("--error", default="", metavar="REGEX", help="Only letters whose reason matches.")
@click.option("--since", metavar="TIME", help="Only letters that died at or after it.")
@click.option("--until", metavar="TIME", help="Only letters that died before it.")
def redrive(spec: Spec, error: str, since: str | None, until: str | None) -> None:
    """Publish the dead letters of FILE again where they came from, each once."""
    from penstock.pipeline.run.preflight import preflight
    from penstock.pipeline.run.redrive import Choice, run_redrive

    if not spec.dead_letters:
        raise PipelineError(f"{spec.file}: the pipeline has no dead_letters")
    choice = Choice(error=error, since=_time("--since", since), until=_time("--until", until))
    Folder(spec.home).owner()
    preflight(spec)
    with _spark(spec) as spark:
        report = run_redrive(spec, spark, choice)
    more = f"; {report.without_origin} hold no message of a topic" if report.without_origin else ""
    output.done(
        f"redrove {report.redriven} dead letters{more}",
        redriven=report.redriven,
        without_origin=report.without_origin,
    )


def _server(run: Any) -> Any:
    for option in (
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
        click.option("--token-file", default="", help="A file with a token."),
        click.option(
            "--url",
            envvar="PENSTOCK_URL",
            default="http://127.0.0.1:8080",
            show_default=True,
            help="The server.",
        ),
    ):
        run = option(run)
    return run


@command.command()
@click.argument("topics", nargs=-1, required=True)
@click.option("--table", required=True, type=click.Path(path_type=Path), help="The table's folder.")
@click.option("--format", "kind", type=click.Choice(["delta", "parquet"]), default="delta", show_default=True)
@click.option("--decode", type=click.Choice(["none", "struct", "flat"]), default="none", show_default=True)
@click.option("--partition-by", default="day(timestamp)", show_default=True)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C.")
@_server
def archive(
    topics: tuple[str, ...],
    table: Path,
    kind: str,
    decode: str,
    partition_by: str,
    follow: bool,
    **server: str,
) -> None:
    """Keep TOPICS as a table: append what is new."""
    from penstock.pipeline.lake.archive import run_archive
    from penstock.pipeline.lake.arrears import ArchiveSpec

    spec = ArchiveSpec(
        server=Access(url=server["url"], token_file=server["token_file"]),
        table=str(table),
        topics=topics,
        kind=kind,
        decode=decode,
        partition_by=partition_by,
        once=not follow,
    )
    with _session("penstock-archive", server["master"]) as spark:
        report = run_archive(spark, spec, progress=_told, stopped=_stopping())
    output.done(
        f"archived {report.rows:,} messages in {report.batches} batches",
        rows=report.rows,
        batches=report.batches,
    )


@command.command()
@click.argument("topic")
@click.option(
    "--table", required=True, type=click.Path(path_type=Path, exists=True), help="The archive's folder."
)
@click.option("--id", "name", required=True, help="Names the replay: the same again publishes nothing twice.")
@click.option("--source", default="", help="The archived topic, where the table has several.")
@click.option("--from", "since", metavar="TIME", help="From the first message published at or after it.")
@click.option("--until", metavar="TIME", help="Up to the first message published at or after it.")
@click.option("--keep-partitions", is_flag=True, help="Into the partitions they came from.")
@_server
def replay(
    topic: str,
    table: Path,
    name: str,
    source: str,
    since: str | None,
    until: str | None,
    keep_partitions: bool,
    **server: str,
) -> None:
    """Publish a range of an archive to TOPIC again."""
    from penstock.pipeline.lake.replay import ReplaySpec, run_replay

    spec = ReplaySpec(
        server=Access(url=server["url"], token_file=server["token_file"]),
        table=str(table),
        topic=topic,
        id=name,
        source=source,
        from_time=_time("--from", since),
        to_time=_time("--until", until),
        keep_partitions=keep_partitions,
    )
    with _session("penstock-replay", server["master"]) as spark:
        report = run_replay(spark, spec, progress=_told, stopped=_stopping())
    output.done(
        f"replayed {report.rows:,} messages in {report.batches} batches",
        rows=report.rows,
        batches=report.batches,
    )


def _stopping() -> Callable[[], bool]:
    """Whether somebody asked for the end: after the batch that runs then."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked.is_set


def _told(progress: Any) -> None:
    if output.for_people():
        click.echo(f"batch {progress.batch}: {progress.rows:,} rows, {progress.lag:,} to go", err=True)


def _session(name: str, master: str) -> Any:
    from .pipeline import Session

    return Session(name, master, {})

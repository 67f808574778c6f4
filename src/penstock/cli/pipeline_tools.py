"""`penstock pipeline redrive`: dead letters published again where they came from."""

import re
from collections.abc import Sequence

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import look
from penstock.pipeline.run.preflight import need_extras
from penstock.pipeline.run.state import folder_of
from penstock.pipeline.spec.spec import Spec

from . import output
from .pipeline_group import declared, parse_time, pipeline_command, spark_session


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


def _check_there(server: Access, topics: Sequence[str], so: str = "") -> None:
    """Before Spark is started. `so`: what it means when a topic is not there."""
    with HttpClient(server) as client:
        missing = look(client, [TopicName.parse(topic) for topic in topics]).missing
    if missing:
        raise PipelineError(f"{so}topic {missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND)

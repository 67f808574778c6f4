"""`penstock pipeline redrive`: dead letters published again to their topics."""

import click

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
    """Publish the dead letters of FILE again to the topics they came from, each once."""
    need_extras()
    from penstock.pipeline.run.preflight import preflight
    from penstock.pipeline.run.redrive import Choice, letters_of, run_redrive

    choice = Choice(error=error, since=parse_time("--since", since), until=parse_time("--until", until))
    letters_of(spec)
    folder_of(spec).owner()
    preflight(spec)
    with spark_session(spec.name, spec.master, spec.spark) as spark:
        report = run_redrive(spec, spark, choice)
    more = f"; {report.without_origin} hold no message of a topic" if report.without_origin else ""
    output.done(
        f"redrove {report.redriven} dead letters{more}",
        redriven=report.redriven,
        without_origin=report.without_origin,
    )

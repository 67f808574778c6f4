"""`penstock pipeline …`: runs what a TOML file declares (docs/pipelines.md)."""

import signal
import time
from typing import Final

import click

from penstock.client.access import Access
from penstock.pipeline.run.state import folder_of
from penstock.pipeline.run.supervise import WORKER, Job, SharedWorker, Supervisor, run_together
from penstock.pipeline.spec.options import future_starts
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.rules import check_together
from penstock.pipeline.spec.spec import Spec

from . import (
    output,
    pipeline_authoring,  # noqa: F401 - adds preview, test and backfill to the group
    pipeline_tables,  # noqa: F401 - adds new and maintain to it
    pipeline_tools,  # noqa: F401 - adds redrive to it
)
from .connection import by_reference
from .pipeline_group import (
    declared,
    parse_time,
    pipeline_command,
    settings_option,
    spark_session,
    spec_of,
    sure,
)
from .pipeline_show import Display, show_check, show_status, with_times

LOOK_S: Final = 0.2

_json = click.option("--json", "as_json", is_flag=True, help="JSON lines, on a terminal too.")
_change_sinks = click.option(
    "--change-sinks",
    is_flag=True,
    help="Repeat a batch that was begun with other sinks: one that is gone lacks it.",
)


@pipeline_command.command()
@declared
@click.option("--plan", is_flag=True, help="Show Spark's plan, too.")
@_json
def check(spec: Spec, plan: bool, as_json: bool) -> None:
    """Check FILE against live topics, and show what would run. Touches nothing."""
    from penstock.pipeline.run.preflight import preflight

    folder_of(spec).check_owner(spec)
    preflight(spec)  # before Spark is started: most mistakes show here
    from penstock.pipeline.run.query import check as checked
    from penstock.pipeline.run.query import check_early

    check_early(spec)
    with spark_session(spec.name, spec.master, spec.spark, short=True) as spark:
        show_check(spec, checked(spec, spark), as_json=as_json, plan=plan)


@pipeline_command.command()
@declared
@click.argument("more", metavar="[FILE]...", nargs=-1, type=click.Path(dir_okay=False))
@click.option("--once", is_flag=True, help="Process what is there, and end.")
@click.option("--stop-on-failure", is_flag=True, help="Of several: if one fails, stop the others.")
@_change_sinks
@_json
def run(
    spec: Spec, more: tuple[str, ...], once: bool, stop_on_failure: bool, change_sinks: bool, as_json: bool
) -> None:
    """Run FILE until Ctrl-C, SIGTERM or `stop`; it ends after the batch that runs then.

    Several files run in one Spark session, each with its query and its state. One that fails leaves the others alone.
    """
    specs = [spec, *map(spec_of, more)]
    check_together(specs)
    _run(
        *specs,
        once=True if once else None,
        stop_on_failure=stop_on_failure,
        change_sinks=change_sinks,
        as_json=as_json,
    )


@pipeline_command.command()
@declared
@_change_sinks
@_json
def refresh(spec: Spec, change_sinks: bool, as_json: bool) -> None:
    """Process the available messages, once."""
    _run(spec, once=True, change_sinks=change_sinks, as_json=as_json)


@pipeline_command.command("full-refresh")
@declared
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json
def full_refresh(spec: Spec, yes: bool, as_json: bool) -> None:
    """Forget the checkpoint, empty the tables, and process everything again, once.

    Topics keep their messages; those published again follow.
    """
    from penstock.pipeline.run.preflight import preflight
    from penstock.pipeline.run.reset import forget

    preflight(spec)
    tables = ", ".join(sink.path for sink in spec.sinks.values() if sink.path)
    sure(yes, f"forget the checkpoint of {spec.name}" + (f" and empty {tables}" if tables else ""))
    for sentence in forget(spec):
        click.echo(sentence, err=True)
    _run(spec, once=True, as_json=as_json)


@pipeline_command.command()
@declared
@click.option(
    "--to", "to", required=True, metavar="TIME", help="2026-01-31T08:00:00Z, or ms since the epoch."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(spec: Spec, to: str, yes: bool) -> None:
    """Let the next run begin with the messages published at or after TIME. Sinks keep what they have."""
    from penstock.pipeline.run.reset import reset as again

    start = parse_time("--to", to)
    assert start is not None
    sure(yes, f"forget the checkpoint of {spec.name} and begin at {to}")
    again(spec, start)
    if start > time.time() * 1000:
        click.echo(
            f"warning: {to} is in the future: what is published before the next run is passed over", err=True
        )
    output.done(f"{spec.name} begins at {to} when it runs next", pipeline=spec.name, start=start)


@pipeline_command.command()
@declared
@click.option("--timeout", type=click.FloatRange(0), default=120.0, show_default=True, metavar="SECONDS")
def stop(spec: Spec, timeout: float) -> None:
    """Stop a running pipeline after its current batch, and wait for that."""
    folder = folder_of(spec)
    if not folder.in_use():
        raise click.ClickException(f"pipeline {spec.name} is not running")
    folder.ask_to_stop()
    until = time.monotonic() + timeout
    while folder.in_use():
        if time.monotonic() > until:
            raise click.ClickException(f"pipeline {spec.name} still runs after {timeout:.0f} s")
        time.sleep(LOOK_S)
    output.done(f"stopped {spec.name}", stopped=spec.name)


@pipeline_command.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--state", type=click.Path(file_okay=False), help="Where pipelines keep state.")
@settings_option
@by_reference
def status(file: str | None, state: str | None, settings: tuple[str, ...], server: Access) -> None:
    """What the pipeline of FILE last said about itself; without FILE, what all of a server's pipelines said."""
    if file is None:
        from penstock.pipeline.run.events import last_events

        columns = ("pipeline", "state", "at", "batch", "rows", "rows_per_second", "lag", "rejected", "error")
        output.rows(columns, map(with_times, last_events(server)), "no pipeline has run")
        return
    spec = load_spec(file, state=state, settings=settings)
    folder = folder_of(spec)
    found = folder.status()
    if found is None:
        raise click.ClickException(
            f"pipeline {spec.name} has not run yet: there is no {folder.home}/status.json"
        )
    running = folder.in_use()
    if not running and found.get("state") not in ("stopped", "failed"):
        found["state"] = "killed"
    show_status({"running": running, **with_times(found)})


def _run(
    *specs: Spec,
    once: bool | None,
    as_json: bool,
    change_sinks: bool = False,
    stop_on_failure: bool = False,
) -> None:
    for spec in specs:
        if folder_of(spec).owner() is None:
            for warning in future_starts(spec, round(time.time() * 1000)):
                click.echo(f"warning: {warning}", err=True)
    shared = SharedWorker(WORKER, [spec.file for spec in specs])
    with Display([spec.name for spec in specs], as_json=as_json or not output.for_people()) as display:
        supervisors: dict[str, Supervisor] = {}
        for spec in specs:
            job = Job(
                file=spec.file,
                url=spec.server.url,
                state=str(spec.state),
                master=spec.master,
                settings=click.get_current_context().params["settings"],
                once=once,
                change_sinks=change_sinks,
            )
            supervisors[spec.name] = Supervisor(spec, job, display.watch(spec.name), shared=shared)

        def stop_all() -> None:
            for supervisor in supervisors.values():
                supervisor.stop()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: stop_all())
        if len(supervisors) == 1:
            supervisors[specs[0].name].run()
        else:
            run_together(supervisors, stop_on_failure=stop_on_failure, failed=output.say)

"""`penstock pipeline preview`, `test` and `backfill`: the tools for writing pipelines."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import click

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.cases import load_cases
from penstock.pipeline.run.preflight import need_extras
from penstock.pipeline.spec.spec import Spec

from . import output
from .pipeline_group import declared, named_values, parse_time, pipeline_command, spark_session, sure

LOOK_S: Final = 0.5

_json = click.option("--json", "as_json", is_flag=True, help="JSON lines, on a terminal too.")


@pipeline_command.command()
@declared
@click.argument("step", default="")
@click.option("--rows", type=click.IntRange(1), default=20, show_default=True, help="The most that is shown.")
@click.option(
    "--messages",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="How many of the newest messages of each source are read.",
)
@_json
def preview(spec: Spec, step: str, rows: int, messages: int, as_json: bool) -> None:
    """Show what STEP makes of the newest messages: a source, step or sink, or dead_letters. Writes nothing.

    Without STEP, the last step.
    """
    from penstock.pipeline.run.preflight import preflight

    preflight(spec)
    from penstock.pipeline.run.failures import one_sentence
    from penstock.pipeline.run.plain import plain_rows
    from penstock.pipeline.run.preview import preview as previewed

    with spark_session(spec.name, spec.master, spec.spark, short=True) as spark:
        frame = previewed(spec, spark, step, rows=rows, messages=messages)
        with one_sentence(spec):
            columns, found = frame.columns, list(plain_rows(frame))
        # Before Spark ends, which takes a moment.
        if as_json:
            for row in found:
                output.line(row)
        else:
            output.rows(columns, found, "no rows")


@pipeline_command.command("test")
@declared
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_json
def run_tests(spec: Spec, names: tuple[str, ...], as_json: bool) -> None:
    """Run the [[tests]] of FILE, or those that are named. Needs no server.

    Tests are in FILE, or in a second file: sales.tests.toml for sales.toml. Exits with 1 if one fails.
    """
    cases = load_cases(spec.file)
    if not cases:
        raise PipelineError(f"{spec.file} has no [[tests]], and no file of tests beside it")
    for name in names:
        if name not in map(str, cases):
            raise PipelineError(
                f"{spec.file}: there is no test {name!r}; there are {', '.join(map(str, cases))}"
            )
    need_extras()
    import msgspec

    from penstock.pipeline.run.trial import run_case

    # A file may name a cluster; a few given rows need none.
    master = click.get_current_context().params["master"] or "local[*]"
    as_json = as_json or not output.for_people()
    failed = 0
    chosen = [case for case in cases if not names or case.name in names]
    with spark_session(spec.name, master, spec.spark, short=True) as spark:
        for case in chosen:
            outcome = run_case(spec, case, spark)
            failed += not outcome.passed
            if as_json:
                output.line(msgspec.to_builtins(outcome))
                continue
            word = click.style("passed", fg="green") if outcome.passed else click.style("FAILED", fg="red")
            click.echo(f"{word}  {outcome.test}  {outcome.seconds:.1f} s")
            for line in outcome.lines():
                click.echo(f"  {line}")
    output.say(f"{failed} of {len(chosen)} tests failed" if failed else f"{len(chosen)} tests passed")
    if failed:
        raise click.exceptions.Exit(1)


@pipeline_command.command()
@declared
@click.option(
    "--from", "start", required=True, metavar="TIME", help="2026-01-31T08:00:00Z, or ms since the epoch."
)
@click.option("--to", "end", required=True, metavar="TIME", help="The end, itself not included.")
@click.option("--sink", "sinks", multiple=True, metavar="NAME", help="Only this one; may be repeated.")
@click.option("--column", "columns", multiple=True, metavar="SINK=COLUMN", help="The time of a sink's rows.")
@click.option(
    "--margin",
    default="",
    metavar="DURATION",
    help="Read messages published so long before and after, too [a day, and the longest delay of a watermark].",
)
@click.option("--append-topics", is_flag=True, help="Publish to topics again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_json
def backfill(
    spec: Spec,
    start: str,
    end: str,
    sinks: tuple[str, ...],
    columns: tuple[str, ...],
    margin: str,
    append_topics: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Compute a range of time again: in tables its rows are replaced, each in one commit."""
    since, until = parse_time("--from", start), parse_time("--to", end)
    assert since is not None
    assert until is not None
    need_extras(tables=True)
    from penstock.pipeline.run.backfill import check_backfill, plan_backfill, run_backfill
    from penstock.pipeline.run.preflight import preflight

    times = named_values("--column", columns)
    spec, plan = plan_backfill(
        spec, since, until, sinks=sinks, columns=times, margin=margin, append_topics=append_topics
    )
    preflight(spec)
    check_backfill(spec, plan)
    told = [
        f"{'replace rows of the table' if sink.path else 'publish again to'} {sink.path or sink.topic or name}"
        f" ({plan.columns[name]} from {_time(plan.start)} to {_time(plan.end)})"
        for name, sink in spec.sinks.items()
    ]
    sure(yes, " and ".join(told))
    with spark_session(spec.name, spec.master, spec.spark) as spark, _progress(spark):
        report = run_backfill(spec, spark, plan)
    done: dict[str, Any] = {
        "pipeline": spec.name,
        "from": _time(plan.start),
        "to": _time(plan.end),
        "rows": report.rows,
    }
    done |= {"replaced": report.replaced, "dead_letters": report.dead_letters}
    if as_json:
        output.line(done)
        return
    rows = ", ".join(f"{count:,} rows to {name}" for name, count in report.rows.items())
    letters = f"; {report.dead_letters:,} rows are dead letters, not published again" * bool(
        report.dead_letters
    )
    output.done(f"backfilled {rows}{letters}", **done)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat().replace("+00:00", "Z")


@contextmanager
def _progress(spark: Any) -> Iterator[None]:
    """On a terminal, a bar of the tasks that Spark has done."""
    if not output.for_people():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    tracker, ended = spark.sparkContext.statusTracker(), threading.Event()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tasks", total=None)

        def look() -> None:
            while not ended.wait(LOOK_S):
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
                stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
                total = sum(stage.numTasks for stage in stages if stage)
                done = sum(stage.numCompletedTasks for stage in stages if stage)
                bar.update(task, total=total or None, completed=done)

        looking = threading.Thread(target=look, name="progress", daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()

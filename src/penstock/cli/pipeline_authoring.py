"""`penstock pipeline preview`, `test` and `backfill`: for people who write pipelines."""

import click

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.extras import need_extras
from penstock.pipeline.run.cases import load_cases
from penstock.pipeline.spec.spec import Spec

from . import output
from .pipeline_group import declared, pipeline_command, spark_session

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
    from penstock.pipeline.run.plain import plain_rows
    from penstock.pipeline.run.preview import preview as previewed

    with spark_session(spec.name, spec.master, spec.spark) as spark:
        frame = previewed(spec, spark, step, rows=rows, messages=messages)
        found = plain_rows(frame)
        if as_json:
            for row in found:
                output.line(row)
        else:
            output.rows(frame.columns, found, "no rows")


@pipeline_command.command("test")
@declared
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_json
def run_tests(spec: Spec, names: tuple[str, ...], as_json: bool) -> None:
    """Run the [[tests]] of FILE, or those that are named. Needs no server.

    Tests stand in FILE, or beside it: sales.tests.toml for sales.toml. Exits with 1 if one fails.
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
    with spark_session(spec.name, master, spec.spark) as spark:
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

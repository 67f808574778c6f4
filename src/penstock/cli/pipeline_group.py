"""The group `penstock pipeline`, and what its commands share: the file, its session of Spark, times."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import click

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.pipeline.spec.times import time_ms

from . import output
from .groups import Group
from .options import Shared, output_option

P = ParamSpec("P")


@click.group("pipeline", cls=Group)
def pipeline_command() -> None:
    """Run declared pipelines: topics to topics and tables, on Spark."""


settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key of FILE, like sinks.history.path=/tmp/history; the value as in TOML, or as text.",
)


def declared(run: Callable[Concatenate[Spec, P], Any]) -> Callable[P, Any]:
    """Give a command the argument FILE and the options that are stronger than the file."""

    @click.argument("file", type=click.Path(dir_okay=False))
    @click.option(
        "--url",
        cls=Shared,
        envvar="PENSTOCK_URL",
        help="The server, instead of the file's. [env: PENSTOCK_URL]",
    )
    @click.option("--state", type=click.Path(file_okay=False), help="Where pipelines keep state.")
    @click.option("--master", help="Spark's master, like local[4] or spark://host:7077.")
    @settings_option
    @output_option
    @wraps(run)
    def command(*args: P.args, **options: P.kwargs) -> Any:
        given: dict[str, Any] = {name: options.pop(name) for name in ("file", "url", "state", "master")}
        del options["settings"]
        return run(spec_of(given["file"]), *args, **options)

    return command


def spec_of(file: str) -> Spec:
    """What a file declares, under the options of the command that runs (`declared`). Warnings of it are shown."""
    given = click.get_current_context().params
    spec = load_spec(
        file,
        url=given["url"] or "",
        state=given["state"],
        master=given["master"] or "",
        settings=given["settings"],
    )
    for warning in spec.warnings:
        click.echo(f"warning: {warning}", err=True)
    return spec


@contextmanager
def spark_session(name: str, master: str, conf: dict[str, str], *, short: bool = False) -> Iterator[Any]:
    """A Spark session for a command, quiet, ended with it; `short`: for one that computes little."""
    import logging

    from penstock.pipeline.session import session, short_run

    # PySpark logs the errors that it raises; they are said once, by us.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    with _starting():
        spark = session(name, master, scratch=None, **(short_run(conf) if short else conf))
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def _starting() -> AbstractContextManager[Any]:
    """On a terminal, a line that lives as long as Spark starts."""
    if not output.for_people():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status("Spark starts …")


def parse_time(option: str, text: str | None) -> int | None:
    """A time in ms since the epoch, None if none is given. Raises PipelineError, which names the option."""
    if text is None:
        return None
    try:
        return time_ms(text)
    except ValueError as error:
        raise PipelineError(f"{option}: {error}") from None


def sure(yes: bool, what: str) -> None:
    """Ask on a terminal; elsewhere --yes is needed."""
    if yes:
        return
    if not output.for_people():
        raise click.ClickException(f"this would {what}: say --yes")
    click.confirm(f"This will {what}. Go on?", abort=True)


def named_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Values of an option by name, `NAME=VALUE` each. Raises PipelineError."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, separator, _ in pairs if not (name and separator)]:
        raise PipelineError(f"{option}: {wrong[0]!r} is no NAME=VALUE")
    return {name: value for name, _, value in pairs}

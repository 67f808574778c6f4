"""The demonstration, step by step."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from penstock.model.names import TopicName
from penstock.testing.server import Launched, launch

from .delays import spark
from .steps import check_extras, rest, say, table, websocket

FLIGHTS: Final = TopicName.parse("flights")
LIVE: Final = TopicName.parse("departures")
DELAYS: Final = TopicName.parse("delays")
DEAD: Final = TopicName.parse("flights-dead")
PIPELINE: Final = Path(__file__).with_name("delays.toml")


def show(*, port: int, once: bool) -> None:
    """Run all of it; without `once` the server goes on until Ctrl-C."""
    check_extras()
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        with serving(folder, port) as server:
            say(console, f"[bold]1  Penstock runs[/] at {server.url}, its data in {folder}")
            rest(console, server, FLIGHTS)
            websocket(console, server, LIVE)
            _spark(console, server, folder)
            if not once:
                _stay(console, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if once:
        say(console, "\nStopped, and the data folder is removed.")


@contextmanager
def serving(folder: Path, port: int, *flags: str) -> Iterator[Launched]:
    """A server with its data in a folder; raises what stands in the way, as one sentence."""
    try:
        with launch(folder / "data", "--set", "log.level=warning", *flags, port=port) as server:
            yield server
    except RuntimeError as error:
        said = str(error).rpartition("penstock: ")[2].strip()
        raise click.ClickException(f"{said}; choose another one with --port") from None


def _spark(console: Console, server: Launched, folder: Path) -> None:
    say(
        console,
        "[bold]4  Spark:[/] the declared pipeline delays.toml: delays per carrier and hour, with a watermark, to a topic"
        " and a Delta table",
    )
    declared = PIPELINE.read_text(encoding="utf-8")
    late, broken, rows = spark(console, server, FLIGHTS, folder, declared)
    say(
        console,
        f"   then {late} late flights and {broken} broken messages, published on purpose: all {late + broken} are in"
        f" {DEAD}, with the reason",
    )
    console.print(table(rows))
    say(
        console,
        f"   a query over the Delta table, which has every flight once; the same groups are in topic {DELAYS}",
    )


def _stay(console: Console, server: Launched) -> None:
    say(
        console,
        f"\n[bold]Penstock goes on running[/] at {server.url} (process {server.process.pid}) until Ctrl-C. Try:\n",
    )
    topics = f"{server.url}/topics/public/default"
    for command in (
        f"curl '{topics}/flights/partitions/0/messages?max_messages=3'",
        f"curl '{topics}/delays/partitions/0/messages?max_messages=3'",
        f"curl '{topics}/flights-dead/partitions/0/messages'",
        f"curl -X POST '{topics}/hello' -H 'Content-Type: application/json' "
        '-d \'{"messages": [{"value": "hello, world"}]}\'',
        f"curl '{server.url}/admin/v2/persistent/public/default/flights/partitioned-stats'",
        f"penstock topics list --url {server.url}",
    ):
        say(console, f"  {command}", markup=False)
    say(console, f"\nThe HTTP interface as a page: {server.url}/docs")
    try:
        server.process.wait()
    except KeyboardInterrupt:
        say(console, "\nStopping; the data folder is removed.")

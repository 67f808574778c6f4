"""What `penstock pipeline` shows: one line that lives on a terminal, JSON lines in a pipe."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import click

from penstock.pipeline.run.state import folder_of
from penstock.pipeline.spec.options import future_starts
from penstock.pipeline.spec.spec import Spec

from . import output

TICK_S: Final = 1.0
RULES: Final = ("view", "rule", "kind", "action", "passed", "failed")


class Display:
    """Gets every event of a run of one or several pipelines. A context manager."""

    def __init__(self, names: Sequence[str], *, as_json: bool) -> None:
        self._as_json = as_json
        self._live: Any = None
        self._shown = {name: _Shown() for name in names}
        self._news = threading.Event()
        self._writing = threading.Lock()
        self._over = False

    def __enter__(self) -> Self:
        if not self._as_json:
            from rich.live import Live

            # Drawn when there is news, and every second while seconds are counted: drawing is not free.
            self._live = Live(get_renderable=self._render, auto_refresh=False, transient=False)
            self._live.__enter__()
            self._drawing = threading.Thread(target=self._draw, name="display", daemon=True)
            self._drawing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            for shown in self._shown.values():
                shown.waiting = ""
            self._over = True
            self._news.set()
            self._drawing.join()
            self._live.__exit__(kind, error, trace)

    def watch(self, name: str) -> Callable[[dict[str, Any]], None]:
        """The callback of a pipeline's supervisor for events and waits."""
        shown = self._shown[name]

        def show(event: dict[str, Any]) -> None:
            if "waiting" in event:
                shown.waiting, shown.since = event["waiting"], time.monotonic()
                state, at = shown.event.get("state", "starting"), time.time_ns() // 1_000_000
                event = {"pipeline": name, "state": state, "waiting": shown.waiting, "at": at}
            else:
                shown.event = event
                if event["state"] != "starting":
                    shown.waiting = ""
            self._news.set()
            if self._as_json:
                with self._writing:
                    output.line(event)

        return show

    def _draw(self) -> None:
        while not self._over:
            self._live.refresh()
            self._news.wait(TICK_S if any(shown.waiting for shown in self._shown.values()) else None)
            self._news.clear()

    def _render(self) -> Any:
        from rich.console import Group

        return Group(*(shown.table(name) for name, shown in self._shown.items()))


class _Shown:
    """The status of a pipeline."""

    def __init__(self) -> None:
        self.event: dict[str, Any] = {}
        self.waiting = ""
        self.since = time.monotonic()

    def table(self, name: str) -> Any:
        from rich.table import Table
        from rich.text import Text

        event = self.event
        table = Table.grid(padding=(0, 2))
        state = event.get("state", "starting")
        title = Text.assemble((name, "bold"), "  ", (state, _COLOURS.get(state, "")))
        if self.waiting:
            title.append(f"  waiting for {self.waiting}, {time.monotonic() - self.since:.0f} s", "dim")
        table.add_row(title)
        if event.get("ui"):
            table.add_row(Text(f"Spark's web UI: {event['ui']}", "dim"))
        if event.get("batch") is not None:
            cells = Table.grid(padding=(0, 3))
            cells.add_row(*(Text(name, "dim") for name in _FIELDS))
            cells.add_row(*(show(event) for show in _FIELDS.values()))
            table.add_row(cells)
        if event.get("rules"):
            table.add_row(output.table_of(RULES, event["rules"]))
        if event.get("late_unseen"):
            table.add_row(Text(f"{event['late_unseen']:,} late rows were dropped by Spark", "yellow"))
        if event.get("error"):
            table.add_row(Text(f"{event['error_class']}: {event['error']}", "red"))
        return table


_COLOURS = {"running": "green", "idle": "cyan", "restarting": "yellow", "failed": "red", "stopped": "dim"}


def _number(name: str) -> Any:
    def show(event: dict[str, Any]) -> str:
        value = event.get(name)
        return "-" if value is None else f"{value:,.0f}"

    return show


def _watermark(event: dict[str, Any]) -> str:
    value = event.get("watermark")
    return (
        "-" if value is None else datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    )


def with_times(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event of `status` with its times as times: for people here and now, in JSON as ISO 8601."""
    return {name: _time(value) if name in _TIMES else value for name, value in event.items()}


def show_status(found: Mapping[str, Any]) -> None:
    """The last event of a pipeline; for people, its rules are a table below."""
    rules = found.get("rules") if output.for_people() else None
    output.record({name: value for name, value in found.items() if name != "rules" or not rules})
    if rules:
        output.rows(RULES, rules, "")


def _time(ms: int | None) -> str | None:
    if ms is None:
        return None
    at = datetime.fromtimestamp(ms / 1000, UTC)
    if output.for_people():
        return at.astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_TIMES: Final = ("at", "watermark")


_FIELDS: dict[str, Any] = {
    "batch": _number("batch"),
    "rows": _number("rows_total"),
    "rows/s": _number("rows_per_second"),
    "lag": _number("lag"),
    "batch ms": _number("batch_ms"),
    "watermark": _watermark,
    "rejected": _number("rejected"),
}


def show_check(spec: Spec, checked: Any, *, as_json: bool, plan: bool) -> None:
    """The result of `check`: columns, warnings and, on request, Catalyst's plan."""
    warnings = future_starts(spec, round(time.time() * 1000)) if folder_of(spec).owner() is None else []
    if as_json or not output.for_people():
        output.line(
            {
                "pipeline": spec.name,
                "views": checked.views,
                "sinks": checked.sinks,
                "readings": checked.readings,
                "limits": checked.limits,
                "deliveries": checked.deliveries,
                "warnings": warnings,
                **({"plan": checked.plan} if plan else {}),
            }
        )
        return
    for kind, found in (("view", checked.views), ("sink", checked.sinks)):
        for name, columns in found.items():
            click.echo(click.style(f"{kind} {name}", bold=True))
            width = max((len(column) for column in columns), default=0)
            for column, type_ in columns.items():
                click.echo(f"  {column:{width}}  {type_}")
    reads = "once" if checked.readings == 1 else f"{checked.readings} times"
    click.echo(f"each batch is read {reads}")
    for line in (*checked.limits, *checked.deliveries):
        click.echo(line)
    if plan:
        click.echo(click.style("plan", bold=True))
        click.echo(checked.plan.rstrip())
    for warning in warnings:
        click.secho(f"warning: {warning}", fg="yellow")
    click.echo(click.style(f"{spec.name} is fine", fg="green"))

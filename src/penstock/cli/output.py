"""Answers: tables for people on a terminal, JSON lines for programs in a pipe."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click


def for_people() -> bool:
    """Whether the output is a terminal."""
    return sys.stdout.isatty()


def line(value: Any) -> None:
    """One JSON line, written at once: the reader of the pipe may be waiting for it."""
    write(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def write(text: str) -> None:
    """A line of text; where the reader is gone (`| head` has seen enough), that is the end."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # so that the interpreter does not complain that it cannot flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(0) from None


def rows(columns: Sequence[str], found: Iterable[Mapping[str, Any]], nothing: str) -> None:
    """A table, or a line for each row; `nothing` is said to people when there is no row."""
    if not for_people():
        for row in found:
            line(dict(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold", min_width=len(column))
    for row in found:
        table.add_row(*(_cell(row.get(column), column) for column in columns))
    if table.row_count:
        Console().print(table)
    else:
        click.echo(nothing)


def record(found: Mapping[str, Any]) -> None:
    """One thing: name and value a line, or a JSON line."""
    if not for_people():
        line(dict(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.items():
        table.add_row(name, _cell(value, name))
    Console().print(table)


def done(sentence: str, **result: Any) -> None:
    """What was done: a sentence for people, a JSON line for programs."""
    if for_people():
        click.echo(sentence)
    else:
        line(result)


def text(value: Any) -> str:
    """A value in a line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cell(value: Any, name: str) -> Any:
    """What a table shows: text as it is, never as markup; times as people write them."""
    from rich.text import Text

    if isinstance(value, int) and value > 0 and name.lower().endswith("timestamp"):
        return Text(datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds"))
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:,.1f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if isinstance(value, list) and not value:
        return Text("-", style="dim")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return Text(", ".join(value))
    return Text(text(value))

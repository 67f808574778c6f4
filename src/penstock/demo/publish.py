"""Publishes the flights over REST, in batches."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Any, Final

import click
import msgspec

from penstock.client.http import HttpClient
from penstock.client.paths import topic_path
from penstock.model.names import TopicName

from .flights import SCHEMA, read_flights

BATCH: Final = 1000
IN_FLIGHT: Final = 3  # requests on their way while the next is made

LATE: Final = 5
BROKEN: Final = (b"no flight at all", b'{"carrier": ', b"\x00\xff")

_encode = msgspec.json.Encoder().encode


def publish_flights(url: str, topic: TopicName, progress: Callable[[int], None]) -> int:
    """Publish every flight, keyed by its carrier; returns how many there were. All are durable then."""
    published = 0
    with HttpClient(url) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:
        pending: set[Future[int]] = set()
        for body in _bodies():
            pending.add(pool.submit(_send, client, topic, body))
            if len(pending) >= IN_FLIGHT:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    published += future.result()
                    progress(published)
        for future in pending:
            published += future.result()
            progress(published)
    return published


def publish_trouble(url: str, topic: TopicName) -> tuple[int, int]:
    """Publish flights of last winter that come too late, bytes that are no flight, and one flight of the next year.

    Returns how many are late and how many are broken. The next year's flight ends the old one: no hour of it waits
    for further flights.
    """
    late = list(islice(read_flights(), LATE))
    new_year = {**late[0], "year": 2014, "time_hour": "2014-01-02T10:00:00Z"}
    schema = {"type": "JSON", "schema": SCHEMA}
    with HttpClient(url) as client:
        messages = [{"key": flight["carrier"], "value": flight} for flight in [*late, new_year]]
        _check(client.produce(topic, messages, value_schema=schema))
        broken = [{"key": "??", "value": b64encode(text).decode()} for text in BROKEN]
        _check(client.produce(topic, broken, schema_type="bytes"))
    return len(late), len(broken)


def _bodies() -> Iterator[bytes]:
    flights = read_flights()
    schema = {"type": "JSON", "schema": SCHEMA}
    while batch := list(islice(flights, BATCH)):
        messages = [{"key": flight["carrier"], "value": flight} for flight in batch]
        yield _encode({"value_schema": schema, "messages": messages})


def _send(client: HttpClient, topic: TopicName, body: bytes) -> int:
    answer = client.call(
        "POST", topic_path(topic), content=body, headers={"content-type": "application/json"}
    )
    return _check(answer)


def _check(answer: Any) -> int:
    """How many messages were taken."""
    results: list[dict[str, Any]] = answer["messageIds"]
    for result in results:
        if result["error_code"]:
            raise click.ClickException(f"a flight was refused: {result['error']}")
    return len(results)

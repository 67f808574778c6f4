"""Publishes the flights over REST, in batches."""

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
    results: list[dict[str, Any]] = answer["messageIds"]
    for result in results:
        if result["error_code"]:
            raise click.ClickException(f"a flight was refused: {result['error']}")
    return len(results)

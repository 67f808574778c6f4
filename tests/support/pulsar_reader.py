"""What a Pulsar cluster has, read with Pulsar's own client."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pulsar

from .cluster_load import Place


class PulsarReader:
    """`cluster_load.Reader`."""

    def __init__(self, url: str) -> None:
        self._url = url

    def messages(self, path: str) -> list[tuple[str, Place]]:
        with self._client() as client:
            reader = client.create_reader(f"persistent://{path}", pulsar.MessageId.earliest)
            found: list[tuple[str, Place]] = []
            while reader.has_message_available():
                found.append(_read(reader.read_next(30_000)))
            return found

    def left(self, path: str, subscription: str, sure: Counter[str]) -> Counter[str]:
        with self._client() as client:
            consumer = client.subscribe(f"persistent://{path}", subscription, pulsar.ConsumerType.Shared)
            again: Counter[str] = Counter()
            with contextlib.suppress(pulsar.Timeout):
                while True:  # all that is left, and what should not come any more
                    wait_ms = 60_000 if sure - again else 300
                    again[consumer.receive(wait_ms).data().decode()] += 1
            return again

    @contextlib.contextmanager
    def _client(self) -> Iterator[Any]:
        client = pulsar.Client(self._url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            yield client
        finally:
            client.close()


def _read(message: Any) -> tuple[str, Place]:
    at = message.message_id()
    return message.data().decode(), (at.ledger_id(), at.entry_id(), at.batch_index())

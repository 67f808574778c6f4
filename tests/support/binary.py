"""The official Pulsar client against a server in this process."""

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

import httpx
import pulsar

from penstock.testing.server import Running, running

TIMEOUT_MS = 30_000
QUIET_MS = 300  # long enough for a message that should not come to have come

_numbers = itertools.count()


class Pulsar:
    """A server, and clients of it that are closed with the test."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, trust_env=False)
        self._clients: list[pulsar.Client] = []
        self._default: pulsar.Client | None = None

    def topic(self, what: str = "t") -> str:
        """A topic nobody else uses."""
        return f"persistent://public/default/{what}-{next(_numbers)}"

    def new_client(self, url: str | None = None, **options: Any) -> pulsar.Client:
        """One more client, on a connection of its own."""
        options.setdefault("operation_timeout_seconds", 30)
        client = pulsar.Client(
            url or self.server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), **options
        )
        self._clients.append(client)
        return client

    @property
    def client(self) -> pulsar.Client:
        if self._default is None:
            self._default = self.new_client()
        return self._default

    def subscribe(
        self,
        topic: Any,
        name: str = "s",
        type: pulsar.ConsumerType = pulsar.ConsumerType.Shared,
        **options: Any,
    ) -> pulsar.Consumer:
        """A consumer from the earliest message on, unless told otherwise."""
        options.setdefault("initial_position", pulsar.InitialPosition.Earliest)
        options.setdefault("negative_ack_redelivery_delay_ms", 100)
        return self.client.subscribe(topic, name, consumer_type=type, **options)

    def publish(self, topic: str, *payloads: bytes, **options: Any) -> list[pulsar.MessageId]:
        """Publish and close the producer."""
        producer = self.client.create_producer(topic, **options)
        try:
            return [producer.send(payload) for payload in payloads]
        finally:
            producer.close()

    def publish_batch(self, topic: str, *payloads: bytes, **options: Any) -> list[pulsar.MessageId]:
        """Publish as one batch; the ids."""
        producer = self.client.create_producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=60_000, **options
        )
        ids: list[pulsar.MessageId] = []

        def done(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            assert result == pulsar.Result.Ok, result
            ids.append(message_id)

        for payload in payloads:
            producer.send_async(payload, done)
        producer.flush()
        producer.close()
        return ids

    def close_clients(self) -> None:
        """End every client; the next test that asks for one has another."""
        self._default = None
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(Exception):
                client.close()

    def close(self) -> None:
        self.close_clients()
        self.http.close()


def take(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[bytes]:
    """The payloads of the next messages."""
    found = []
    for _ in range(count):
        message = consumer.receive(TIMEOUT_MS)
        found.append(message.data())
        if ack:
            consumer.acknowledge(message)
    return found


def nothing_more(consumer: pulsar.Consumer) -> None:
    """Nothing comes for a while."""
    try:
        message = consumer.receive(QUIET_MS)
    except pulsar.Timeout:
        return
    raise AssertionError(f"unexpected {message.data()!r} {message.message_id()}")


@contextlib.contextmanager
def pulsar_server(**options: Any) -> Iterator[Pulsar]:
    with running(**options) as server:
        made = Pulsar(server)
        try:
            yield made
        finally:
            made.close()

"""Clients of Kafka that a test makes itself, in the place of librdkafka's."""

from collections.abc import Callable
from typing import Any

from penstock.engines.kafka.driver.failures import ClientErrors


class FakeClients:
    """`driver.clients.Clients`: `make` gets the properties of each client."""

    def __init__(self, make: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self.generation = 0
        self.renewed: list[Callable[[], None]] = []
        self.errors = ClientErrors()
        self._make = make

    def producer(self, kind: str, own: dict[str, Any]) -> Any:
        assert self._make is not None
        return self._make(own)

    def poll_too(self, client: Any) -> Any:
        return client

    def renew(self) -> None:
        """Other certificates are there."""
        self.generation += 1
        for renew in self.renewed:
            renew()

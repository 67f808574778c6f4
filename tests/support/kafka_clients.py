"""Clients of Kafka that a test makes itself, in the place of librdkafka's."""

from collections.abc import Callable
from typing import Any

from penstock.engines.kafka.driver.errors import ClientErrors


class FakeClients:
    """`driver.clients.Clients`: `make` gets the properties of each client."""

    def __init__(self, make: Callable[[dict[str, Any]], Any] | None = None) -> None:
        self.generation = 0
        self.on_renewal: list[Callable[[], None]] = []
        self.errors = ClientErrors()
        self._make = make

    def producer(self, kind: str, own: dict[str, Any]) -> Any:
        assert self._make is not None
        return self._make(own)

    def poll_in_background(self, client: Any) -> Any:
        return client

    def renew(self) -> None:
        """Have other certificates used."""
        self.generation += 1
        for renew in self.on_renewal:
            renew()

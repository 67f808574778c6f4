"""A broker for tests of faults, and the relay that everybody reaches it by."""

import os
from collections.abc import Sequence
from typing import Final
from uuid import uuid4

from .kafka_broker import KafkaCluster
from .relay import Relay

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
ROUNDS: Final = 3 if SOAK else 1  # of each fault
# The processes of a service prove to one another with it that they are of the same service.
SECRET: Final = {"PENSTOCK_FLEET__SECRET": "a secret of the processes of a test"}


class Way:
    """The broker, and the relay that everybody reaches it by."""

    def __init__(self) -> None:
        self.cluster: KafkaCluster
        self.relay: Relay
        self._relays: list[Relay] = []

    def reached_at(self, port: int) -> int:
        self.relay = Relay(port)
        self._relays.append(self.relay)
        return self.relay.port

    def close(self) -> None:
        """End the relay; harmless where the broker was never started."""
        for one in self._relays:
            one.close()


def new_service() -> str:
    """The topic of documents of a service with its own internal topics."""
    return f"__{uuid4().hex[:10]}"


def flags_of(cluster: KafkaCluster, service: str, *more: str) -> Sequence[str]:
    """Of a process of a service."""
    topics = [
        part
        for key, name in (("documents", ""), ("replies", "-replies"), ("journals", "-journals"))
        for part in ("--set", f"engine.{key}_topic={service}{name}")
    ]
    return "--engine", cluster.service_url, "--log", "json", *topics, *more

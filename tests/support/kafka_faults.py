"""A broker for tests of faults, and the relay that everybody reaches it by."""

import os
from collections.abc import Sequence
from typing import Final

from .kafka_broker import KafkaCluster
from .relay import Relay

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
ROUNDS: Final = 3 if SOAK else 1  # of each fault


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


def flags_of(cluster: KafkaCluster, *more: str) -> Sequence[str]:
    return "--engine", cluster.service_url, "--pulsar", "off", "--log", "json", *more

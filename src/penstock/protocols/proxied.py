"""What WebSockets do, for the statistics of Pulsar's WebSocket proxy (Pulsar's WebSocket API)."""

from collections.abc import Iterator
from typing import Final

import msgspec

from penstock.broker.consumer import Consumer
from penstock.broker.producer import Producer
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.statistics import Histogram, Rate

# Buckets of the time to publish, in us; beyond the last is Pulsar's `…_higher`.
LATENCY_US: Final = (500, 1000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)


class Meter:
    """What the WebSockets of one namespace did, in messages and bytes."""

    def __init__(self, clock: Clock) -> None:
        self.publishes = Rate(clock)
        self.failures = Rate(clock)
        self.deliveries = Rate(clock)
        self.acks = Rate(clock)
        self.latency = Histogram(LATENCY_US)  # one value a group of messages that were published at once


class ProxiedSocket(msgspec.Struct, eq=False):
    """One socket: the role at its other end, and its producer or consumer (a reader's too)."""

    meter: Meter
    remote: str
    role: str
    topics: tuple[TopicName, ...]
    who: Producer | Consumer


class Proxied:
    """The sockets that are open, and the meters of their namespaces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sockets: set[ProxiedSocket] = set()
        self.meters: dict[NamespaceName, Meter] = {}

    def enter(
        self, remote: str, role: str, topics: tuple[TopicName, ...], who: Producer | Consumer
    ) -> ProxiedSocket:
        """Count a socket in; `leave` it again. A pattern's sockets follow no topics yet, perhaps."""
        meter = self.meter(topics[0].namespace_name) if topics else Meter(self._clock)
        socket = ProxiedSocket(meter, remote, role, topics, who)
        self._sockets.add(socket)
        return socket

    def leave(self, socket: ProxiedSocket) -> None:
        """The socket is closed."""
        self._sockets.discard(socket)

    def meter(self, namespace: NamespaceName) -> Meter:
        """The meter of a namespace."""
        found = self.meters.get(namespace)
        if found is None:
            found = self.meters[namespace] = Meter(self._clock)
        return found

    def __iter__(self) -> Iterator[ProxiedSocket]:
        return iter(self._sockets)

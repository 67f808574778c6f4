"""Who is at a door, what they may do, and the bounds they are held to: one place for every door."""

import msgspec

from penstock.core.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the JSON doors, each with its reason."""

    max_request_bytes: int = 5 * 1024 * 1024 + 256 * 1024  # one message of the largest size, and its JSON
    max_messages_per_request: int = 10_000  # a request is worked on in one go
    max_read_messages: int = 10_000  # and so is an answer
    max_read_bytes: int = 16 * 1024 * 1024
    max_wait_ms: int = 300_000  # longest poll
    max_frame_bytes: int = 7 * 1024 * 1024 + 256 * 1024  # base64 of the largest message, and its JSON
    # Pulsar's webSocketSessionIdleTimeoutMillis (300,000) counts pings, which ASGI does not show: here it is off,
    # and a peer that is gone is found by the server's own pings (http.websocket_ping_s).
    websocket_idle_ms: int = 0
    websocket_outbox_bytes: int = 4 * 1024 * 1024  # written but not taken by a slow reader
    consumer_timeout_ms: int = 300_000  # a REST consumer that nobody asks for
    max_rest_consumers: int = 10_000
    binary_keep_alive_ms: int = 30_000  # Pulsar's keepAliveIntervalSeconds: then a ping, then the end
    binary_stall_ms: int = 30_000  # a client of the binary door that takes nothing of what waits for it
    max_properties_bytes: int = 256 * 1024  # properties of one message, names and values


class Gate:
    """What every door is given: the broker, the limits, and whether the server still takes work."""

    def __init__(self, broker: Broker, limits: Limits | None = None) -> None:
        self.broker = broker
        self.limits = limits or Limits()
        self.draining = False
        self.pulsar_url = ""  # where Pulsar's binary protocol is spoken; "" where it is not
        self.pulsar_advertised = False  # whether that is what the outside is to be told, whoever asks

    def session(self, token: str | None = None) -> "Session":
        """Admit somebody; raises UNAUTHENTICATED, and UNAVAILABLE once the server drains."""
        if self.draining:
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        return Session(self, None)


class Session:
    """Somebody admitted, under a role (None: authentication is off)."""

    __slots__ = ("gate", "role")

    def __init__(self, gate: Gate, role: str | None) -> None:
        self.gate = gate
        self.role = role

    def may_produce(self, topic: TopicName) -> None:
        """Raise FORBIDDEN unless the role may publish to `topic`."""

    def may_consume(self, topic: TopicName, subscription: str | None = None) -> None:
        """Raise FORBIDDEN unless the role may read `topic`."""

    def may_administer(self, namespace: NamespaceName | None = None) -> None:
        """Raise FORBIDDEN unless the role administers the namespace (None: the whole server)."""

"""The client at the other end of a connection: its identity, its expiry, and its connection."""

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo
from penstock.model.worker import CLIENT_PROPERTY
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.holding import Holding
from penstock.protocols.permission_watch import TIMER_MS_MAX, PermissionWatch
from penstock.protocols.rates import Allowance
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.tasks import Tasks
from penstock.wire.frames import Body, command_of, encode
from penstock.wire.pulsar_pb2 import AuthData, CommandAuthChallenge, FeatureFlags

AHEAD_MS: Final = (
    30_000  # new credentials are asked for so long before the end, or when half of the time is left
)
AGAIN_MS: Final = 1000  # not more often than this: the answer may be the same token again
REFRESH: Final = b"PulsarAuthRefresh"  # what Pulsar's clients know to mean: send the credentials again
PROTOCOL_VERSION: Final = 21

_PENDING: Final = "too much waits for the store"


class ProtocolViolation(Exception):
    """What the client did has no answer: the connection is closed, as Pulsar does."""


class Output(Protocol):
    """The way to one client. Nothing is written once it is closed."""

    paused: bool  # the client does not read: a writer that can wait waits for `writable`
    closed: bool

    def write(self, *pieces: bytes) -> None:
        """Send whole frames, in order."""

    async def writable(self) -> None:
        """Wait until the client reads, or is gone."""

    def count(self) -> None:
        """Count what the connection holds now; beyond its principal's share nothing more is read or delivered."""

    def admitted(self) -> None:
        """The client is admitted: what it sends is read on, in frames as large as messages."""

    def hold(self, why: str) -> None:
        """Read nothing more from the client until `release` of the same reason."""

    def release(self, why: str) -> None:
        """End a `hold`; harmless without one."""

    def cut(self, reason: str) -> None:
        """Close the connection: what the client does cannot be answered."""


class _Closed:
    """The output of a client that is gone: everything said to it is dropped."""

    paused = False
    closed = True

    def write(self, *pieces: bytes) -> None: ...
    async def writable(self) -> None: ...
    def count(self) -> None: ...
    def admitted(self) -> None: ...
    def hold(self, why: str) -> None: ...
    def release(self, why: str) -> None: ...
    def cut(self, reason: str) -> None: ...


CLOSED: Final = _Closed()


class Peer:
    """One client, as the handlers of its commands see it."""

    def __init__(self, context: ServerContext, output: Output, tasks: Tasks) -> None:
        self.context = context
        self.output = output
        self.tasks = tasks
        self.who: Caller | None = None
        self.peer_role: str | None = None  # what the client's certificate names
        self.address = ""  # of the client
        self.peer_address = ""  # and its port
        self.client = UNKNOWN_CLIENT  # what CONNECT says of it
        self.features = FeatureFlags()
        self.holding: Holding | None = None  # what the server holds for it
        self.allowance: Allowance | None = None  # how fast it may go
        self.pending_bytes = 0  # sent by its producers, and not stored yet
        self.closed = False
        self.of_worker = False  # it came to the address for workers of this server
        self.for_processes = False  # it came to the address for other processes of this service
        self.of_process = False  # it proved that it is another process of this service

    @property
    def broker(self) -> Broker:
        return self.context.broker

    def check_served(self) -> None:
        """Raise NOT_SUPPORTED if the cluster serves producers and consumers of the protocol itself."""
        if self.broker.cluster is not None and self.broker.cluster.traits.administered:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED,
                "this server stands before a cluster: producers and consumers of Pulsar's protocol connect to the"
                " cluster's brokers, which a lookup names",
            )

    def client_of(self, properties: dict[str, str]) -> ClientInfo:
        """The client program of a producer or consumer with these properties: a worker names it, else it is the peer."""
        if not self.of_worker:
            return self.client
        said = properties.pop(CLIENT_PROPERTY, None)
        return UNKNOWN_CLIENT if said is None else msgspec.json.decode(said, type=ClientInfo)

    @property
    def admitted(self) -> Caller:
        """Its identity; handlers are called only after CONNECT."""
        assert self.who is not None
        return self.who

    def send(self, body: Body) -> None:
        """Send the command that has `body` for its fields."""
        self.output.write(encode(command_of(body)))

    def pend(self, size: int) -> None:
        """Count entries that wait for the store; nothing more is read beyond the bound."""
        self.pending_bytes += size
        if self.pending_bytes >= self.context.limits.max_connection_bytes_in_flight:
            self.output.hold(_PENDING)

    def stored(self, size: int) -> None:
        """It waits no more."""
        self.pending_bytes -= size
        self.output.count()
        if self.pending_bytes < self.context.limits.max_connection_bytes_in_flight // 2:
            self.output.release(_PENDING)


class Credentials:
    """Credentials that end while a connection lasts: the client is asked for new ones, and cut off without them.

    Pulsar's brokers look every minute and ask once the credentials have expired; here a client is asked before, so
    that it is never without.
    """

    def __init__(self, peer: Peer, review: Callable[[], None]) -> None:
        """`review` is called when permissions changed."""
        self._peer = peer
        self._review = review
        self._clock: Clock = peer.broker.clock
        self._hold: PermissionWatch | None = None
        self._timer: Timer | None = None
        self._method = ""
        self._expires_ms = 0

    def follow(self, who: Caller, method: str | None) -> None:
        """Use these credentials from now on; `method` None: the client cannot be asked for others."""
        self.close()
        self._hold = who.watch(self._review, lambda reason: self._peer.output.cut(reason.message))
        if method is not None and who.expires_ms is not None:
            self._method, self._expires_ms = method, who.expires_ms
            self._plan()

    def _plan(self) -> None:
        left = self._expires_ms - self._clock.now_ms()
        wait = max(left - AHEAD_MS, left // 2)
        if wait >= AGAIN_MS:  # else there is no time for an answer
            due = self._ask if wait <= TIMER_MS_MAX else self._plan
            self._timer = self._clock.call_later(min(wait, TIMER_MS_MAX), due)

    def _ask(self) -> None:
        self._timer = None
        self._peer.send(
            CommandAuthChallenge(
                server_version=f"Penstock {__version__}",
                challenge=AuthData(auth_method_name=self._method, auth_data=REFRESH),
                protocol_version=PROTOCOL_VERSION,
            )
        )

    def close(self) -> None:
        """Stop all watches."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""The address of a service, and one connection to it: the handshake, keep-alive, and frames both ways."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.client.authentication import Authentication
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    InvalidUrl,
    PulsarException,
    ReadError,
    server_error,
)
from penstock.model.errors import PenstockError
from penstock.wire.frames import MESSAGE_BYTES_MAX, OVERHEAD_BYTES, Frame, FrameDecoder
from penstock.wire.pulsar_pb2 import (
    AuthData,
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

from .commands import framed

PROTOCOL_VERSION: Final = 20  # what the official Python client says; 20 adds topics that migrate
CLIENT_VERSION: Final = "Penstock-Python-v0.1.0"
KEEP_ALIVE_S: Final = 30.0  # Pulsar's: a ping after this, the end after twice this


# The ports of service URLs: `pulsar://host:6650`, `pulsar+ssl://…`, `http://…`, `https://…`; several hosts by commas.
_PORTS: Final = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}


class Address(NamedTuple):
    """A host to connect to."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """`host:port`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServiceUrl(NamedTuple):
    """The address of the service."""

    scheme: str
    addresses: tuple[Address, ...]

    @property
    def http(self) -> bool:
        """Whether topics are looked up over HTTP."""
        return self.scheme.startswith("http")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.scheme in ("pulsar+ssl", "https")


def parse_service_url(text: str) -> ServiceUrl:
    """Read a service URL. Raises InvalidUrl."""
    if "@" in text:  # the text before it may be a password: it is not repeated
        raise InvalidUrl("a service URL is like pulsar://127.0.0.1:6650, with no user or password in it")
    scheme, separator, rest = text.partition("://")
    hosts = rest.rstrip("/")
    if not separator or scheme not in _PORTS or not hosts:
        raise InvalidUrl(f"{text!r} is no address like pulsar://127.0.0.1:6650")
    tls = scheme in ("pulsar+ssl", "https")
    return ServiceUrl(scheme, tuple(_address(text, host, _PORTS[scheme], tls) for host in hosts.split(",")))


def _address(url: str, text: str, default: int, tls: bool) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or port.endswith("]"):
        host, port = text, str(default)
    host = host.removeprefix("[").removesuffix("]")
    if not host or "/" in host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise InvalidUrl(f"{url!r}: {text!r} is not host:port")
    return Address(host, int(port), tls)


class Hello(NamedTuple):
    """What a client says first. `proxy_to` names the broker that a proxy shall connect to; `entry_metadata` asks
    for what the broker knows of each entry, such as its number."""

    authentication: Authentication
    proxy_to: str | None = None
    entry_metadata: bool = False


class Connection:
    """The protocol's state. `ready` once the broker has answered; `broken` says why it cannot be used any more."""

    def __init__(self, hello: Hello, now: float) -> None:
        self.ready = False
        self.broken: PulsarException | None = None
        self.max_message_size = MESSAGE_BYTES_MAX
        self.protocol_version = 0
        self.supports_request_reply = False
        self._authentication = hello.authentication
        self._heard = now
        self._ping_due = now + KEEP_ALIVE_S
        self._decoder = FrameDecoder(receipts=True)
        self._out: list[bytes] = [framed(_connect(hello))]

    def send(self, *frames: bytes) -> None:
        """Frames to be written, in order."""
        self._out += frames

    def take(self) -> list[bytes]:
        """The bytes to write now."""
        out, self._out = self._out, []
        return out

    def receive(self, data: bytes, now: float) -> list[Frame]:
        """The commands in `data` that are not the connection's own business."""
        self._heard = now
        events: list[Frame] = []
        try:
            for frame in self._decoder.feed(data):  # an error must not lose the frames before it
                if frame.receipt is not None or not self._own(frame.command):
                    events.append(frame)  # noqa: PERF401
        except PenstockError as error:
            self.broken = ReadError(f"the broker sent what is not the protocol: {error.message}")
        return events

    def tick(self, now: float) -> float:
        """Keep alive; returns when to call again."""
        if now >= self._ping_due:
            if now - self._heard >= 2 * KEEP_ALIVE_S:
                self.broken = ReadError(f"the broker has been silent for {now - self._heard:.0f} s")
            elif now - self._heard >= KEEP_ALIVE_S:
                self.send(_PING)
            self._ping_due = now + KEEP_ALIVE_S
        return self._ping_due

    def _own(self, command: BaseCommand) -> bool:
        kind = command.type
        if kind == BaseCommand.PING:
            self.send(_PONG)
        elif kind == BaseCommand.CONNECTED:
            self._connected(command)
        elif kind == BaseCommand.AUTH_CHALLENGE:
            self._challenged()
        elif kind == BaseCommand.ERROR and not self.ready:
            self.broken = self._refusal(server_error(command.error.error, command.error.message))
        elif kind != BaseCommand.PONG:
            return False
        return True

    def _refusal(self, error: PulsarException) -> PulsarException:
        """The broker answers CONNECT with an error, perhaps of authentication."""
        if isinstance(error, AuthenticationError | AuthorizationError):
            return self._authentication.refused(error)
        return error

    def _connected(self, command: BaseCommand) -> None:
        connected = command.connected
        self.ready = True
        self.protocol_version = connected.protocol_version
        self.supports_request_reply = connected.feature_flags.supports_request_reply
        if connected.max_message_size > 0:
            self.max_message_size = connected.max_message_size
            self._decoder.frame_size_max = max(MESSAGE_BYTES_MAX, self.max_message_size) + OVERHEAD_BYTES

    def _challenged(self) -> None:
        """The broker wants fresh credentials: the client's, or those of the principal that it acts for if it forwards them."""
        asked = self._authentication.original or self._authentication
        try:
            data = AuthData(auth_method_name=asked.method, auth_data=asked.data())
        except PulsarException as error:
            self.broken = error
            return
        answer = CommandAuthResponse(
            client_version=CLIENT_VERSION, protocol_version=PROTOCOL_VERSION, response=data
        )
        self.send(framed(answer))


def _connect(hello: Hello) -> CommandConnect:
    who = hello.authentication
    original = who.original if who.original_principal else None
    return CommandConnect(
        client_version=CLIENT_VERSION,
        protocol_version=PROTOCOL_VERSION,
        auth_method_name=who.method,
        auth_data=who.data() or None,
        original_principal=who.original_principal or None,
        original_auth_method=None if original is None else original.method,
        original_auth_data=None if original is None else original.data().decode(),
        proxy_to_broker_url=hello.proxy_to,
        feature_flags=FeatureFlags(
            supports_auth_refresh=True,
            supports_broker_entry_metadata=True if hello.entry_metadata else None,
            supports_request_reply=True,
        ),
    )


_PING: Final = framed(CommandPing())
_PONG: Final = framed(CommandPong())

"""One connection: the handshake, keep-alive, and frames both ways."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.client.authentication import Authentication
from penstock.client.errors import PulsarException, ReadError, server_error
from penstock.model.errors import PenstockError
from penstock.wire.frames import MESSAGE_BYTES_MAX, OVERHEAD_BYTES, Frame, FrameDecoder, encode
from penstock.wire.pulsar_pb2 import BaseCommand, FeatureFlags

PROTOCOL_VERSION: Final = 20  # what the official Python client says; topics that migrate are 20's news
CLIENT_VERSION: Final = "Penstock-Python-v0.1.0"
KEEP_ALIVE_S: Final = 30.0  # Pulsar's: a ping after this, the end after twice this


class Hello(NamedTuple):
    """What a client says first. `proxy_to` names the broker that a proxy shall connect to."""

    authentication: Authentication
    proxy_to: str | None = None


class Connection:
    """The protocol's state. `ready` once the broker has answered; `broken` tells why it is of no more use."""

    def __init__(self, hello: Hello, now: float, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self.ready = False
        self.broken: PulsarException | None = None
        self.max_message_size = MESSAGE_BYTES_MAX
        self.protocol_version = 0
        self.supports_request_reply = False
        self._authentication = hello.authentication
        self._keep_alive_s = keep_alive_s
        self._heard = now
        self._ping_due = now + keep_alive_s
        self._decoder = FrameDecoder()
        self._out: list[bytes] = [encode(_connect(hello))]

    def send(self, *frames: bytes) -> None:
        """Frames to be written, in order."""
        self._out += frames

    def take(self) -> list[bytes]:
        """What is to be written now."""
        out, self._out = self._out, []
        return out

    def receive(self, data: bytes, now: float) -> list[Frame]:
        """The commands in `data` that are not the connection's own business."""
        self._heard = now
        events: list[Frame] = []
        try:
            for frame in self._decoder.feed(data):  # an error must not lose the frames before it
                if not self._own(frame.command):
                    events.append(frame)  # noqa: PERF401
        except PenstockError as error:
            self.broken = ReadError(f"the broker sent what is not the protocol: {error.message}")
        return events

    def tick(self, now: float) -> float:
        """Keep alive; returns when to call again."""
        if now >= self._ping_due:
            if now - self._heard >= 2 * self._keep_alive_s:
                self.broken = ReadError(f"the broker has been silent for {now - self._heard:.0f} s")
            elif now - self._heard >= self._keep_alive_s:
                self.send(_PING)
            self._ping_due = now + self._keep_alive_s
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
            self.broken = server_error(command.error.error, command.error.message)
        elif kind != BaseCommand.PONG:
            return False
        return True

    def _connected(self, command: BaseCommand) -> None:
        connected = command.connected
        self.ready = True
        self.protocol_version = connected.protocol_version
        self.supports_request_reply = connected.feature_flags.supports_request_reply
        if connected.max_message_size > 0:
            self.max_message_size = connected.max_message_size
            self._decoder.frame_size_max = max(MESSAGE_BYTES_MAX, self.max_message_size) + OVERHEAD_BYTES

    def _challenged(self) -> None:
        """The broker wants fresh data of who this is; of whom it acts for, where it forwards their credentials."""
        asked = self._authentication.original or self._authentication
        command = BaseCommand(type=BaseCommand.AUTH_RESPONSE)
        answer = command.auth_response
        answer.client_version = CLIENT_VERSION
        answer.protocol_version = PROTOCOL_VERSION
        answer.response.auth_method_name = asked.method
        try:
            answer.response.auth_data = asked.data()
        except PulsarException as error:
            self.broken = error
            return
        self.send(encode(command))


def _connect(hello: Hello) -> BaseCommand:
    command = BaseCommand(type=BaseCommand.CONNECT)
    connect = command.connect
    connect.client_version = CLIENT_VERSION
    connect.protocol_version = PROTOCOL_VERSION
    connect.auth_method_name = hello.authentication.method
    data = hello.authentication.data()
    if data:
        connect.auth_data = data
    if hello.authentication.original_principal:
        connect.original_principal = hello.authentication.original_principal
        original = hello.authentication.original
        if original is not None:
            connect.original_auth_method = original.method
            connect.original_auth_data = original.data().decode()
    if hello.proxy_to is not None:
        connect.proxy_to_broker_url = hello.proxy_to
    connect.feature_flags.CopyFrom(FeatureFlags(supports_auth_refresh=True, supports_request_reply=True))
    return command


def _bare(kind: int) -> bytes:
    command = BaseCommand(type=kind)  # type: ignore[arg-type]
    if kind == BaseCommand.PING:
        command.ping.SetInParent()
    else:
        command.pong.SetInParent()
    return encode(command)


_PING: Final = _bare(BaseCommand.PING)
_PONG: Final = _bare(BaseCommand.PONG)

"""CONNECT, and what keeps a connection alive (reference/pulsar 5.3)."""

from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.model.errors import PenstockError
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandConnected,
    CommandPing,
    CommandPong,
    FeatureFlags,
)

from . import answers
from .output import send

if TYPE_CHECKING:
    from .session import Session

PROTOCOL_VERSION: Final = 21
CONNECT_REQUEST: Final = 2**64 - 1  # errors of CONNECT answer no request id; Pulsar sends -1

PING: Final = BaseCommand(type=BaseCommand.PING, ping=CommandPing())
PONG: Final = BaseCommand(type=BaseCommand.PONG, pong=CommandPong())

FEATURES: Final = FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_request_reply=True,
)


def connect(session: "Session", command: CommandConnect, frame: Frame) -> None:
    """Admit the client, or tell it why not and close."""
    try:
        session.who = session.gate.session(_token(command.auth_method_name, command.auth_data))
    except PenstockError as refused:
        send(session.output, answers.error(CONNECT_REQUEST, refused))
        session.output.cut(refused.message)
        return
    session.features.CopyFrom(command.feature_flags)
    send(
        session.output,
        BaseCommand(
            type=BaseCommand.CONNECTED,
            connected=CommandConnected(
                server_version=f"Penstock {__version__}",
                protocol_version=min(PROTOCOL_VERSION, max(0, command.protocol_version)),
                max_message_size=session.broker.settings.max_message_bytes,
                feature_flags=FEATURES,
            ),
        ),
    )


def auth_response(session: "Session", command: CommandAuthResponse, frame: Frame) -> None:
    """A new token, asked for by AUTH_CHALLENGE or not."""
    given = command.response
    try:
        session.who = session.gate.session(_token(given.auth_method_name, given.auth_data))
    except PenstockError as refused:
        send(session.output, answers.error(CONNECT_REQUEST, refused))
        session.output.cut(refused.message)


def ping(session: "Session", command: CommandPing, frame: Frame) -> None:
    send(session.output, PONG)


def pong(session: "Session", command: CommandPong, frame: Frame) -> None:
    """Heard, as everything is."""


def _token(method: str, data: bytes) -> str | None:
    return data.decode("utf-8", "replace") if method == "token" else None

"""CONNECT, and what keeps a connection alive (Pulsar's binary protocol)."""

from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.model.errors import PenstockError
from penstock.model.policy import ClientInfo
from penstock.protocols.auth.proxies import Original
from penstock.protocols.caller import VERSION_CHARACTERS_MAX, Caller
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
    from .session import Session, Work

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


def connect(session: "Session", command: CommandConnect, frame: Frame) -> "Work | None":
    """Admit the client, or tell it why not and close."""
    try:
        anybody = Caller.unauthenticated(session.context)
    except PenstockError as refused:
        _refuse(session, refused)
        return None
    if anybody is None:
        return _authenticate(session, command)
    _connected(session, command, anybody)
    return None


async def _authenticate(session: "Session", command: CommandConnect) -> None:
    try:
        method, data = command.auth_method_name, command.auth_data
        original = Original(
            command.original_principal, command.original_auth_method, command.original_auth_data.encode()
        )
        who = await Caller.admit_method(session.context, method, data, session.peer_role, original)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        _connected(session, command, who)


def _refuse(session: "Session", refused: PenstockError) -> None:
    send(session.output, answers.error(CONNECT_REQUEST, refused))
    session.output.cut(refused.message)


def _connected(session: "Session", command: CommandConnect, who: Caller) -> None:
    shown = command.original_auth_method if command.original_auth_data else command.auth_method_name
    session.admit(who, shown, refreshes=command.feature_flags.supports_auth_refresh)
    session.features.CopyFrom(command.feature_flags)
    session.client = ClientInfo(session.peer_address, command.client_version[:VERSION_CHARACTERS_MAX])
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


def auth_response(session: "Session", command: CommandAuthResponse, frame: Frame) -> "Work | None":
    """New credentials of the same role, or of the proxy's, asked for by AUTH_CHALLENGE or not."""
    return None if session.context.auth is None else _refresh(session, command)


async def _refresh(session: "Session", command: CommandAuthResponse) -> None:
    given = command.response
    try:
        who = await session.admitted.renewed(given.auth_method_name, given.auth_data, session.peer_role)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        session.admit(who, given.auth_method_name, refreshes=True)


def ping(session: "Session", command: CommandPing, frame: Frame) -> None:
    send(session.output, PONG)


def pong(session: "Session", command: CommandPong, frame: Frame) -> None:
    """Heard, as everything is."""

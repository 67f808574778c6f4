"""Which command is whose: everything that a client may say to a broker. CONNECT, and what keeps a connection alive."""

from collections.abc import Callable
from typing import Any, Final

from penstock import __version__
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import ClientInfo
from penstock.protocols.auth.proxies import Original
from penstock.protocols.clients import VERSION_CHARACTERS_MAX
from penstock.protocols.session import Session as Admitted
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

from . import acks, answers, consumer_commands, producer_commands, schemas, topics
from .peer import PROTOCOL_VERSION
from .session import Handler, Session, Work

CONNECT_REQUEST: Final = 2**64 - 1  # errors of CONNECT answer no request id; Pulsar sends -1

FEATURES: Final = FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_request_reply=True,
)


def _connect(session: Session, command: CommandConnect, frame: Frame) -> Work | None:
    """Admit the client, or tell it why not and close."""
    try:
        anybody = session.context.admit_anybody()
    except PenstockError as refused:
        _refuse(session, refused)
        return None
    if anybody is None:
        return _authenticate(session, command)
    _connected(session, command, anybody)
    return None


async def _authenticate(session: Session, command: CommandConnect) -> None:
    try:
        method, data = command.auth_method_name, command.auth_data
        original = Original(
            command.original_principal, command.original_auth_method, command.original_auth_data.encode()
        )
        who = await session.context.admit_method(method, data, session.peer_role, original)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        _connected(session, command, who)


def _refuse(session: Session, refused: PenstockError) -> None:
    session.send(answers.error(CONNECT_REQUEST, refused))
    session.output.cut(refused.message)


def _connected(session: Session, command: CommandConnect, who: Admitted) -> None:
    shown = command.original_auth_method if command.original_auth_data else command.auth_method_name
    session.admit(who, shown, refreshes=command.feature_flags.supports_auth_refresh)
    session.features.CopyFrom(command.feature_flags)
    session.client = ClientInfo(session.peer_address, command.client_version[:VERSION_CHARACTERS_MAX])
    session.send(
        CommandConnected(
            server_version=f"Penstock {__version__}",
            protocol_version=min(PROTOCOL_VERSION, max(0, command.protocol_version)),
            max_message_size=session.broker.settings.max_message_bytes,
            feature_flags=FEATURES,
        )
    )


def _auth_response(session: Session, command: CommandAuthResponse, frame: Frame) -> Work | None:
    """New credentials of the same role, or of the proxy's, asked for by AUTH_CHALLENGE or not."""
    return None if session.context.auth is None else _renew(session, command)


async def _renew(session: Session, command: CommandAuthResponse) -> None:
    given = command.response
    try:
        who = await session.admitted.renewed(given.auth_method_name, given.auth_data, session.peer_role)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        session.admit(who, given.auth_method_name, refreshes=True)


def _ping(session: Session, command: CommandPing, frame: Frame) -> None:
    session.send(CommandPong())


def _pong(session: Session, command: CommandPong, frame: Frame) -> None:
    """The connection noted that something came."""


def _no_transactions(session: Session, command: object, frame: Frame) -> None:
    """There is no transaction coordinator here."""
    none = PenstockError(ErrorKind.BAD_PARAMETER, "transactions are not supported")
    session.send(answers.error(getattr(command, "request_id", 0), none))


def _answered(handle: Callable[[Session, Any], Work]) -> Handler:
    """The handler of a request that is answered with ERROR where `handle` raises."""
    return lambda session, command, frame: session.answered(command.request_id, handle(session, command))


HANDLERS: Final[dict[int, Handler]] = {
    BaseCommand.CONNECT: _connect,
    BaseCommand.AUTH_RESPONSE: _auth_response,
    BaseCommand.PING: _ping,
    BaseCommand.PONG: _pong,
    BaseCommand.PARTITIONED_METADATA: topics.partitioned_metadata,
    BaseCommand.LOOKUP: topics.lookup,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: _answered(topics.topics_of_namespace),
    BaseCommand.WATCH_TOPIC_LIST: _answered(topics.watch),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: topics.close_watch,
    BaseCommand.PRODUCER: producer_commands.producer,
    BaseCommand.SEND: producer_commands.send_message,
    BaseCommand.CLOSE_PRODUCER: _answered(producer_commands.close_producer),
    BaseCommand.SUBSCRIBE: _answered(consumer_commands.subscribe),
    BaseCommand.FLOW: consumer_commands.flow,
    BaseCommand.ACK: acks.ack,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.redeliver,
    BaseCommand.SEEK: _answered(consumer_commands.seek),
    BaseCommand.UNSUBSCRIBE: _answered(consumer_commands.unsubscribe),
    BaseCommand.CLOSE_CONSUMER: _answered(consumer_commands.close_consumer),
    BaseCommand.GET_LAST_MESSAGE_ID: _answered(consumer_commands.last_message_id),
    BaseCommand.CONSUMER_STATS: consumer_commands.consumer_stats,
    BaseCommand.GET_SCHEMA: schemas.get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _no_transactions,
    BaseCommand.NEW_TXN: _no_transactions,
    BaseCommand.ADD_PARTITION_TO_TXN: _no_transactions,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _no_transactions,
    BaseCommand.END_TXN: _no_transactions,
}

"""Which command is whose: everything that a client may say to a broker. CONNECT, and what keeps a connection alive."""

from collections.abc import Callable
from typing import Any, Final

from penstock import __version__
from penstock.broker.fleet import PROCESS_METHOD
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import ClientInfo
from penstock.model.worker import METHOD
from penstock.protocols.auth.proxies import Original
from penstock.protocols.caller import Caller
from penstock.protocols.clients import VERSION_CHARACTERS_MAX
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.frames import Frame

from . import acks, answers, consumer_commands, producer_commands, schemas, topics
from .peer import PROTOCOL_VERSION
from .session import Handler, Session, Work

CONNECT_REQUEST: Final = 2**64 - 1  # errors of CONNECT answer no request id; Pulsar sends -1

FEATURES: Final = pb.FeatureFlags(
    supports_auth_refresh=True,
    supports_broker_entry_metadata=True,
    supports_partial_producer=True,
    supports_topic_watchers=True,
    supports_get_partitioned_metadata_without_auto_creation=True,
    supports_request_reply=True,
)


def _connect(session: Session, command: pb.CommandConnect, frame: Frame) -> Work | None:
    """Admit the client, or send the reason and close."""
    if command.auth_method_name == PROCESS_METHOD and not session.of_worker:
        _admit_process(session, command)
        return None
    if session.for_processes:
        _refuse(
            session,
            PenstockError(ErrorKind.UNAUTHENTICATED, "clients connect to another address of this server"),
        )
        return None
    if session.of_worker or command.auth_method_name == METHOD:
        return _authenticate(session, command)
    try:
        anybody = Caller.unauthenticated(session.context)
    except PenstockError as refused:
        _refuse(session, refused)
        return None
    if anybody is None:
        return _authenticate(session, command)
    _connected(session, command, anybody)
    return None


def _admit_process(session: Session, command: pb.CommandConnect) -> None:
    try:
        who = Caller.admit_process(session.context, command.auth_data)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    session.of_process = True
    _connected(session, command, who)


async def _authenticate(session: Session, command: pb.CommandConnect) -> None:
    try:
        method, data = command.auth_method_name, command.auth_data
        if session.of_worker != (method == METHOD):
            raise PenstockError(
                ErrorKind.UNAUTHENTICATED, "workers of this server connect to another address"
            )
        original = Original(
            command.original_principal, command.original_auth_method, command.original_auth_data.encode()
        )
        who = await Caller.admit_method(session.context, method, data, session.peer_role, original)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        _connected(session, command, who)


def _refuse(session: Session, refused: PenstockError) -> None:
    session.send(answers.error(CONNECT_REQUEST, refused))
    session.output.cut(refused.message)


def _connected(session: Session, command: pb.CommandConnect, who: Caller) -> None:
    shown = command.original_auth_method if command.original_auth_data else command.auth_method_name
    session.admit(who, shown, refreshes=command.feature_flags.supports_auth_refresh)
    session.features.CopyFrom(command.feature_flags)
    session.client = ClientInfo(session.peer_address, command.client_version[:VERSION_CHARACTERS_MAX])
    session.send(
        pb.CommandConnected(
            server_version=f"Penstock {__version__}",
            protocol_version=min(PROTOCOL_VERSION, max(0, command.protocol_version)),
            max_message_size=session.broker.settings.max_message_bytes,
            feature_flags=FEATURES,
        )
    )


def _auth_response(session: Session, command: pb.CommandAuthResponse, frame: Frame) -> Work | None:
    """New credentials of the same role, or of the proxy's, asked for by AUTH_CHALLENGE or not."""
    return None if session.context.auth is None else _renew(session, command)


async def _renew(session: Session, command: pb.CommandAuthResponse) -> None:
    given = command.response
    try:
        who = await session.admitted.renewed(given.auth_method_name, given.auth_data, session.peer_role)
    except PenstockError as refused:
        _refuse(session, refused)
        return
    if not session.closed:
        session.admit(who, given.auth_method_name, refreshes=True)


def _ping(session: Session, command: pb.CommandPing, frame: Frame) -> None:
    session.send(pb.CommandPong())


def _pong(session: Session, command: pb.CommandPong, frame: Frame) -> None:
    """The connection noted that something came."""


def _no_transactions(session: Session, command: object, frame: Frame) -> None:
    """Refuse: there is no transaction coordinator here."""
    none = PenstockError(ErrorKind.BAD_PARAMETER, "transactions are not supported")
    session.send(answers.error(getattr(command, "request_id", 0), none))


def _answered(handle: Callable[[Session, Any], Work]) -> Handler:
    """The handler of a request that is answered with ERROR if `handle` raises."""
    return lambda session, command, frame: session.answered(command.request_id, handle(session, command))


HANDLERS: Final[dict[int, Handler]] = {
    pb.BaseCommand.CONNECT: _connect,
    pb.BaseCommand.AUTH_RESPONSE: _auth_response,
    pb.BaseCommand.PING: _ping,
    pb.BaseCommand.PONG: _pong,
    pb.BaseCommand.PARTITIONED_METADATA: topics.partitioned_metadata,
    pb.BaseCommand.LOOKUP: topics.lookup,
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE: _answered(topics.topics_of_namespace),
    pb.BaseCommand.WATCH_TOPIC_LIST: _answered(topics.watch),
    pb.BaseCommand.WATCH_TOPIC_LIST_CLOSE: topics.close_watch,
    pb.BaseCommand.PRODUCER: producer_commands.producer,
    pb.BaseCommand.SEND: producer_commands.send_message,
    pb.BaseCommand.REQUEST_RECEIPT: producer_commands.withdraw_request,
    pb.BaseCommand.CLOSE_PRODUCER: _answered(producer_commands.close_producer),
    pb.BaseCommand.SUBSCRIBE: _answered(consumer_commands.subscribe),
    pb.BaseCommand.FLOW: consumer_commands.flow,
    pb.BaseCommand.ACK: acks.ack,
    pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.redeliver,
    pb.BaseCommand.SEEK: _answered(consumer_commands.seek),
    pb.BaseCommand.UNSUBSCRIBE: _answered(consumer_commands.unsubscribe),
    pb.BaseCommand.CLOSE_CONSUMER: _answered(consumer_commands.close_consumer),
    pb.BaseCommand.GET_LAST_MESSAGE_ID: _answered(consumer_commands.last_message_id),
    pb.BaseCommand.CONSUMER_STATS: consumer_commands.consumer_stats,
    pb.BaseCommand.GET_SCHEMA: schemas.get_schema,
    pb.BaseCommand.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema,
    pb.BaseCommand.TC_CLIENT_CONNECT_REQUEST: _no_transactions,
    pb.BaseCommand.NEW_TXN: _no_transactions,
    pb.BaseCommand.ADD_PARTITION_TO_TXN: _no_transactions,
    pb.BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _no_transactions,
    pb.BaseCommand.END_TXN: _no_transactions,
}

"""Which command is whose: everything that a client may say to a broker."""

from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import BaseCommand

from . import acks, answers, connect, consumers, lookup, producers, queries, schemas, topic_lists
from .output import send
from .session import Handler, Session


def _no_transactions(session: Session, command: object, frame: Frame) -> None:
    """There is no transaction coordinator here."""
    none = PenstockError(ErrorKind.BAD_PARAMETER, "transactions are not supported")
    send(session.output, answers.error(getattr(command, "request_id", 0), none))


HANDLERS: Final[dict[int, Handler]] = {
    BaseCommand.CONNECT: connect.connect,
    BaseCommand.AUTH_RESPONSE: connect.auth_response,
    BaseCommand.PING: connect.ping,
    BaseCommand.PONG: connect.pong,
    BaseCommand.PARTITIONED_METADATA: lookup.partitioned_metadata,
    BaseCommand.LOOKUP: lookup.lookup,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: topic_lists.topics_of_namespace,
    BaseCommand.WATCH_TOPIC_LIST: topic_lists.watch,
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: topic_lists.close_watch,
    BaseCommand.PRODUCER: producers.producer,
    BaseCommand.SEND: producers.send_message,
    BaseCommand.CLOSE_PRODUCER: producers.close_producer,
    BaseCommand.SUBSCRIBE: consumers.subscribe,
    BaseCommand.FLOW: consumers.flow,
    BaseCommand.ACK: acks.ack,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: acks.redeliver,
    BaseCommand.SEEK: consumers.seek,
    BaseCommand.UNSUBSCRIBE: consumers.unsubscribe,
    BaseCommand.CLOSE_CONSUMER: consumers.close_consumer,
    BaseCommand.GET_LAST_MESSAGE_ID: queries.last_message_id,
    BaseCommand.CONSUMER_STATS: queries.consumer_stats,
    BaseCommand.GET_SCHEMA: schemas.get_schema,
    BaseCommand.GET_OR_CREATE_SCHEMA: schemas.get_or_create_schema,
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: _no_transactions,
    BaseCommand.NEW_TXN: _no_transactions,
    BaseCommand.ADD_PARTITION_TO_TXN: _no_transactions,
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: _no_transactions,
    BaseCommand.END_TXN: _no_transactions,
}

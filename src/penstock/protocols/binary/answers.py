"""What answers have in common: errors, receipts, and message ids as the protocol writes them."""

from penstock.broker.delivery import Outcome
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.frames import mask_of
from penstock.wire.metadata import schema_version_bytes

BROKERS_OWN = 2**64 - 1  # the request id of what the broker does unasked


def error(request_id: int, refused: PenstockError) -> pb.CommandError:
    """ERROR, with the number the error has on the wire."""
    code = refused.kind.codes.server_error
    return pb.CommandError(request_id=request_id, error=code, message=refused.message)  # type: ignore[arg-type]


def send_error(producer_id: int, sequence_id: int, refused: PenstockError) -> pb.CommandSendError:
    return pb.CommandSendError(
        producer_id=producer_id,
        sequence_id=sequence_id,
        error=refused.kind.codes.server_error,  # type: ignore[arg-type]
        message=refused.message,
    )


def ack_response(
    consumer_id: int, request_id: int, refused: PenstockError | None, outcome: Outcome | None = None
) -> pb.CommandAckResponse:
    """`outcome`: of the reply that came with the acknowledgement."""
    answer = pb.CommandAckResponse(consumer_id=consumer_id, request_id=request_id)
    if outcome is not None:
        answer.message = outcome.value
    if refused is not None:
        answer.error = refused.kind.codes.server_error  # type: ignore[assignment]
        answer.message = refused.message
    return answer


def close_producer(producer_id: int) -> pb.CommandCloseProducer:
    return pb.CommandCloseProducer(producer_id=producer_id, request_id=BROKERS_OWN)


def close_consumer(consumer_id: int) -> pb.CommandCloseConsumer:
    return pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=BROKERS_OWN)


def no_consumer(consumer_id: int) -> PenstockError:
    return PenstockError(ErrorKind.CONSUMER_NOT_FOUND, f"there is no consumer {consumer_id}")


def schema_version(version: int | None) -> bytes:
    """Always there, though it may be empty, as Pulsar has it: the Java client reads it unasked, and hangs without."""
    return b"" if version is None else schema_version_bytes(version)


def id_data(message_id: MessageId) -> pb.MessageIdData:
    """An id as the protocol's message."""
    return pb.MessageIdData.FromString(message_id.to_bytes())


def message_id(data: pb.MessageIdData) -> MessageId:
    """An id as the rest of the project has it."""
    return MessageId.from_bytes(data.SerializeToString())


def start_of(data: pb.MessageIdData) -> MessageId:
    """The first message to send for a start at `data`: an entry from its beginning, or from the
    first message in its acknowledgement set. Clients pass over what comes before the one they want."""
    found = message_id(data)
    whole = MessageId(found.ledger, found.entry)
    if whole in (EARLIEST, LATEST):
        return whole
    unacked = mask_of(data.ack_set)
    if not unacked:
        return whole
    return MessageId(whole.ledger, whole.entry, -1, (unacked & -unacked).bit_length() - 1)

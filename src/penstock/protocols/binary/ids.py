"""Message ids over the wire, where they say from where on."""

from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.wire.commands import mask_of
from penstock.wire.pulsar_pb2 import MessageIdData


def message_id(data: MessageIdData) -> MessageId:
    """An id as the rest of the project has it."""
    return MessageId.from_bytes(data.SerializeToString())


def start_of(data: MessageIdData) -> MessageId:
    """The first message that is to be sent for a start at `data`: an entry from its beginning, or from the
    first message in its acknowledgement set. Clients pass over what comes before the one they want."""
    found = message_id(data)
    whole = MessageId(found.ledger, found.entry)
    if whole in (EARLIEST, LATEST):
        return whole
    unacked = mask_of(data.ack_set)
    if not unacked:
        return whole
    return MessageId(whole.ledger, whole.entry, -1, (unacked & -unacked).bit_length() - 1)

"""Batches as entries of one message each.

Brokers number an entry of a transaction as one message, whatever it holds (Pulsar 4.0: `TopicTransactionBuffer` appends it
without its count). The numbers of a batch's messages would be those of what came before it.
"""

from typing import Final

from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire import entry as wire
from penstock.wire.contents import compressed, is_sealed, parse, parse_head
from penstock.wire.messages import read_messages
from penstock.wire.pulsar_pb2 import NONE

COMPRESSED_BYTES_MIN: Final = 1024  # of a message that was in a compressed batch, to be worth it alone


def check_splits(entry: NewEntry) -> None:
    """Raise BAD_PARAMETER for a batch that only its receiver can open."""
    if entry.count > 1 and is_sealed(parse_head(entry.data)[0]):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            "a batch that is encrypted cannot be staged here, as the cluster numbers entries: encrypt messages one by one",
        )


def split_batch(data: bytes, publish_time: int) -> list[bytes]:
    """An entry of each message of a batch."""
    messages = read_messages(data, 0)
    outgoing = [message.again() for message in messages]
    made = wire.encode_each(outgoing, producer=messages[0].producer_name, publish_time=publish_time)
    kind = parse(data)[0].compression
    if kind == NONE:
        return [entry.data for entry in made]
    return [
        compressed(entry.data, kind) if len(message.payload) >= COMPRESSED_BYTES_MIN else entry.data
        for entry, message in zip(made, messages, strict=True)
    ]

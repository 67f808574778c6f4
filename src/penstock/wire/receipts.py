"""SEND_RECEIPT, read by hand: a producer gets one for each entry, and protobuf takes longer for it than for all else of a send.

    08 07 3a size | 08 producer id | 10 sequence id | 1a size ( 08 ledger | 10 entry [| 18 partition] ) [| 20 highest sequence id]

Anything else, and values out of the usual bounds, are left to protobuf: the two never differ in their results.
"""

from typing import Final

import msgspec

from penstock.model.message_id import read_positive, read_varint

from .metadata import signed
from .pulsar_pb2 import CommandSendReceipt

RECEIPT: Final = b"\x08\x07\x3a"  # what the command begins with
_INT32_MAX: Final = 0x7FFFFFFF
_PRODUCER_ID: Final = 0x08
_SEQUENCE_ID: Final = 0x10
_MESSAGE_ID: Final = 0x1A
_HIGHEST: Final = 0x20
_NONE: Final = b"\x20" + b"\xff" * 9 + b"\x01"  # a highest sequence id of -1: of an entry of one message
_LEDGER: Final = 0x08
_ENTRY: Final = 0x10
_PARTITION: Final = 0x18


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The position of a stored entry. Ledger and entry are -1 if the broker dropped it as a duplicate, the partition is -1 if the
    broker does not name it."""

    producer_id: int
    sequence_id: int
    ledger: int
    entry: int
    partition: int = -1


def read_receipt(data: bytes, at: int, end: int) -> Receipt | None:
    """The command in `data[at:end]`, which begins as a receipt does; None for one that protobuf must read."""
    at += len(RECEIPT)
    try:
        if data[at] >= 0x80 or at + 1 + data[at] != end or data[at + 1] != _PRODUCER_ID:
            return None
        producer_id, at = read_positive(data, at + 2)
        if data[at] != _SEQUENCE_ID:
            return None
        sequence_id, at = read_positive(data, at + 1)
        if data[at] != _MESSAGE_ID or data[at + 1] >= 0x80 or data[at + 2] != _LEDGER:
            return None
        stop = at + 2 + data[at + 1]
        ledger, at = read_positive(data, at + 3)
        if data[at] != _ENTRY:
            return None
        entry, at = read_positive(data, at + 1)
        partition = -1
        if at < stop and data[at] == _PARTITION:
            partition, at = read_positive(data, at + 1)
            if partition > _INT32_MAX:
                return None
        if at != stop or not (end == stop or data[stop:end] == _NONE or _ends(data, stop, end)):
            return None
    except (IndexError, ValueError):
        return None
    return Receipt(producer_id, sequence_id, ledger, entry, partition)


def receipt_of(body: CommandSendReceipt) -> Receipt:
    """The same of a command that was read by protobuf."""
    place = body.message_id
    return Receipt(
        body.producer_id,
        signed(body.sequence_id),
        signed(place.ledgerId),
        signed(place.entryId),
        place.partition,
    )


def _ends(data: bytes, at: int, end: int) -> bool:
    """Whether nothing but the highest sequence id follows, which the client knows."""
    return data[at] == _HIGHEST and read_varint(data, at + 1)[1] == end

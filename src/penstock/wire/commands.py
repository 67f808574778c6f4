"""The two commands that a broker sends for every entry, written by hand, and acknowledgement sets.

The bytes are those that protobuf itself would write.
"""

from collections.abc import Sequence
from typing import Final

from penstock.model.message_id import MessageId

from .fields import integer, sized, unsigned
from .frames import entry_head

_WORD_BITS: Final = 64
_WORD: Final = (1 << _WORD_BITS) - 1


def send_receipt(producer_id: int, sequence_id: int, message_id: MessageId, highest: int) -> bytes:
    """The frame of SEND_RECEIPT; `highest` is the entry's highest sequence id, 0 where it has only one."""
    inner = b"\x08" + unsigned(producer_id) + b"\x10" + unsigned(sequence_id)
    inner += b"\x1a" + sized(message_id.to_bytes())
    if highest:
        inner += b"\x20" + unsigned(highest)
    command = b"\x08\x07\x3a" + sized(inner)
    size = len(command)
    return b"".join(((size + 4).to_bytes(4, "big"), size.to_bytes(4, "big"), command))


def message_head(
    consumer_id: int,
    message_id: MessageId,
    entry_size: int,
    *,
    redeliveries: int = 0,
    ack_set: Sequence[int] = (),
    epoch: int | None = None,
    broker: bytes = b"",
) -> bytes:
    """What stands before the entry in the frame of MESSAGE."""
    inner = b"\x08" + unsigned(consumer_id) + b"\x12" + sized(message_id.to_bytes())
    if redeliveries:
        inner += b"\x18" + integer(redeliveries)
    for word in ack_set:
        inner += b"\x20" + integer(word)
    if epoch is not None:
        inner += b"\x28" + unsigned(epoch)
    return entry_head(b"\x08\x09\x4a" + sized(inner), entry_size, broker)


def ack_set_of(mask: int) -> list[int]:
    """A bit for each message as 64-bit words, the lowest first, signed as Java's longs are."""
    words: list[int] = []
    while mask:
        word = mask & _WORD
        words.append(word - (1 << _WORD_BITS) if word >> (_WORD_BITS - 1) else word)
        mask >>= _WORD_BITS
    return words


def mask_of(ack_set: Sequence[int]) -> int:
    """The bits of an acknowledgement set, as one number."""
    mask = 0
    for at, word in enumerate(ack_set):
        mask |= (word & _WORD) << (at * _WORD_BITS)
    return mask

"""The ids of a batch's messages in base64, without encoding each: they differ in the index alone.

    MessageIdData: 08 ledger 10 entry [18 partition] | 20 index 30 size
                   the same in every id of a batch   | the same in every batch of that size

In base64 three bytes are four characters. A byte of the left part that shares a group with the index is part of
what the right parts are remembered by; it changes seldom, being the highest byte of the entry's number, or the
partition's.
"""

from base64 import b64encode
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from penstock.model.message_id import varint

TAILS_MAX: Final = 64  # sizes of batches remembered, a hundred bytes a message: some 6 MiB at most


class Ending(NamedTuple):
    """What the right parts depend on: the byte shared, whether the index's tag went to the left, the
    batch's size."""

    shared: bytes
    tagged: bool
    size: int


def split(ledger: int, entry_id: int, partition: int, count: int) -> tuple[bytes, Ending]:
    """The characters that all ids of a batch begin with, and how they go on."""
    head = b"\x08" + varint(ledger) + b"\x10" + varint(entry_id)
    if partition >= 0:
        head += b"\x18" + varint(partition)
    over = len(head) % 3
    if over == 2:
        return b64encode(head + b"\x20"), Ending(b"", True, count)
    if over == 1:
        return b64encode(head[:-1]), Ending(head[-1:], False, count)
    return b64encode(head), Ending(b"", False, count)


@lru_cache(maxsize=TAILS_MAX)
def tails(ending: Ending) -> Sequence[bytes]:
    """How each id of a batch goes on, by its index."""
    start = b"" if ending.tagged else ending.shared + b"\x20"
    after = b"\x30" + varint(ending.size)
    return [b64encode(start + varint(index) + after) for index in range(ending.size)]


@lru_cache(maxsize=TAILS_MAX)
def _texts(ending: Ending) -> Sequence[str]:
    return [tail.decode() for tail in tails(ending)]


def alone_texts(ledger: int, entry_ids: Iterable[int], partition: int) -> list[str]:
    """The ids of messages that were sent alone."""
    start = b"\x08" + varint(ledger) + b"\x10"
    end = b"\x18" + varint(partition) if partition >= 0 else b""
    return [b2a_base64(start + varint(number) + end, newline=False).decode() for number in entry_ids]


def id_parts(ledger: int, entry_id: int, partition: int, count: int) -> tuple[str, Sequence[str]]:
    """What all ids of a batch begin with, and how each goes on."""
    head, ending = split(ledger, entry_id, partition, count)
    return head.decode(), _texts(ending)

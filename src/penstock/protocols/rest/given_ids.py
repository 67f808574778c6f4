"""Ids as clients give them back, many at a time: those of a batch in a row, and those of messages sent alone, are read
without an object for each."""

from binascii import a2b_base64
from collections.abc import Sequence
from itertools import takewhile
from operator import eq
from typing import Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId, read_varint, varint

from .batch_ids import id_parts

WRITTEN_PER_ID: Final = 8  # ids of batches that are written to compare them, for each that was given


class GivenIds(NamedTuple):
    """`masks` has by ledger and entry the messages as bits, -1 for a whole entry; `left` are the places of ids that were
    not read. Every other id is plain base64."""

    masks: dict[int, dict[int, int]]
    left: list[int]


def read_ids(texts: Sequence[str]) -> GivenIds:
    """Read ids; what is no message's own id, or no base64, is left."""
    found = GivenIds({}, [])
    at, allowance = 0, WRITTEN_PER_ID * len(texts)
    while at < len(texts):
        first = _parse(texts[at])
        if first is None:
            found.left.append(at)
            at += 1
            continue
        masks = found.masks.setdefault(first.ledger, {})
        entry, index, size = first.entry, first.batch_index, first.batch_size
        run = 0
        if index < 0:
            run = _read_alone(texts, at, first, masks)
        elif index < size <= allowance:
            allowance -= size
            run = _run_length(texts, at, first)
            masks[entry] = masks.get(entry, 0) | ((1 << run) - 1) << index
        if not run:
            run = 1
            masks[entry] = masks.get(entry, 0) | (-1 if index < 0 else 1 << index)
        at += run
    return found


def _parse(text: str) -> MessageId | None:
    try:
        found = MessageId.parse(text)
    except PenstockError:
        return None
    # Java's ids may be negative, and blanks around an id are no base64.
    own = found.ledger >= 0 and found.entry >= 0 and text != "latest" and text == text.strip()
    return found if own else None


def _run_length(texts: Sequence[str], at: int, first: MessageId) -> int:
    """How many ids from `at` on are those of a batch from `first` on."""
    index = first.batch_index
    start, ends = id_parts(first.ledger, first.entry, first.partition, first.batch_size)
    if index or len(texts) - at < len(ends):
        ends = ends[index : index + len(texts) - at]
    given = texts[at : at + len(ends)]
    # One comparison for all, usually. No id has a blank: where the joined texts are equal, so is each of them.
    if " ".join(given) == start + f" {start}".join(ends):
        return len(ends)
    return sum(1 for _ in takewhile(bool, map(eq, [start + end for end in ends], given)))


def _read_alone(texts: Sequence[str], at: int, first: MessageId, masks: dict[int, int]) -> int:
    """Read ids of messages sent alone from `at` on, which differ from `first` in the entry only; returns how many."""
    start = b"\x08" + varint(first.ledger) + b"\x10"
    end = b"\x18" + varint(first.partition) if first.partition >= 0 else b""
    begin = at
    try:
        while at < len(texts):
            data = a2b_base64(texts[at], strict_mode=True)
            if not data.startswith(start):
                break
            entry, stop = read_varint(data, len(start))
            if data[stop:] != end or entry >= 2**63:
                break
            masks[entry] = -1
            at += 1
    except ValueError:
        pass
    return at - begin

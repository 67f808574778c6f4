"""Cursors in commits of consumer groups, as earlier releases wrote them."""

from base64 import b64encode
from typing import Final

from penstock.engines.kafka.cursors import MAGIC
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.policy import SubscriptionType

METADATA_MAX: Final = 4095  # characters
_LETTERS: Final = {
    SubscriptionType.EXCLUSIVE: "E",
    SubscriptionType.FAILOVER: "F",
    SubscriptionType.SHARED: "S",
    SubscriptionType.KEY_SHARED: "K",
}
_UNKNOWN: Final = "?"
_BYTES_MAX: Final = (METADATA_MAX - len(MAGIC) - 2) // 4 * 3


def commit_of(cursor: OffsetSet, type: SubscriptionType | None) -> Committed:
    """The commit of a cursor."""
    return committed_cursor(cursor, type)[0]


def committed_cursor(cursor: OffsetSet, type: SubscriptionType | None) -> tuple[Committed, int]:
    """A cursor as a commit, and how many acknowledged offsets did not fit into it."""
    head = MAGIC + _LETTERS.get(type, _UNKNOWN) if type is not None else MAGIC + _UNKNOWN
    if not cursor.beyond:
        return Committed(cursor.mark, head), 0
    runs, in_runs = _runs(cursor)
    form, found, kept = "r", runs, in_runs
    if in_runs < cursor.beyond or len(runs) > _BYTES_MAX // 4:
        bits, in_bits = _bits(cursor)
        if in_bits > in_runs or (in_bits == in_runs and len(bits) < len(runs)):
            form, found, kept = "b", bits, in_bits
    return Committed(cursor.mark, f"{head}{form}{b64encode(found).decode()}"), cursor.beyond - kept


def _runs(cursor: OffsetSet) -> tuple[bytes, int]:
    found, kept, at = bytearray(), 0, cursor.mark
    for first, last in cursor.ranges():
        some = _varint(first - at) + _varint(last + 1 - first)
        if len(found) + len(some) > _BYTES_MAX:
            break
        found += some
        kept += last + 1 - first
        at = last + 1
    return bytes(found), kept


def _bits(cursor: OffsetSet) -> tuple[bytes, int]:
    bits = cursor.mask(cursor.mark, 8 * _BYTES_MAX)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little"), bits.bit_count()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)

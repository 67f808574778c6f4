"""Message ids: Pulsar's `MessageIdData`, in base64 on the JSON endpoints.

`CAAQAw==` is ledger 0, entry 3. A log of Penstock has one ledger, so that an id names its partition too.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from binascii import b2a_base64
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from .errors import ErrorKind, PenstockError

_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1
_CONTINUED: Final = tuple(bytes((n | 0x80,)) for n in range(0x80))  # the first byte of a longer varint
_UINT64: Final = 2**64
_POSITIVE_BYTES_MAX: Final = 9  # a larger one is negative to Pulsar's clients, or not a varint to protobuf


def varint(value: int) -> bytes:
    """Encode a non-negative integer as a protobuf varint."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Decode a varint of at most ten bytes; returns the value and the start of the next field."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("varint cut short or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _UINT64, at
        shift += 7


def read_positive(data: bytes, at: int) -> tuple[int, int]:
    """As `read_varint`, fast, for a number below 2^63; raises ValueError for others, and IndexError."""
    low = data[at]
    if low < 0x80:
        return low, at + 1
    middle = data[at + 1]
    if middle < 0x80:
        return low & 0x7F | middle << 7, at + 2
    high = data[at + 2]
    if high < 0x80:
        return low & 0x7F | (middle & 0x7F) << 7 | high << 14, at + 3
    value, end = read_varint(data, at)
    if end - at > _POSITIVE_BYTES_MAX:
        raise ValueError("not for here")
    return value, end


def _signed32(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


@lru_cache(maxsize=1024)  # ids of one log begin alike, and every message has one
def _beginning(ledger: int) -> bytes:
    return b"\x08" + varint(ledger % _UINT64) + b"\x10"


_small: Final = lru_cache(maxsize=4096)(varint)  # places in batches, and their sizes


class MessageId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The position of a message. `partition`, `batch_index` are -1 and `batch_size` is 0 without one."""

    ledger: int
    entry: int
    partition: int = -1
    batch_index: int = -1
    batch_size: int = 0

    def to_bytes(self) -> bytes:
        """`MessageIdData` with only the fields that are set (ledgerId=1 .. batch_size=6)."""
        out = _beginning(self.ledger) + varint(self.entry % _UINT64)
        if self.partition >= 0:
            out += b"\x18" + varint(self.partition)
        if self.batch_index >= 0:
            out += b"\x20" + _small(self.batch_index)
            if self.batch_size > 0:
                out += b"\x30" + _small(self.batch_size)
        return out

    @classmethod
    def from_bytes(cls, data: bytes) -> "MessageId":
        """Decode `MessageIdData`; unknown fields are passed over. Raises ValueError."""
        usual = _read_usual(data)
        if usual is not None:
            return cls(*usual)
        fields: dict[int, int] = {}
        at = 0
        while at < len(data):
            tag, at = read_varint(data, at)
            number, kind = tag >> 3, tag & 7
            if number == 0:
                raise ValueError("field 0 in a message id")
            if kind == 0:
                fields[number], at = read_varint(data, at)
                continue
            if kind == 2:
                size, at = read_varint(data, at)
            elif kind == 1:
                size = 8
            elif kind == 5:
                size = 4
            else:
                raise ValueError(f"wire type {kind} in a message id")
            at += size
            if at > len(data):
                raise ValueError("message id cut short")
        if 1 not in fields or 2 not in fields:
            raise ValueError("a message id needs a ledger and an entry")
        ledger, entry = (n - _UINT64 if n > _MAX_INT64 else n for n in (fields[1], fields[2]))
        # Normalized, so that ids of the same message are equal: Java writes what it has not as -1 or 0.
        partition = max(-1, _signed32(fields.get(3, -1)))
        batch_index = max(-1, _signed32(fields.get(4, -1)))
        batch_size = max(0, _signed32(fields.get(6, 0))) if batch_index >= 0 else 0
        return cls(ledger, entry, partition, batch_index, batch_size)

    def to_base64(self) -> bytes:
        """Its text as bytes."""
        return b2a_base64(self.to_bytes(), newline=False)

    def __str__(self) -> str:
        return self.to_base64().decode("ascii")

    @classmethod
    def parse(cls, text: str) -> "MessageId":
        """Read `earliest`, `latest` or base64; raises BAD_PARAMETER."""
        if text == "earliest":
            return EARLIEST
        if text == "latest":
            return LATEST
        try:
            return cls.from_bytes(b64decode(text.strip(), validate=True))
        except (ValueError, Base64Error):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid message id {text[:80]!r}") from None


def _read_usual(data: bytes) -> tuple[int, int, int, int, int] | None:
    """An id as `to_bytes` writes it, without a field for each part: those of messages are read so; None for others."""
    try:
        if data[0] != 0x08:
            return None
        ledger, at = read_positive(data, 1)
        if data[at] != 0x10:
            return None
        entry, at = read_positive(data, at + 1)
        end, partition = len(data), -1
        if at < end and data[at] == 0x18:
            partition, at = read_positive(data, at + 1)
        if partition > _MAX_INT32:
            return None
        if at == end:
            return ledger, entry, partition, -1, 0
        if data[at] != 0x20:
            return None
        index, at = read_positive(data, at + 1)
        if data[at] != 0x30:
            return None
        size, at = read_positive(data, at + 1)
        if at != end or index | size > _MAX_INT32:
            return None
        return ledger, entry, partition, index, size
    except (IndexError, ValueError):
        return None


def varints(numbers: Iterable[int]) -> list[bytes]:
    """The varint of each number, none of them negative; cheap if neighbours differ in their last bits only."""
    made: list[bytes] = []
    high, rest = -1, b""
    for number in numbers:
        if number < 0x80:
            made.append(varint(number))
            continue
        if number >> 7 != high:
            high = number >> 7
            rest = varint(high)
        made.append(_CONTINUED[number & 0x7F] + rest)
    return made


def run_varints(first: int, count: int) -> list[bytes]:
    """The varint of each number from `first`, which is not negative, up to `first + count`."""
    made: list[bytes] = []
    while count > 0:
        if first < 0x80:
            made.append(varint(first))
            first, count = first + 1, count - 1
            continue
        rest, low = varint(first >> 7), first & 0x7F
        made += [
            one + rest for one in _CONTINUED[low : low + count]
        ]  # at most up to the next multiple of 128
        first, count = first + 0x80 - low, count - (0x80 - low)
    return made


def run_texts(ledger: int, partition: int, first: int, count: int) -> list[bytes]:
    """`str` of the id of each entry from `first` up to `first + count`, as ASCII."""
    begin = _beginning(ledger)
    end = b"\x18" + varint(partition) if partition >= 0 else b""
    return [b2a_base64(begin + entry + end, newline=False) for entry in run_varints(first, count)]


def id_texts(ids: Sequence[MessageId]) -> list[bytes]:
    """`str` of each id, as ASCII; cheap if neighbours are of one log."""
    texts: list[bytes] = []
    ledger = partition = None
    begin = end = b""
    entries = varints([one.entry % _UINT64 for one in ids])
    for one, entry in zip(ids, entries, strict=True):
        if one.ledger != ledger or one.partition != partition:
            ledger, partition = one.ledger, one.partition
            begin = _beginning(ledger)
            end = b"\x18" + varint(partition) if partition >= 0 else b""
        data = begin + entry + end
        if one.batch_index >= 0:
            data += b"\x20" + varint(one.batch_index)
            if one.batch_size > 0:
                data += b"\x30" + varint(one.batch_size)
        texts.append(b2a_base64(data, newline=False))
    return texts


class IdWriter:
    """Writes ids as `to_base64` does, cheaply if neighbours are of one log."""

    __slots__ = ("_end", "_high", "_ledger", "_partition", "_start")

    def __init__(self) -> None:
        self._ledger = self._partition = (
            self._high
        ) = -1  # of the last one; of its entry all but the lowest seven bits
        self._start = self._end = b""

    def write(self, one: MessageId) -> bytes:
        """The text of an id."""
        entry = one.entry
        if entry >> 7 != self._high or one.ledger != self._ledger or one.partition != self._partition:
            self._begin(one)
        if one.batch_index >= 0 or self._high <= 0:
            return one.to_base64()
        return b2a_base64(self._start + _CONTINUED[entry & 0x7F] + self._end, newline=False)

    def _begin(self, one: MessageId) -> None:
        self._ledger, self._partition, self._high = one.ledger, one.partition, one.entry >> 7
        self._start = _beginning(one.ledger)
        self._end = varint(self._high % _UINT64) + (
            b"" if one.partition < 0 else b"\x18" + varint(one.partition)
        )


EARLIEST: Final = MessageId(-1, -1)
UNKNOWN_ID: Final = EARLIEST  # Pulsar's answer to a duplicate whose id is not known any more
LATEST: Final = MessageId(_MAX_INT64, _MAX_INT64)

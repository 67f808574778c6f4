"""A partition's bytes: its messages in the framing of the Kafka of 2012 (docs/kafka-rest.md).

    length u32 | magic u8 | attributes u8 | CRC-32 of the payload u32 | payload

`length` counts what follows it. Magic 0 has no attributes; it is understood and never written. The lowest two
bits of the attributes name a compression: 1 is gzip, and the payload is then a set of messages itself. A request has
a budget of what it may unfold to: a bomb stops at the bound, not at the end of memory.
"""

import struct
import zlib
from array import array
from collections.abc import Iterable
from itertools import accumulate, chain, repeat
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.compression import gunzip, unfold

HEAD_BYTES: Final = 10
MEDIA_TYPE: Final = "application/x-kafka"

_LENGTH_BYTES: Final = 4
_HEAD: Final = struct.Struct(">IBBI")
_LENGTH: Final = struct.Struct(">I")
_MAGIC: Final = 1
_GZIP: Final = 1


def render(payloads: Iterable[bytes], at: int = 0) -> "tuple[bytes, array[int]]":
    """The frames of `payloads`, and their starts, counted from `at`."""
    payloads = list(payloads)
    sizes = [len(payload) + HEAD_BYTES for payload in payloads]
    starts = array("Q", accumulate(sizes, initial=at))
    starts.pop()  # which is the end
    lengths = [size - _LENGTH_BYTES for size in sizes]
    heads = map(_HEAD.pack, lengths, repeat(_MAGIC), repeat(0), map(zlib.crc32, payloads))
    return b"".join(chain.from_iterable(zip(heads, payloads, strict=True))), starts


def payloads_in(frames: bytes) -> list[bytes]:
    """The payloads of frames that `render` made."""
    length = _LENGTH.unpack_from
    found: list[bytes] = []
    at, end = 0, len(frames)
    while at < end:
        until = at + _LENGTH_BYTES + length(frames, at)[0]
        found.append(frames[at + HEAD_BYTES : until])
        at = until
    return found


class Budget:
    """The rest of a request's bounds. `unfolded`: the decompressed bytes; `grown`: by how many it is
    larger."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self._bytes_max = self._bytes_left = bytes_max
        self._messages_max = self._messages_left = messages_max
        self.unfolded = self.grown = 0

    def message(self) -> None:
        """Count a message; raises TOO_LARGE."""
        self._messages_left -= 1
        if self._messages_left < 0:
            raise PenstockError(
                ErrorKind.TOO_LARGE, f"more than {self._messages_max} messages in one request"
            )

    def gunzip(self, data: bytes) -> bytes:
        """Decompress one gzip stream of possibly several members. Raises BAD_ENCODING, TOO_LARGE."""
        return self._counted(data, gunzip(data, self._bytes_max, self._bytes_left))

    def unfold(self, header: str, body: bytes) -> bytes:
        """A body as it was before what its Content-Encoding names. Raises as `compression.unfold`."""
        found = unfold(header, body, self._bytes_max, self._bytes_left)
        return body if found is body else self._counted(body, found)

    def _counted(self, packed: bytes, unfolded: bytes) -> bytes:
        self._bytes_left -= len(unfolded)
        self.unfolded += len(unfolded)
        self.grown += len(unfolded) - len(packed)
        return unfolded


def parse(data: bytes, budget: Budget, *, nested: bool = False) -> list[bytes]:
    """The payloads of frames that a client sent. Raises BAD_MESSAGE, CHECKSUM, TOO_LARGE."""
    found: list[bytes] = []
    at, end = 0, len(data)
    while at < end:
        if at + _LENGTH_BYTES > end:
            raise _bad(at, "it ends within a length")
        until = at + _LENGTH_BYTES + _LENGTH.unpack_from(data, at)[0]
        body = at + _LENGTH_BYTES
        if until > end:
            raise _bad(at, f"it claims {until - body} bytes and {end - body} are left")
        magic = data[body] if body < until else -1
        if magic not in (0, 1):
            raise _bad(at, "no magic byte" if magic < 0 else f"magic byte {magic}: 0 and 1 are understood")
        check = body + 1 + magic  # magic 1 brings the attributes
        if check + 4 > until:
            raise _bad(at, "it is shorter than its head")
        payload = data[check + 4 : until]
        if zlib.crc32(payload) != _LENGTH.unpack_from(data, check)[0]:
            raise PenstockError(ErrorKind.CHECKSUM, f"the frame at byte {at} has a wrong CRC-32")
        compression = data[body + 1] & 3 if magic else 0
        if compression == 0:
            budget.message()
            found.append(payload)
        elif compression == _GZIP and not nested:
            found += parse(budget.gunzip(payload), budget, nested=True)
        else:
            raise _bad(at, f"compression {compression}: none and gzip are understood, once")
        at = until
    return found


def _bad(at: int, why: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_MESSAGE, f"the frame at byte {at} cannot be read: {why}")

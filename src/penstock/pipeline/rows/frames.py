"""Raw entries as they stream from a server: `application/vnd.penstock.entries`.

A frame is: offset u64 | count u32 | entry id u64 | length u32 | entry, all big endian. The offset is that of
the entry's first message.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import msgspec

READ_BYTES: Final = 512 << 10  # one read; larger ones leave the caches
ENTRY_BYTES_MAX: Final = 256 << 20  # what claims more is no frame

_HEAD: Final = Struct(">QIQI")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """An entry with its place in the log."""

    offset: int
    count: int
    entry_id: int
    data: bytes


def read_frames(read: Callable[[int], bytes]) -> Iterator[Frame]:
    """Yield the frames of a stream; `read(n)` returns at most n bytes, none at the end.

    Raises EOFError where the stream ends within a frame, ValueError where there is no frame.
    """
    buffer = b""
    at = 0
    size = _HEAD.size
    while True:
        while at + size <= len(buffer):
            offset, count, entry_id, length = _HEAD.unpack_from(buffer, at)
            if length > ENTRY_BYTES_MAX or not count:
                raise ValueError("the server's answer is not a stream of entries")
            end = at + size + length
            if end > len(buffer):
                break
            yield Frame(offset, count, entry_id, buffer[at + size : end])
            at = end
        parts = [buffer[at:]]
        wanted = size
        if len(parts[0]) >= size:
            wanted += _HEAD.unpack_from(parts[0])[3]
        have = len(parts[0])
        while True:  # at least up to the end of the frame, so that a large one is not copied at each read
            block = read(READ_BYTES)
            if not block:
                if have:
                    raise EOFError("the stream of entries was cut short")
                return
            parts.append(block)
            have += len(block)
            if have >= wanted:
                break
        buffer, at = b"".join(parts), 0

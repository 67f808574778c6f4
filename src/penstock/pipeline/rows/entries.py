"""Raw entries as they stream from a server, and the entries of a block opened, by columns.

Frames are those of `penstock.wire.runs`. An older server sends frames of one entry each only.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.batch import MESSAGES_MAX
from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX, decompress
from penstock.wire.contents import BODY_AT, MAGIC, METADATA_AT, crc32c
from penstock.wire.runs import ENTRY, HEAD, RECORDS, RUN, split_head

from . import fields as metadata
from .fields import ABSENT, Bytes, Fields, Ints, read_fields

READ_BYTES: Final = 512 << 10  # one read; larger ones leave the caches
CONTENT_BYTES_MAX: Final = 256 << 20  # more is not a valid frame
UNPACKED_BYTES: Final = 8 << 20  # of entries that are opened at once: they may hold far more than they take

_NUMBER_MAX: Final = 2**63 - 1  # of a ledger or an offset
_SIZE: Final = np.dtype("<u4")


class Frame(msgspec.Struct, frozen=True, gc=False):
    """Messages with their place in the log; `ledger` is -1 if the log has one for all."""

    offset: int
    count: int
    entry_id: int
    data: bytes
    ledger: int = -1
    kind: int = ENTRY  # what `data` is


def read_frames(read: Callable[[int], bytes]) -> Iterator[Frame]:
    """Yield the frames of a stream; `read(n)` returns at most n bytes, none at the end.

    Raises EOFError if the stream ends within a frame, ValueError if there is no frame.
    """
    buffer = b""
    at = 0
    ledger = -1
    size = HEAD.size
    while True:
        while at + size <= len(buffer):
            offset, kind, count, entry_id, length = split_head(buffer, at)
            if not count and not length and entry_id <= _NUMBER_MAX:
                ledger = entry_id
                at += size
                continue
            if length > CONTENT_BYTES_MAX or not count or offset > _NUMBER_MAX - count or kind > RECORDS:
                raise ValueError("the server's answer is not a stream of entries")
            end = at + size + length
            if end > len(buffer):
                break
            yield Frame(offset, count, entry_id, buffer[at + size : end], ledger, kind)
            at = end
        parts = [buffer[at:]]
        wanted = size
        if len(parts[0]) >= size:
            wanted += HEAD.unpack_from(parts[0])[3]
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


class BadEntry(Exception):
    """The entry whose messages begin at `offset` cannot be read."""

    def __init__(self, offset: int, kind: ErrorKind, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.kind = kind


class Entries(msgspec.Struct):
    """The entries of a block, one after the other in `data`; one item each."""

    data: bytes
    offsets: Ints
    ids: NDArray[np.uint64]
    counts: Ints  # messages, as far as they can be distinguished
    alone: NDArray[
        np.bool_
    ]  # sent alone, or only its receiver can open it: then its payload is one message's
    fields: Fields
    begins: Ints  # bounds of payloads in `data`; they are not compressed
    ends: Ints


def open_entries(frames: Sequence[Frame]) -> Iterator[Entries]:
    """Open the entries of frames, as many at once as have about UNPACKED_BYTES of payload. Raises BadEntry."""
    each = np.array([frame.count if frame.kind == RUN else 1 for frame in frames], np.int64)
    sizes, parts = _sizes(frames)
    data = b"".join(parts)
    index = np.arange(len(sizes)) - np.repeat(np.cumsum(each) - each, each)  # each entry's place in its frame
    offsets = np.repeat(np.array([frame.offset for frame in frames], np.int64), each) + index
    ids = np.repeat(np.array([frame.entry_id for frame in frames], np.uint64), each) + index.astype(np.uint64)
    said = np.array([1 if frame.kind == RUN else frame.count for frame in frames], np.int64)
    framed = np.repeat(said, each)
    ends = np.cumsum(sizes)
    begins, until = _metadata(data, ends - sizes, ends, offsets)
    fields = _fields(data, begins, until, offsets)
    cuts = [0, len(sizes)]
    if fields.compression is not None and fields.uncompressed is not None:
        held = np.cumsum(np.clip(fields.uncompressed, 0, UNCOMPRESSED_BYTES_MAX) + sizes) // UNPACKED_BYTES
        cuts[1:1] = (np.flatnonzero(np.diff(held)) + 1).tolist()
    for low, high in pairwise(cuts):
        some = slice(low, high)
        if high - low < len(sizes):
            fields = _fields(data, begins[some], until[some], offsets[some])
        yield _opened(
            data, offsets[some], ids[some], framed[some], begins[some], until[some], ends[some], fields
        )


def _opened(
    data: bytes,
    offsets: Ints,
    ids: NDArray[np.uint64],
    framed: Ints,
    begins: Ints,
    until: Ints,
    ends: Ints,
    fields: Fields,
) -> Entries:
    """Entries whose metadata is at `data[begins:until]`, and payloads are from there to `ends`; `framed` is what their frames
    say of how many messages they have."""
    alone = np.ones(len(ids), np.bool_)
    if fields.batch is not None:  # the number's presence, not its value, makes a batch
        alone = fields.batch == ABSENT
    # Encrypted, or one chunk of a larger message: only the receiver can open it.
    sealed = np.zeros(len(ids), np.bool_)
    if fields.encryption is not None:
        sealed |= fields.encryption[0] >= 0
    if fields.chunks is not None:
        sealed |= fields.chunks > 1
    alone |= sealed
    if fields.compression is not None and (packed := ~sealed & (fields.compression != 0)).any():
        first = int(begins[0])
        data = data[first : int(ends[-1])]
        begins, until, ends = begins - first, until - first, ends - first
        data, moved, ends = _unpacked(data, until, ends, offsets, fields, np.flatnonzero(packed))
        begins, until = begins + moved, until + moved
        fields = read_fields(metadata.ENTRY, np.frombuffer(data, np.uint8), begins, until)
    counts = np.ones(len(ids), np.int64)
    if fields.batch is not None and not alone.all():
        counts = np.where(alone, 1, fields.batch)
        for n in np.flatnonzero(~alone & ((counts < 1) | (counts > MESSAGES_MAX) | (counts != framed))):
            what = f"it holds {counts[n]} messages, its frame says {framed[n]}"
            raise _bad(offsets[n], what)
    return Entries(data, offsets, ids, counts, alone, fields, until, ends)


def _sizes(frames: Sequence[Frame]) -> tuple[Ints, list[bytes | memoryview]]:
    """How long each entry is, and the entries of each frame. Raises BadEntry."""
    sizes: list[int] = []
    parts: list[bytes | memoryview] = []
    for frame in frames:
        if frame.kind != RUN:
            sizes.append(len(frame.data))
            parts.append(frame.data)
            continue
        head = frame.count * _SIZE.itemsize
        some = np.frombuffer(frame.data, _SIZE, min(frame.count, len(frame.data) // _SIZE.itemsize))
        if head + some.sum(dtype=np.int64) != len(frame.data):
            raise _bad(frame.offset, "the sizes of a run do not fit")
        sizes += some.tolist()
        parts.append(memoryview(frame.data)[head:])
    return np.array(sizes, np.int64), parts


def _metadata(data: bytes, begins: Ints, ends: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """The bounds of the metadata of each entry; checksums are checked. Raises BadEntry."""
    raw = np.frombuffer(data, np.uint8)
    sizes = ends - begins
    _refuse(sizes < METADATA_AT, offsets, "its metadata is cut short")
    summed = _number(raw, begins, len(MAGIC)) == int.from_bytes(MAGIC, "big")
    _refuse(summed & (sizes < BODY_AT + METADATA_AT), offsets, "its metadata is cut short")
    bodies = begins + np.where(summed, BODY_AT, 0)
    checked = np.flatnonzero(summed)
    if len(checked):
        found = np.fromiter(
            (
                crc32c(data[low:high])
                for low, high in zip(bodies[checked].tolist(), ends[checked].tolist(), strict=True)
            ),
            np.int64,
            len(checked),
        )
        wrong = found != _number(raw, begins[checked] + len(MAGIC), BODY_AT - len(MAGIC))
        if wrong.any():
            raise BadEntry(
                int(offsets[checked[wrong][0]]), ErrorKind.CHECKSUM, "the entry's checksum is wrong"
            )
    until = bodies + METADATA_AT + _number(raw, bodies, METADATA_AT)
    _refuse(until > ends, offsets, "its metadata is cut short")
    return bodies + METADATA_AT, until


def _fields(data: bytes, begins: Ints, until: Ints, offsets: Ints) -> Fields:
    raw = np.frombuffer(data, np.uint8)
    try:
        return read_fields(metadata.ENTRY, raw, begins, until)
    except ValueError:
        for n in range(len(begins)):  # which one it is
            try:
                read_fields(metadata.ENTRY, raw, begins[n : n + 1], until[n : n + 1])
            except ValueError as error:
                raise _bad(offsets[n], str(error)) from None
        raise


def _unpacked(
    data: bytes, begins: Ints, ends: Ints, offsets: Ints, fields: Fields, packed: Ints
) -> tuple[bytes, Ints, Ints]:
    """The entries with the payloads of `packed` decompressed, by how much each has moved, and where they end. Raises BadEntry."""
    codecs = fields.numbers("compression", len(begins))
    sizes = fields.numbers("uncompressed", len(begins))
    parts: list[bytes] = []
    more = np.zeros(len(begins), np.int64)
    at = 0
    for n in packed.tolist():
        low, high = int(begins[n]), int(ends[n])
        try:
            payload = decompress(int(codecs[n]), data[low:high], int(sizes[n]))
        except PenstockError as error:
            raise BadEntry(int(offsets[n]), error.kind, error.message) from None
        except ValueError as error:
            raise _bad(offsets[n], str(error)) from None
        parts += (data[at:low], payload)
        more[n] = len(payload) - (high - low)
        at = high
    parts.append(data[at:])
    moved = np.cumsum(more)
    return b"".join(parts), moved - more, ends + moved


def _number(raw: Bytes, at: Ints, size: int) -> Ints:
    """The numbers of `size` bytes, big endian, at some places."""
    found = np.zeros(len(at), np.int64)
    for n in range(size):
        found = found << 8 | raw[at + n]
    return found


def _refuse(wrong: NDArray[np.bool_], offsets: Ints, what: str) -> None:
    if wrong.any():
        raise _bad(offsets[wrong][0], what)


def _bad(offset: int, what: str) -> BadEntry:
    return BadEntry(int(offset), ErrorKind.BAD_ENCODING, f"an entry cannot be read: {what}")

"""Entries in bulk: made of batches that are packed already, and sent many at once for several topics.

A body of sections, all numbers big endian:

    [ topic size u16 | topic | entries u32 | [ entry size u32 | entry ] * entries ] *

A topic is a log's full name: of a topic without partitions, or of a partition.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .compression import compress
from .contents import join
from .metadata import integer, schema_version_bytes, sized, text
from .pulsar_pb2 import NONE, CompressionType

COMPRESSIONS: Final[Mapping[str, int]] = {name.lower(): number for name, number in CompressionType.items()}

_TOPIC: Final = struct.Struct(">H")
_COUNT: Final = struct.Struct(">I")


def batch_entry(
    payload: bytes,
    count: int,
    *,
    producer: str,
    sequence_id: int,
    publish_time: int,
    schema_version: int | None = None,
    compression: int = NONE,
) -> bytes:
    """The entry of a packed batch (see `batch`) of `count` messages with ids from `sequence_id` on."""
    head = [b"\x0a", text(producer), b"\x10", integer(sequence_id), b"\x18", integer(publish_time)]
    if compression != NONE:
        head += (b"\x40", integer(compression), b"\x48", integer(len(payload)))
        payload = compress(compression, payload)
    head += (b"\x58", integer(count))
    if schema_version is not None:
        head += (b"\x82\x01", sized(schema_version_bytes(schema_version)))
    head += (b"\xc0\x01", integer(sequence_id + count - 1))
    return join(b"".join(head), payload)


def pack_sections(sections: Iterable[tuple[str, Sequence[bytes]]]) -> list[bytes]:
    """The body of entries by topic, in pieces."""
    out: list[bytes] = []
    for topic, entries in sections:
        name = topic.encode()
        out += (_TOPIC.pack(len(name)), name, _COUNT.pack(len(entries)))
        for entry in entries:
            out += (_COUNT.pack(len(entry)), entry)
    return out


def read_sections(body: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The entries of a body, by topic. Raises BAD_ENCODING."""
    at, end = 0, len(body)
    while at < end:
        name, at = _taken(body, at, _TOPIC)
        count = _COUNT.unpack(_slice(body, at, _COUNT.size))[0]
        at += _COUNT.size
        entries: list[bytes] = []
        for _ in range(count):
            entry, at = _taken(body, at, _COUNT)
            entries.append(entry)
        try:
            yield name.decode(), entries
        except UnicodeDecodeError:
            raise PenstockError(ErrorKind.BAD_ENCODING, "a topic's name is not valid UTF-8") from None


def _taken(body: bytes, at: int, size: struct.Struct) -> tuple[bytes, int]:
    start = at + size.size
    until = start + size.unpack(_slice(body, at, size.size))[0]
    return _slice(body, start, until - start), until


def _slice(body: bytes, at: int, size: int) -> bytes:
    if at + size > len(body):
        raise PenstockError(ErrorKind.BAD_ENCODING, "the body ends within an entry")
    return body[at : at + size]

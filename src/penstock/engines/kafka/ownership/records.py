"""Records of the cursors' journal. A record's key is its kind: `claim`, `save` or `done`.

- A claim is JSON and has no version: every release has to know who owns a slot. Fields that are not known are ignored.
- The other kinds are MessagePack: an array of the process, the record's number within it, the terms by slot, and the body. These
  four keep their form in all versions, so that a process which does not know the body's version knows which slots it concerns. A
  header names the version (`model/formats.py`).

The body of a save is an array of `CursorRecord`. A `done` has none: the process wrote all cursors of its slots after its claim.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from zlib import crc32

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

CLAIM: Final = b"claim"
SAVE: Final = b"save"
DONE: Final = b"done"

RECORD_BYTES: Final = 256 << 10  # of the cursors in one record, about
PROPERTIES_BYTES_MAX: Final = 2 * RECORD_BYTES  # of one cursor
CHUNK_BYTES: Final = 530  # of a chunk with its number
CURSOR_BYTES: Final = 100  # of a cursor without names, chunks and properties


class Claim(msgspec.Struct, frozen=True):
    """From here on records of these slots count only if they name these terms.

    `group` is the service's, `slots` the number of all slots; `process` is unique per start, `number` counts its records.
    """

    group: str
    slots: int
    process: str
    number: int
    terms: dict[int, str]


class CursorKey(msgspec.Struct, frozen=True, order=True):
    """A subscription of one partition. `topic` is Kafka's name."""

    topic: str
    partition: int
    subscription: str


class CursorRecord(msgspec.Struct, array_like=True, frozen=True):
    """A change of a cursor, as `CursorChange` describes it; `topic_id` is the topic that its offsets belong to.

    All of a cursor is a change, too, with all chunks and the properties. `deleted`: the subscription is gone;
    with a topic id only if the cursor belongs to that topic.
    """

    topic: str
    partition: int
    subscription: str
    topic_id: str
    mark: int
    chunks: dict[int, bytes | None] = {}
    properties: bytes | None = None
    deleted: bool = False

    @property
    def key(self) -> CursorKey:
        return CursorKey(self.topic, self.partition, self.subscription)

    @property
    def size(self) -> int:
        """Bytes in a record, about."""
        names = 4 * (len(self.topic) + len(self.subscription))
        return CURSOR_BYTES + names + CHUNK_BYTES * len(self.chunks) + len(self.properties or b"")


def check_properties(document: bytes | None) -> None:
    """Raise TOO_LARGE for properties that fit into no record: those that are saved together would all fail."""
    size = len(document or b"")
    if size > PROPERTIES_BYTES_MAX:
        raise PenstockError(
            ErrorKind.TOO_LARGE,
            f"properties of a subscription of {size} bytes; the most is {PROPERTIES_BYTES_MAX}",
        )


def deletion_of(key: CursorKey, topic_id: str = "") -> CursorRecord:
    """The change that deletes a cursor; with a topic id only that of this topic."""
    return CursorRecord(key.topic, key.partition, key.subscription, topic_id, 0, deleted=True)


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A record that is not a claim."""

    process: str
    number: int
    terms: dict[int, str]
    body: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil


def slot_of(topic: str, partition: int, slots: int) -> int:
    """The slot of a partition. The partitions of a topic are in different slots, as long as there are enough."""
    return (crc32(topic.encode()) + partition) % slots


def encode_claim(claim: Claim) -> bytes:
    return _JSON.encode(claim)


def encode_save(process: str, number: int, terms: dict[int, str], cursors: Sequence[CursorRecord]) -> bytes:
    return _PACK.encode(Envelope(process, number, terms, msgspec.Raw(_PACK.encode(cursors))))


def encode_done(process: str, number: int, terms: dict[int, str]) -> bytes:
    return _PACK.encode(Envelope(process, number, terms))


decode_claim: Final = msgspec.json.Decoder(Claim).decode  # raises msgspec.DecodeError, as the others do
decode_envelope: Final = msgspec.msgpack.Decoder(Envelope).decode
decode_cursors: Final = msgspec.msgpack.Decoder(list[CursorRecord]).decode

_JSON: Final = msgspec.json.Encoder()
_PACK: Final = msgspec.msgpack.Encoder()


def split(cursor: CursorRecord) -> Iterator[CursorRecord]:
    """The change in parts that fit into records. Each is a change by itself: together, in any number, they lose nothing."""
    most = RECORD_BYTES // CHUNK_BYTES
    if len(cursor.chunks) <= most:
        yield cursor
        return
    chunks = list(cursor.chunks.items())
    for start in range(0, len(chunks), most):
        yield msgspec.structs.replace(cursor, chunks=dict(chunks[start : start + most]))


def packed(cursors: Sequence[CursorRecord]) -> Iterator[list[CursorRecord]]:
    """The changes, in their order, as the contents of records."""
    part: list[CursorRecord] = []
    size = 0
    for cursor in cursors:
        for one in split(cursor):
            if part and size + one.size > RECORD_BYTES:
                yield part
                part, size = [], 0
            part.append(one)
            size += one.size
    if part:
        yield part

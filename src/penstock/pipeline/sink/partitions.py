"""Chooses the partition of each row as Penstock's other producers do, for a column of keys at a time."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.hashing import FNV_OFFSET, FNV_PRIME, MURMUR2_FACTOR, MURMUR2_SEED
from penstock.model.partitioning import Partitioner, hash_of_bytes, hash_of_text
from penstock.pipeline.encode import binary
from penstock.pipeline.encode.binary import Mask, Numbers, sizes
from penstock.pipeline.errors import PipelineError

from .messages import Keys

KEYS_MAX: Final = 64  # bytes: columns with longer keys are hashed key by key
_INT32_MAX: Final = 0x7FFFFFFF

_Words = npt.NDArray[np.uint32]
_Bytes = npt.NDArray[np.uint8]


def hashes(keys: Any, partitioner: Partitioner) -> Numbers:
    """The hash of each key (bytes; of UTF-8, if the partitioner hashes text), not negative; any number for null."""
    by_column = _BY_COLUMN.get(partitioner)
    lengths = sizes(keys)
    if by_column is None or (len(lengths) and int(lengths.max()) > KEYS_MAX):
        return _one_by_one(keys, partitioner)
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    if not partitioner.hashes_bytes and (data[offsets[0] : offsets[-1]] >= 0x80).any():
        return _one_by_one(keys, partitioner)
    return by_column(data, offsets[:-1].astype(np.int64), lengths)


def _java(data: _Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
    """For ASCII, whose bytes equal the UTF-16 units that Java hashes."""
    values = np.zeros(len(starts), np.uint32)
    for at in range(int(lengths.max(initial=0))):
        rows = np.nonzero(lengths > at)[0]
        values[rows] = values[rows] * np.uint32(31) + data[starts[rows] + at]
    return (values & np.uint32(_INT32_MAX)).astype(np.int64)


def _murmur2(data: _Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
    factor = np.uint32(MURMUR2_FACTOR)
    values: _Words = lengths.astype(np.uint32) ^ np.uint32(MURMUR2_SEED)
    for at in range(0, int(lengths.max(initial=0)) & ~3, 4):
        rows = np.nonzero(lengths >= at + 4)[0]
        block = _words(data, starts[rows] + at, 4) * factor
        block = (block ^ block >> np.uint32(24)) * factor
        values[rows] = values[rows] * factor ^ block
    for left in (1, 2, 3):
        rows = np.nonzero(lengths & 3 == left)[0]
        tail = _words(data, starts[rows] + (lengths[rows] & ~3), left)
        values[rows] = (values[rows] ^ tail) * factor
    values = (values ^ values >> np.uint32(13)) * factor
    return ((values ^ values >> np.uint32(15)) & np.uint32(_INT32_MAX)).astype(np.int64)


def _words(data: _Bytes, starts: Numbers, size: int) -> _Words:
    """The little-endian numbers in the `size` bytes from each of `starts`."""
    words = np.zeros(len(starts), np.uint32)
    for at in range(size):
        words |= data[starts + at].astype(np.uint32) << np.uint32(8 * at)
    return words


def _fnv1a(data: _Bytes, starts: Numbers, lengths: Numbers) -> Numbers:
    values: _Words = np.full(len(starts), FNV_OFFSET, np.uint32)
    for at in range(int(lengths.max(initial=0))):
        rows = np.nonzero(lengths > at)[0]
        values[rows] = (values[rows] ^ data[starts[rows] + at]) * np.uint32(FNV_PRIME)
    return np.abs(values.view(np.int32).astype(np.int64))


_BY_COLUMN: Final[dict[Partitioner, Callable[[_Bytes, Numbers, Numbers], Numbers]]] = {
    Partitioner.JAVA: _java,
    Partitioner.MURMUR2: _murmur2,
    Partitioner.FNV1A: _fnv1a,
}


def _one_by_one(keys: Any, partitioner: Partitioner) -> Numbers:
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    if partitioner.hashes_bytes:
        known = [hash_of_bytes(partitioner, key) for key in distinct]
    else:
        known = [hash_of_text(partitioner, key.decode()) for key in distinct]
    found = np.array([*known, 0], np.int64)
    at: Numbers = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
    return found[at]


class Router:
    """Chooses partitions of one topic. Rows without a key go round robin, a run of rows at a time.

    `key_prefix` precedes the bytes of keys as the server stores them (the framing of a schema registry).
    """

    def __init__(
        self,
        topic: str,
        count: int,
        start: int,
        run: int,
        partitioner: Partitioner = Partitioner.JAVA,
        key_prefix: bytes = b"",
    ) -> None:
        self._topic = topic
        self._count = count
        self._next = start * run
        self._run = run
        self._partitioner = partitioner
        self._key_prefix = key_prefix

    def choose(self, keys: Keys | None, wanted: Any | None, rows: int) -> Numbers:
        """The partition of each row: the `wanted` one, else by its key, else round robin. Raises PipelineError."""
        count = max(1, self._count)
        if count == 1 and wanted is None:
            return np.zeros(rows, np.int64)
        chosen: Numbers = np.full(rows, -1, np.int64)
        if wanted is not None:
            chosen = wanted.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).copy()
            self._check(chosen, wanted)
        if keys is not None:
            there: Mask = keys.texts.is_valid().to_numpy(zero_copy_only=False)
            open_rows = (chosen < 0) & there
            if open_rows.any():
                found = hashes(self._hashed(keys), self._partitioner)
                chosen[open_rows] = found[open_rows] % count
        left = np.nonzero(chosen < 0)[0]
        if len(left):
            chosen[left] = (self._next + np.arange(len(left))) // self._run % count
            self._next += len(left)
        return chosen

    def _hashed(self, keys: Keys) -> Any:
        """The bytes or text of each key that the partitioner hashes."""
        if not self._partitioner.hashes_bytes:
            return keys.texts
        content = keys.texts if keys.content is None else keys.content
        if not self._key_prefix:
            return content
        prefixes = pa.array([self._key_prefix], pa.binary()).take(pa.array(np.zeros(len(content), np.int64)))
        return binary.join([prefixes, content])

    def _check(self, chosen: Numbers, wanted: Any) -> None:
        there: Mask = wanted.is_valid().to_numpy(zero_copy_only=False)
        bad = there & ((chosen < 0) | (chosen >= max(1, self._count)))
        if bad.any():
            raise PipelineError(
                f"column partition: {self._topic} has no partition {int(chosen[bad][0])};"
                f" it has {max(1, self._count)}"
            )

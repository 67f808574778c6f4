"""Which partition each row goes to, as the project's other producers choose it."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.hashing import java_string_hash
from penstock.pipeline.encode.binary import Mask, Numbers, sizes
from penstock.pipeline.errors import PipelineError

KEYS_MAX: Final = 64  # bytes of a key that are hashed column by column; longer ones one by one
_INT32_MAX: Final = 0x7FFFFFFF


def hashes(keys: Any) -> Numbers:
    """Java's string hash of each key (bytes of UTF-8); 0 for null."""
    lengths = sizes(keys)
    longest = int(lengths.max()) if len(lengths) else 0
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    if longest > KEYS_MAX or (data[offsets[0] : offsets[-1]] >= 0x80).any():
        return _one_by_one(keys)
    # Bytes of ASCII are the UTF-16 units that Java counts.
    starts = offsets[:-1].astype(np.int64)
    values = np.zeros(len(keys), np.uint32)
    for at in range(longest):
        rows = np.nonzero(lengths > at)[0]
        values[rows] = values[rows] * np.uint32(31) + data[starts[rows] + at]
    return (values & np.uint32(_INT32_MAX)).astype(np.int64)


def _one_by_one(keys: Any) -> Numbers:
    encoded = keys.dictionary_encode()
    known = [java_string_hash(key.decode()) for key in encoded.dictionary.to_pylist()]
    indices = encoded.indices
    found = np.array([*known, 0], np.int64)
    at: Numbers = indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
    return found[at]


class Router:
    """Chooses among the partitions of one topic. Rows without a key go in runs, each to the next partition."""

    def __init__(self, topic: str, count: int, start: int, run: int) -> None:
        self._topic = topic
        self._count = count
        self._next = start * run
        self._run = run

    def choose(self, keys: Any | None, wanted: Any | None, rows: int) -> Numbers:
        """The partition of each row: as `wanted` says, else by its key, else in turn. Raises PipelineError."""
        count = max(1, self._count)
        if count == 1 and wanted is None:
            return np.zeros(rows, np.int64)
        chosen: Numbers = np.full(rows, -1, np.int64)
        if wanted is not None:
            chosen = wanted.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False).copy()
            self._check(chosen, wanted)
        if keys is not None:
            there: Mask = keys.is_valid().to_numpy(zero_copy_only=False)
            open_rows = (chosen < 0) & there
            if open_rows.any():
                chosen[open_rows] = hashes(keys)[open_rows] % count
        left = np.nonzero(chosen < 0)[0]
        if len(left):
            chosen[left] = (self._next + np.arange(len(left))) // self._run % count
            self._next += len(left)
        return chosen

    def _check(self, chosen: Numbers, wanted: Any) -> None:
        there: Mask = wanted.is_valid().to_numpy(zero_copy_only=False)
        bad = there & ((chosen < 0) | (chosen >= max(1, self._count)))
        if bad.any():
            raise PipelineError(
                f"column partition: {self._topic} has no partition {int(chosen[bad][0])};"
                f" it has {max(1, self._count)}"
            )

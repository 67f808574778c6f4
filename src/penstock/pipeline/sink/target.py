"""A topic that a task writes to: which partition each row goes to, and the entries made for it.

Partitions are chosen as the project's other producers choose them.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.hashing import java_string_hash
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.pipeline.encode.binary import Mask, Numbers, sizes
from penstock.pipeline.errors import PipelineError

from .entries import MESSAGES_MAX, BatchBuilder
from .messages import Columns, Keys, encoded_keys, payloads

if TYPE_CHECKING:  # a value that is bytes already needs none of it
    from penstock.pipeline.encode.plan import Encoding

KEYS_MAX: Final = 64  # bytes of a key that are hashed column by column; longer ones one by one
_INT32_MAX: Final = 0x7FFFFFFF

_NONE: Final = -1  # of schema versions

GATHERED_BYTES_MAX: Final = 64 << 20  # of all partitions of a topic, in entries that are not full


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


class Target:
    """Rows in, entries out: `put` is given each with its log. `start` says which partition comes first."""

    def __init__(
        self,
        topic: TopicName,
        partitions: int,
        encoding: "Encoding | None",
        *,
        producer: str,
        batch: int,
        compression: int,
        start: int,
        put: Callable[[str, bytes], None],
    ) -> None:
        self._encoding = encoding
        self._put = put
        self._router = Router(str(topic), partitions, start, MESSAGES_MAX)
        version = None if encoding is None else encoding.schema_version
        names = [topic.of_partition(n) for n in range(partitions)] if partitions else [topic]
        self._version = version
        self._builders = [BatchBuilder(str(name), producer, batch, version, compression) for name in names]

    def encode(self, values: Any) -> Any:
        """Values as payloads."""
        return values if self._encoding is None else self._encoding.encode(values)

    def keys(self, values: Any) -> Keys | None:
        """The keys that are part of the values; None where they are a column of their own."""
        keys = None if self._encoding is None else self._encoding.keys(values)
        return None if keys is None else encoded_keys(keys)

    def write(
        self,
        columns: Columns,
        wanted: Any | None,
        deliver_at: Any | None,
        properties: Any,
        versions: Any | None = None,
    ) -> None:
        """Write rows; `wanted` are partitions, `deliver_at` ms since the epoch, `versions` of the topic's schema, all
        null for none.

        `properties(row)` are a row's, for the few that travel alone.
        """
        rows = len(columns.value)
        keys = None if columns.key is None else columns.key.texts
        chosen = self._router.choose(keys, wanted, rows)
        messages = payloads(columns)
        times: Numbers = np.zeros(0, np.int64)
        delayed = None
        if deliver_at is not None:
            times = deliver_at.fill_null(0).to_numpy(zero_copy_only=False)
            delayed = times > 0 if (times > 0).any() else None
        numbers = None if versions is None else versions.fill_null(_NONE).to_numpy(zero_copy_only=False)
        for number in np.unique(chosen):
            builder = self._builders[number]
            for where in _runs(np.nonzero(chosen == number)[0], numbers):
                if numbers is not None:
                    version = int(numbers[where[0]])
                    self._send(builder, builder.use(self._version if version == _NONE else version))
                if delayed is None:
                    whole = len(where) == rows
                    self._send(builder, builder.add(messages if whole else messages.take(pa.array(where))))
                    continue
                for run in np.split(where, np.nonzero(np.diff(delayed[where]) | delayed[where][1:])[0] + 1):
                    if not len(run):
                        continue
                    if delayed[run[0]]:
                        row = int(run[0])
                        message = _message(columns, row, int(times[row]), properties(row))
                        self._send(builder, builder.alone(message))
                    else:
                        self._send(builder, builder.add(messages.take(pa.array(run))))
        if sum(each.size for each in self._builders) > GATHERED_BYTES_MAX:
            self.finish()

    def finish(self) -> None:
        """Let go of what is left."""
        for builder in self._builders:
            self._send(builder, builder.finish())

    def last_sequence_ids(self) -> dict[str, int]:
        """By log, the number of the last message that went there."""
        found = {each.log: each.last_sequence_id for each in self._builders}
        return {log: last for log, last in found.items() if last is not None}

    def _send(self, builder: BatchBuilder, entries: Iterator[bytes]) -> None:
        for entry in entries:
            self._put(builder.log, entry)


def _runs(where: Numbers, versions: Numbers | None) -> list[Numbers]:
    """`where` cut where the version changes: an entry has one for all its messages, and rows stay in order."""
    if versions is None:
        return [where]
    return np.split(where, np.nonzero(np.diff(versions[where]))[0] + 1)


def _message(columns: Columns, row: int, deliver_at: int, properties: dict[str, str] | None) -> OutMessage:
    value = columns.value[row].as_py()
    key = None if columns.key is None else columns.key.texts[row].as_py()
    encoded = columns.key is not None and columns.key.encoded is not None and bool(columns.key.encoded[row])
    event_time = None if columns.event_time is None else columns.event_time[row].as_py()
    return OutMessage(
        payload=value or b"",
        null_value=value is None,
        key=None if key is None else key.decode(),
        key_is_base64=encoded,
        ordering_key=None if columns.ordering_key is None else columns.ordering_key[row].as_py(),
        properties=properties,
        event_time=event_time or 0,
        deliver_at=deliver_at,
    )

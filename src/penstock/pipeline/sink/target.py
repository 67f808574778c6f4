"""A topic that a task writes to: the entries made for each of its partitions."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.hashing import FNV_OFFSET, FNV_PRIME, MURMUR2_FACTOR, MURMUR2_SEED
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner, hash_of_bytes, hash_of_text
from penstock.pipeline.encode import binary
from penstock.pipeline.encode.binary import Mask, Numbers, sizes
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import OpenedTopic

from .entries import MESSAGES_MAX, BatchBuilder
from .messages import Columns, Keys, encoded_keys, payloads

if TYPE_CHECKING:  # a value that is bytes already needs none of it
    from penstock.pipeline.encode.plan import Encoding

_NONE: Final = -1  # of schema versions

GATHERED_BYTES_MAX: Final = 64 << 20  # of all partitions of a topic, in entries that are not full

KEYS_MAX: Final = 64  # bytes: columns with longer keys are hashed key by key
_INT32_MAX: Final = 0x7FFFFFFF

_Words = npt.NDArray[np.uint32]
_Bytes = npt.NDArray[np.uint8]


class Target:
    """Rows in, entries out: `put` is given each with its log. `start` says which partition comes first."""

    def __init__(
        self,
        topic: TopicName,
        opened: OpenedTopic,
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
        partitions = opened.partitions
        self._router = Router(
            str(topic), partitions, start, MESSAGES_MAX, opened.partitioner, opened.key_prefix
        )
        version = None if encoding is None else encoding.schema_version
        names = [topic.of_partition(n) for n in range(partitions)] if partitions else [topic]
        self._version = version
        self._builders = [BatchBuilder(str(name), producer, batch, version, compression) for name in names]

    def encode(self, values: Any) -> Any:
        """Values as payloads."""
        return values if self._encoding is None else self._encoding.encode(values)

    def keys(self, values: Any) -> Keys | None:
        """The keys that are part of the values; None if they are a separate column."""
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
        chosen = self._router.choose(columns.key, wanted, rows)
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
        """Close the connection."""
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
    """`where` cut at changes of the version: an entry has one for all its messages, and rows stay in order."""
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

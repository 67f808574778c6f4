"""A topic that a task writes to: the entries made for each of its partitions."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.pipeline.encode.binary import Numbers
from penstock.pipeline.http.stages import OpenedTopic

from .entries import MESSAGES_MAX, BatchBuilder
from .messages import Columns, Keys, encoded_keys, payloads
from .partitions import Router

if TYPE_CHECKING:  # a value that is bytes already needs none of it
    from penstock.pipeline.encode.plan import Encoding

_NONE: Final = -1  # of schema versions

GATHERED_BYTES_MAX: Final = 64 << 20  # of all partitions of a topic, in entries that are not full


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

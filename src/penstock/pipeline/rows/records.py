"""Records of Kafka become the rows that their entries would become. Pure: records in, batches out.

Records gather in a block. Those whose headers are properties, and the version of a schema at most, become columns at once;
each of the others is made the entry that the server makes of it, and read as one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.engines.kafka.driver.record import Header, Record
from penstock.engines.kafka.framing import Framing, version_of
from penstock.engines.kafka.headers import OURS, SCHEMA_VERSION, read_properties
from penstock.engines.kafka.records import entries_of

from . import columns, rows
from .entries import Frame
from .fields import Ints
from .ids import message_ids
from .place import Place

BLOCK_ROWS: Final = rows.BLOCK_ROWS
BLOCK_BYTES: Final = rows.BLOCK_BYTES

_OFFSET_MAX: Final = 2**63 - 1


class RecordRows:
    """Decodes the records of one log; `framing` is that of a topic before a schema registry."""

    def __init__(self, place: Place, include: Sequence[str], framing: Framing | None = None) -> None:
        self._place = place
        self._include = include
        self._schema = columns.arrow_schema(include)
        self._framing = framing

    def decode(self, records: Sequence[Record]) -> pa.RecordBatch:
        """The rows of records, in their order. Raises UnknownSchemas where the framing has to learn first."""
        headers = [record.headers() for record in records]
        if not any(headers):
            return self._plain(records, headers, None)
        said = [_said(some) if some else _NOTHING for some in headers]
        plain = [at for at, one in enumerate(said) if one is not None]
        if len(plain) == len(records):
            return self._plain(records, headers, said)
        described = [at for at, one in enumerate(said) if one is None]
        parts = [self._described([records[at] for at in described])]
        if plain:
            parts.append(
                self._plain(
                    [records[at] for at in plain], [headers[at] for at in plain], [said[at] for at in plain]
                )
            )
        order = np.empty(len(records), np.int64)
        order[[*described, *plain]] = np.arange(len(records))
        return pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks().to_batches()[0]

    def _described(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Of records with any headers."""
        place = self._place
        offsets = [record.offset() for record in records]
        cuts = [at for at in range(1, len(offsets)) if offsets[at] != offsets[at - 1] + 1]
        frames = [
            Frame(entry.offset, 1, entry.entry_id, entry.data)
            for low, high in pairwise([0, *cuts, len(offsets)])
            for entry in entries_of(records[low:high], offsets[low], place.ledger, self._framing)
        ]
        found = list(rows.decode(place, frames, 0, _OFFSET_MAX, self._include))
        return pa.Table.from_batches(found, self._schema).combine_chunks().to_batches()[0]

    def _plain(
        self,
        records: Sequence[Record],
        headers: Sequence[Sequence[Header] | None],
        said: Sequence["_Said | None"] | None,
    ) -> pa.RecordBatch:
        """Of records whose headers say no more than `said`; None: there are none."""
        count = len(records)
        keys = [record.key() for record in records]
        values = [record.value() for record in records]
        framing = self._framing
        versions: Sequence[int | None] | None = (
            None if framing is None else framing.open(keys, values, headers)
        )
        if said is not None:
            versions = self._versions(said, versions)
        offsets = np.fromiter((record.offset() for record in records), np.int64, count)
        times = np.fromiter((record.timestamp()[1] for record in records), np.int64, count)
        place = self._place
        made = {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": _same(place.topic, pa.string(), count),
            "partition": _same(place.partition, pa.int32(), count),
            "offset": pa.array(offsets),
            "timestamp": pa.array(np.maximum(times, 0) * 1000).view(columns.TIMESTAMP),
            "timestampType": _same(0, pa.int32(), count),
        }
        for name in self._include:
            if name == "properties" and said is not None:
                made[name] = _maps([one.properties if one else {} for one in said])
            else:
                made[name] = self._further(name, offsets, versions)
        return pa.RecordBatch.from_arrays([made[name] for name in self._schema.names], schema=self._schema)

    def _versions(
        self, said: Sequence["_Said | None"], found: Sequence[int | None] | None
    ) -> Sequence[int | None]:
        """By the headers, and else by the framing."""
        by_headers = [None if one is None else one.version for one in said]
        if self._framing is None:
            return by_headers
        own = self._framing.own
        pairs = zip(by_headers, found or repeat(None), strict=False)
        return [version_of(one, other, own=own) for one, other in pairs]

    def _further(self, name: str, offsets: Ints, versions: Sequence[int | None] | None) -> pa.Array:
        """A column of `include` of records that say nothing of it themselves."""
        count, place = len(offsets), self._place
        match name:
            case "properties":
                return _maps([{}] * count)
            case "message_id":
                partition = place.partition if place.partitioned else -1
                alone, one = np.full(count, -1, np.int64), np.ones(count, np.int64)
                return message_ids(place.ledger, partition, offsets, alone, one)
            case "producer_name":
                return _same("", pa.string(), count)
            case "sequence_id":
                return pa.array(offsets)
            case columns.VERSION if versions is not None:
                return pa.array(versions, pa.int64())
        return pa.nulls(count, self._schema.field(name).type)


class _Said(NamedTuple):
    """Headers that are properties, and the version of a schema at most."""

    properties: dict[str, str]
    version: int | None


_NOTHING: Final = _Said({}, None)


def _said(headers: Sequence[Header]) -> _Said | None:
    """None if headers say more."""
    version, properties = None, headers
    own = [(name, value) for name, value in headers if name.startswith(OURS)]
    if own:
        name, value = own[-1]
        if len(own) > 1 or name != SCHEMA_VERSION or value is None or not value.isdigit() or len(value) > 15:
            return None
        version, properties = int(value), [one for one in headers if one[0] != name]
    return _Said(read_properties(properties) or {}, version)


def _maps(of_rows: Sequence[dict[str, str]]) -> pa.MapArray:
    offsets = np.zeros(len(of_rows) + 1, np.int32)
    np.cumsum([len(one) for one in of_rows], out=offsets[1:])
    names = [name for one in of_rows for name in one]
    texts = [text for one in of_rows for text in one.values()]
    return pa.MapArray.from_arrays(offsets, pa.array(names, pa.string()), pa.array(texts, pa.string()))


def blocks(chunks: Iterable[Sequence[Record]]) -> Iterator[list[Record]]:
    """Gather the records of chunks into blocks that are worth decoding at once."""
    block: list[Record] = []
    size = 0
    for chunk in chunks:
        block += chunk
        size += sum(map(len, chunk))
        if len(block) >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def _same(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)

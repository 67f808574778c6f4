"""Records of Kafka become the rows that their entries would become. Pure: records in, batches out.

Records gather in a block. Those whose headers are properties, and the version of a schema at most, become columns at once;
each of the others is made the entry that the server makes of it, and read as one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engines.kafka.driver.record import Header, Record
from penstock.engines.kafka.framing import Framing, version_of
from penstock.engines.kafka.headers import properties_and_version
from penstock.engines.kafka.records import entries_of

from . import columns, rows
from .entries import Frame
from .place import Place
from .plain import maps, plain_rows

BLOCK_ROWS: Final = rows.BLOCK_ROWS
BLOCK_BYTES: Final = rows.BLOCK_BYTES

_OFFSET_MAX: Final = 2**63 - 1

_Said = tuple[dict[str, str], int | None]  # headers that are properties, and the version of a schema at most
_NOTHING: Final[_Said] = ({}, None)


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
        said = [properties_and_version(some) if some else _NOTHING for some in headers]
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
        said: Sequence[_Said | None] | None,
    ) -> pa.RecordBatch:
        """Of records whose headers say no more than `said`; None: there are none."""
        count = len(records)
        keys = [record.key() for record in records]
        values = [record.value() for record in records]
        framing = self._framing
        versions: Sequence[int | None] | None = (
            None if framing is None else framing.open(keys, values, headers)
        )
        properties = None
        if said is not None:
            versions = self._versions(said, versions)
            if "properties" in self._include:
                properties = maps([one[0] if one else {} for one in said])
        times = np.fromiter((record.timestamp()[1] for record in records), np.int64, count)
        return plain_rows(
            self._place,
            self._include,
            np.fromiter((record.offset() for record in records), np.int64, count),
            np.maximum(times, 0),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            None if versions is None else pa.array(versions, pa.int64()),
            properties,
        )

    def _versions(
        self, said: Sequence[_Said | None], found: Sequence[int | None] | None
    ) -> Sequence[int | None]:
        """By the headers, and else by the framing."""
        by_headers = [None if one is None else one[1] for one in said]
        if self._framing is None:
            return by_headers
        return [version_of(one, other) for one, other in zip(by_headers, found or repeat(None), strict=False)]


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

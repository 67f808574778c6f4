"""Records of Kafka become the rows that their entries would become. Pure: records in, batches out.

Records gather in a block. If the headers of all of them are properties, and the version of a schema at most, the block becomes
columns at once; else each record is made the entry that the server makes of it, and read as one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engines.kafka.driver.record import Record
from penstock.engines.kafka.framing import Framing
from penstock.engines.kafka.records import columns_of, entries_of

from . import columns, rows
from .entries import Frame
from .place import Place
from .plain import maps, plain_rows

BLOCK_ROWS: Final = rows.BLOCK_ROWS
BLOCK_BYTES: Final = rows.BLOCK_BYTES

_OFFSET_MAX: Final = 2**63 - 1


def record_rows(
    place: Place, include: Sequence[str], records: Sequence[Record], framing: Framing | None = None
) -> pa.RecordBatch:
    """The rows of records of one log, in their order; `framing` is that of a topic before a schema registry.

    Raises UnknownSchemas where the framing has to learn first.
    """
    found = columns_of(records, framing)
    offsets = [record.offset() for record in records]
    if found is None:
        cuts = [at for at in range(1, len(offsets)) if offsets[at] != offsets[at - 1] + 1]
        frames = [
            Frame(entry.offset, 1, entry.entry_id, entry.data)
            for low, high in pairwise([0, *cuts, len(offsets)])
            for entry in entries_of(records[low:high], offsets[low], place.ledger, framing)
        ]
        batches = list(rows.decode(place, frames, 0, _OFFSET_MAX, include))
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    return plain_rows(
        place,
        include,
        np.array(offsets, np.int64),
        np.array(found.times, np.int64),
        pa.array(found.keys, pa.binary()),
        pa.array(found.values, pa.binary()),
        pa.array(found.versions, pa.int64()) if columns.VERSION in include else None,
        maps(found.properties) if found.properties and "properties" in include else None,
    )


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

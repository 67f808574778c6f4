"""Where a time lies in an archive: the first offset published at or after it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from .reader import open_file
from .slices import holds
from .values import Piece, Snapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def offset_at(folder: Path, now: Snapshot, topic: str, partition: int, ms: int) -> int | None:
    """The first archived offset of a partition whose timestamp is `ms` since the epoch or later; None where all
    are earlier, or nothing is archived."""
    position = now.position(topic, partition)
    if position is None:
        return None
    piece = Piece(topic, partition, position.first, position.end)
    wanted = _EPOCH + timedelta(milliseconds=ms)
    best: int | None = None
    for file in sorted(
        (f for f in now.files() if holds(f, piece)), key=lambda f: int(f.low.get("offset") or 0)
    ):
        if best is not None and int(file.low.get("offset") or 0) >= best:
            break
        with open_file(folder, file.path) as opened:
            names = opened.schema_arrow.names
            columns = [n for n in ("topic", "partition", "offset", "timestamp") if n in names]
            for batch in opened.iter_batches(columns=columns):
                found = _first(batch, topic, partition, wanted)
                if found is not None and (best is None or found < best):
                    best = found
                    break
    return best


def _first(batch: pa.RecordBatch, topic: str, partition: int, wanted: datetime) -> int | None:
    """The lowest offset of a batch at or after a time."""
    bound = pa.scalar(wanted, pa.timestamp("us", tz="UTC"))
    mask = pc.greater_equal(batch.column("timestamp"), bound)
    for name, value in (("topic", topic), ("partition", partition)):
        if name in batch.schema.names:
            mask = pc.and_(mask, pc.equal(batch.column(name), value))
    lowest: int | None = pc.min(batch.column("offset").filter(mask)).as_py()
    return lowest

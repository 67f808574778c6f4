"""What a table is made of: its files, its positions in topics, and what one commit brings."""

from collections.abc import Mapping

import msgspec
import pyarrow as pa

Cell = str | int | None  # a bound of a column as far as reading cares: topics, partitions, offsets


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a table. `path` is relative to the table's folder; `at` is ms since the epoch.

    `values` are its partition values as text, None for null. `stats` is Delta's JSON of counts and bounds;
    `low` and `high` are the bounds of the columns `topic`, `partition` and `offset`, where they are known.
    """

    path: str
    size: int
    rows: int
    at: int
    values: dict[str, str | None] = {}
    stats: str = ""
    low: dict[str, Cell] = {}
    high: dict[str, Cell] = {}


class OffsetRange(msgspec.Struct, frozen=True, order=True):
    """The offsets `start .. end-1` of a topic's partition."""

    topic: str
    partition: int
    start: int
    end: int


class Position(msgspec.Struct, frozen=True):
    """What a table has archived of a partition: `first .. end-1` of the log `ledger` (-1: not known)."""

    first: int
    end: int
    ledger: int = -1


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit brings. `writer` and `number` name it; without a writer it is not remembered.

    `pieces` are what an archive's batch holds, one for each partition, and `ledgers` the logs they are of: they
    must go on where the table ends.
    """

    files: tuple[File, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    writer: str = ""
    number: int = 0
    overwrite: bool = False
    pieces: tuple[OffsetRange, ...] = ()
    ledgers: Mapping[tuple[str, int], int] = {}

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)

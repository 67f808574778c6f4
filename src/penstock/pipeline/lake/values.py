"""What a table is made of: its files, its positions in topics, and what one commit brings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pyarrow as pa

DELTA: Final = "delta"
PARQUET: Final = "parquet"
KINDS: Final = (DELTA, PARQUET)

Cell = str | int | None  # a bound of a column as far as reading cares: topics, partitions, offsets


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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


class Piece(msgspec.Struct, frozen=True, order=True):
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
    pieces: tuple[Piece, ...] = ()
    ledgers: Mapping[tuple[str, int], int] = {}

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)


class Snapshot(Protocol):
    """A table at one version."""

    @property
    def version(self) -> int: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def partition_by(self) -> tuple[str, ...]: ...

    def files(self) -> list[File]:
        """The files that are the table, oldest first."""
        ...

    def committed(self, writer: str) -> int | None:
        """The last batch of a writer."""
        ...

    def committed_rows(self, writer: str) -> int | None:
        """How many rows the last batch of a writer has; None where no commit tells."""
        ...

    def position(self, topic: str, partition: int) -> Position | None:
        """How far a partition is archived."""
        ...


class Table(Protocol):
    """A table of either kind. It keeps nothing open between calls."""

    @property
    def folder(self) -> Path: ...
    @property
    def kind(self) -> str: ...

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """The table as it is, or was; None where there is none."""
        ...

    def commit(self, batch: Batch) -> bool:
        """Add a batch, in one step; False where it was there already. The schema grows with it.

        Raises BatchConflict as `repeats.is_new` does, DataLoss and PipelineError as `positions.follow` and
        `schema.grow` do.
        """
        ...

    def replace(self, old: list[File], new: list[File]) -> bool:
        """Put rewritten files in the place of others, rows unchanged; False where somebody was faster."""
        ...

    def vacuum(self, hours: float) -> int:
        """Delete files that no version of the last `hours` holds; returns how many."""
        ...

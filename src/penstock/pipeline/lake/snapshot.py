"""A Delta table as it was at a version: its columns, its files, and what it remembers of writers and archived logs.

Each commit of ours has all that the table remembers in its metadata, so that the next one asks for that commit alone. The
truth are Delta's application transactions, which survive checkpoints and the log's retention: they are asked, one by one,
for what the metadata lacks.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from penstock.pipeline.errors import PipelineError

from .values import File, Last, Position

METADATA: Final = "penstock"  # in a commit's metadata
COMMITS_READ: Final = 8  # how many commits of maintenance may be behind the last one of a batch
NONE: Final = -1  # the end of a partition whose rows an earlier version overwrote
CLEARED: Final = (
    "penstock.cleared:"  # a transaction: positions up to this version of the table were overwritten
)
WRITERS_KEPT: Final = 64  # in the metadata; older ones are found by their transactions

# Operations that leave alone what the table remembers. Others may be an earlier version's, which writes no metadata.
_NEUTRAL: Final = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMN")


class Remembered(msgspec.Struct, array_like=True):
    """What a table remembers: the last batch of writers, and positions by `log_name`."""

    writers: dict[str, Last] = {}
    logs: dict[str, Position] = {}

    def with_batch(self, writer: str, last: Last, logs: dict[str, Position]) -> "Remembered":
        """The same after a batch, with these positions."""
        writers = self.writers
        if writer:
            kept = [(name, one) for name, one in writers.items() if name != writer][1 - WRITERS_KEPT :]
            writers = dict([*kept, (writer, last)])
        return Remembered(writers, logs)


class Snapshot:
    """A table at a version."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        self.partition_by = tuple(table.metadata().partition_columns)
        self._remembered: Remembered | None = None

    def actions(self) -> pa.Table:
        """The files that are the table, as columns: path, size_bytes, modification_time, num_records, `partition.NAME`, and
        `min.NAME`, `max.NAME`, `null_count.NAME` as far as statistics are known."""
        return pa.table(self._table.get_add_actions(flatten=True))

    def files(self, choose: Callable[[pa.Table], pa.Table] = lambda actions: actions) -> list[File]:
        """The files that are the table, oldest first; only those that `choose` leaves of `actions`."""
        actions = choose(self.actions())
        names = ["path", "size_bytes", "modification_time", "num_records"]
        partitions = {f"partition.{name}": name for name in self.partition_by}
        found = (self._file(row, partitions) for row in actions.select([*names, *partitions]).to_pylist())
        return sorted(found, key=lambda file: (file.at, file.path))

    @property
    def remembered(self) -> Remembered:
        """What the newest commit of ours has in its metadata; empty if it cannot be trusted."""
        if self._remembered is None:
            self._remembered = Remembered()
            for commit in self._commits():
                if METADATA in commit:
                    self._remembered = msgspec.json.decode(commit[METADATA], type=Remembered)
                if commit.get("operation") not in _NEUTRAL:
                    break
        return self._remembered

    def last(self, writer: str) -> Last | None:
        """The last batch of a writer; None before the first, and for a write without a name."""
        if not writer:
            return None
        if found := self.remembered.writers.get(writer):
            return found
        number = self._table.transaction_version(mark_name("writer", writer))
        if number is None:
            return None
        counted = self._table.transaction_version(mark_name("rows-of", writer)) == number
        return Last(number, self._table.transaction_version(mark_name("rows", writer)) if counted else None)

    def position(self, topic: str, partition: int) -> Position | None:
        """How far a partition is archived."""
        name = log_name(topic, partition)
        if found := self.remembered.logs.get(name):
            return found
        end = self._table.transaction_version(mark_name("end", name))
        if end is None or end == NONE:
            return None
        cleared = self._table.transaction_version(CLEARED)
        if cleared is not None and (self._table.transaction_version(mark_name("at", name)) or 0) <= cleared:
            return None
        first, ledger, sparse = (
            self._table.transaction_version(mark_name(what, name)) for what in ("first", "ledger", "sparse")
        )
        return Position(first or 0, end, -1 if ledger is None else ledger, dense=sparse is None)

    def _commits(self) -> Iterator[dict[str, Any]]:
        """The newest commits: the last one first, which mostly is enough."""
        yield from self._table.history(1)
        yield from self._table.history(COMMITS_READ)[1:]

    def _file(self, action: dict[str, Any], partitions: dict[str, str]) -> File:
        path = unquote(action["path"])
        if "://" in path:
            raise PipelineError(
                f"the table has the file {path} elsewhere; only tables in one folder are read"
            )
        return File(
            path=path,
            size=action["size_bytes"],
            rows=action["num_records"] or -1,
            at=action["modification_time"],
            values={name: text_of(action[column]) for column, name in partitions.items()},
        )


def text_of(value: Any) -> str | None:
    """A partition's value as Delta's log has it."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def log_name(topic: str, partition: int) -> str:
    """The name of a topic's partition among positions."""
    return f"{topic}#{partition}"


def mark_name(what: str, name: str) -> str:
    """An application transaction's name. `rows-of` says which batch `rows` are of: an earlier version commits a
    later batch without them."""
    return f"penstock.{what}:{name}"

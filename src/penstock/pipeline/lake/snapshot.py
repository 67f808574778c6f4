"""A Delta table as it was at a version: its columns, its files, and what it remembers of writers and archived logs."""

import json
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from penstock.pipeline.errors import PipelineError

from .store import Location
from .values import COLUMNS, File, Last, Position

COMMITS_READ_MAX: Final = 1000  # of the log, for the rows of a batch that an earlier version committed


class Snapshot:
    """A table at a version."""

    def __init__(self, table: Any, folder: Location) -> None:
        self._table = table
        self._folder = folder
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        self.partition_by = tuple(table.metadata().partition_columns)

    def files(self) -> list[File]:
        """The files that are the table, oldest first."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return sorted((self._file(action) for action in actions), key=lambda file: (file.at, file.path))

    def last(self, writer: str) -> Last | None:
        """The last batch of a writer; None before the first, and for a write without a name."""
        number = self._table.transaction_version(mark_name("writer", writer)) if writer else None
        if number is None:
            return None
        if self._table.transaction_version(mark_name("rows-of", writer)) == number:
            return Last(number, self._table.transaction_version(mark_name("rows", writer)))
        return Last(number, self._rows_in_log(writer, number))

    def position(self, topic: str, partition: int) -> Position | None:
        """How far a partition is archived."""
        end = self._table.transaction_version(mark_name("end", f"{topic}#{partition}"))
        if end is None:
            return None
        first = self._table.transaction_version(mark_name("first", f"{topic}#{partition}"))
        ledger = self._table.transaction_version(mark_name("ledger", f"{topic}#{partition}"))
        sparse = self._table.transaction_version(mark_name("sparse", f"{topic}#{partition}"))
        return Position(first or 0, end, -1 if ledger is None else ledger, dense=sparse is None)

    def _rows_in_log(self, writer: str, number: int) -> int | None:
        """The rows that a commit of an earlier version added, from the log of the table, as far as that goes back."""
        for version in range(self.version, max(-1, self.version - COMMITS_READ_MAX), -1):
            try:
                text = self._folder.read(f"_delta_log/{version:020d}.json").decode()
                actions = [json.loads(line) for line in text.splitlines()]
                if any(_is_batch(action.get("txn"), writer, number) for action in actions):
                    added = [action["add"] for action in actions if "add" in action]
                    return sum(int(json.loads(add["stats"])["numRecords"]) for add in added)
            except (OSError, ValueError, KeyError, TypeError):
                return None  # the log begins later, or an entry has no count
        return None

    def _file(self, action: dict[str, Any]) -> File:
        path = unquote(action["path"])
        if "://" in path:
            raise PipelineError(
                f"the table has the file {path} elsewhere; only tables in one folder are read"
            )
        values: dict[str, str | None] = {}
        for name in self.partition_by:
            found = action.get(f"partition.{name}")
            values[name] = (
                str(found).lower() if isinstance(found, bool) else None if found is None else str(found)
            )
        return File(
            path=path,
            size=action["size_bytes"],
            rows=action.get("num_records") or -1,
            at=_ms(action["modification_time"]),
            values=values,
            low={n: v for n in COLUMNS if (v := action.get(f"min.{n}")) is not None},
            high={n: v for n in COLUMNS if (v := action.get(f"max.{n}")) is not None},
        )


def mark_name(what: str, name: str) -> str:
    """An application transaction's name. `rows-of` says which batch `rows` are of: an earlier version commits a
    later batch without them."""
    return f"penstock.{what}:{name}"


def _is_batch(transaction: Any, writer: str, number: int) -> bool:
    return bool(
        transaction
        and transaction["appId"] == mark_name("writer", writer)
        and int(transaction["version"]) == number
    )


def _ms(value: Any) -> int:
    return value if isinstance(value, int) else int(value.timestamp() * 1000)

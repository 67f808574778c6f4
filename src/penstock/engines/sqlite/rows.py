"""Statements over many rows at once: few steps a commit.

Python releases its lock on every step of a statement and has to win it back from a busy event loop, which
may take as long as the switch interval each time. So a commit must consist of few steps: all rows of a kind
go into one statement. The statement texts come in powers of two, so that they stay prepared; rows
that are missing to the next power are of NULLs and are passed over.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

ROWS_MAX: Final = 1024  # as many as the writer groups; with 8 columns well below SQLite's 32,766 parameters

Statement = tuple[str, list[Any]]


class RowStatement:
    """A statement `before … VALUES (?, ?), (?, ?) … after`."""

    def __init__(self, columns: int, before: str, after: str = "") -> None:
        self.columns = columns
        self._before = before
        self._after = after
        self._texts: dict[int, str] = {}

    @classmethod
    def insert(cls, table: str, columns: int, conflict: str = "") -> "RowStatement":
        """Insert rows; none has NULL for its first column."""
        after = f") WHERE column1 IS NOT NULL {conflict}"
        return cls(columns, f"INSERT INTO {table} SELECT * FROM (VALUES ", after)  # noqa: S608

    @classmethod
    def delete(cls, table: str, key: tuple[str, ...]) -> "RowStatement":
        """Delete rows by their keys."""
        return cls(len(key), f"DELETE FROM {table} WHERE ({', '.join(key)}) IN (VALUES ", ")")  # noqa: S608

    def over(self, values: list[Any]) -> Iterator[Statement]:
        """The statements for all rows, whose `values` lie one after the other."""
        step = ROWS_MAX * self.columns
        for start in range(0, len(values), step):
            part = values[start : start + step] if len(values) > step else values
            size = 1 << (len(part) // self.columns - 1).bit_length()
            yield self._text(size), part + [None] * (size * self.columns - len(part))

    def _text(self, rows: int) -> str:
        text = self._texts.get(rows)
        if text is None:
            row = f"({', '.join('?' * self.columns)})"
            text = self._texts[rows] = self._before + ", ".join([row] * rows) + self._after
        return text


def listed(query: str, values: Sequence[Any]) -> Iterator[Statement]:
    """`query` with the list of an IN filled in for its `{}`; NULL equals nothing there."""
    for start in range(0, len(values), ROWS_MAX):
        part = list(values[start : start + ROWS_MAX])
        size = 1 << (len(part) - 1).bit_length()
        yield query.format(", ".join("?" * size)), part + [None] * (size - len(part))

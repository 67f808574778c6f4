"""Cursors and small documents. Several saves of the same within a transaction become one."""

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.engines.core.ports import CursorChange, no_log

from .rows import RowStatement, Statement
from .work import SaveCursors, SaveMeta, Transaction

_CURSORS: Final = RowStatement.insert(
    "cursors",
    4,
    "ON CONFLICT DO UPDATE SET mark = excluded.mark, properties = coalesce(excluded.properties, properties)",
)
_CHUNKS: Final = RowStatement.insert("cursor_chunks", 4, "ON CONFLICT DO UPDATE SET bits = excluded.bits")
_CHUNKS_DROPPED: Final = RowStatement.delete("cursor_chunks", ("ledger", "subscription", "chunk"))
_DOCUMENTS: Final = RowStatement.insert("meta", 3, "ON CONFLICT DO UPDATE SET document = excluded.document")
_DOCUMENTS_DELETED: Final = RowStatement.delete("meta", ("kind", "key"))


def save_cursors(works: Sequence[SaveCursors], transaction: Transaction) -> Iterator[Statement]:
    """Of each cursor the last mark, the last properties, and of each chunk the last bits."""
    marks: dict[tuple[int, str], int] = {}
    properties: dict[tuple[int, str], bytes | None] = {}
    chunks: dict[tuple[int, str, int], bytes | None] = {}
    for work in works:
        missing = next((c.ledger for c in work.changes if transaction.extent(c.ledger) is None), None)
        if missing is not None:
            transaction.outcomes.append((work, no_log(missing)))
            continue
        for change in work.changes:
            key = (change.ledger, change.subscription)
            marks[key] = change.mark
            if change.properties is not None:
                properties[key] = change.properties
            for number, bits in change.chunks.items():
                chunks[*key, number] = bits
    yield from _CURSORS.over([v for key, mark in marks.items() for v in (*key, mark, properties.get(key))])
    yield from _stored_or_not(chunks, _CHUNKS, _CHUNKS_DROPPED)


def save_meta(works: Sequence[SaveMeta]) -> Iterator[Statement]:
    """The last document of each kind and key."""
    documents = {(kind, key): document for work in works for kind, key, document in work.documents}
    yield from _stored_or_not(documents, _DOCUMENTS, _DOCUMENTS_DELETED)


def _stored_or_not(
    values: dict[Any, bytes | None], store: RowStatement, drop: RowStatement
) -> Iterator[Statement]:
    yield from store.over([v for key, value in values.items() if value is not None for v in (*key, value)])
    yield from drop.over([v for key, value in values.items() if value is None for v in key])


def delete_cursor(transaction: Transaction, ledger: int, subscription: str) -> None:
    """Delete a cursor with its chunks."""
    for table in ("cursors", "cursor_chunks"):
        statement = f"DELETE FROM {table} WHERE ledger = ? AND subscription = ?"  # noqa: S608
        transaction.connection.execute(statement, (ledger, subscription))


def load_cursors(connection: sqlite3.Connection, ledger: int) -> list[CursorChange]:
    """All cursors of a log, as of one moment."""
    connection.execute("BEGIN")
    try:
        cursors = {
            subscription: CursorChange(ledger, subscription, mark, {}, properties)
            for subscription, mark, properties in connection.execute(
                "SELECT subscription, mark, properties FROM cursors WHERE ledger = ?", (ledger,)
            )
        }
        for subscription, chunk, bits in connection.execute(
            "SELECT subscription, chunk, bits FROM cursor_chunks WHERE ledger = ?", (ledger,)
        ):
            cursors[subscription].chunks[chunk] = bits
    finally:
        connection.execute("COMMIT")
    return list(cursors.values())


def load_meta(connection: sqlite3.Connection, kind: str) -> dict[str, bytes]:
    """All documents of a kind."""
    return dict(connection.execute("SELECT key, document FROM meta WHERE kind = ?", (kind,)).fetchall())

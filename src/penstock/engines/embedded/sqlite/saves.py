"""The statements that save cursors and documents; several saves of the same become one."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from .rows import RowStatement, Statement
from .staged import Staged
from .work import SaveCursors, SaveMeta

_CURSORS: Final = RowStatement.insert(
    "cursors",
    4,
    "ON CONFLICT DO UPDATE SET mark = excluded.mark, properties = coalesce(excluded.properties, properties)",
)
_CHUNKS: Final = RowStatement.insert("cursor_chunks", 4, "ON CONFLICT DO UPDATE SET bits = excluded.bits")
_CHUNKS_DROPPED: Final = RowStatement.delete("cursor_chunks", ("ledger", "subscription", "chunk"))
_DOCUMENTS: Final = RowStatement.insert("meta", 3, "ON CONFLICT DO UPDATE SET document = excluded.document")
_DOCUMENTS_DELETED: Final = RowStatement.delete("meta", ("kind", "key"))


def save_cursors(works: Sequence[SaveCursors], staged: Staged) -> Iterator[Statement]:
    """Of each cursor the last mark, the last properties, and of each chunk the last bits."""
    marks: dict[tuple[int, str], int] = {}
    properties: dict[tuple[int, str], bytes | None] = {}
    chunks: dict[tuple[int, str, int], bytes | None] = {}
    for work in works:
        if not _all_open(work, staged):
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


def _all_open(work: SaveCursors, staged: Staged) -> bool:
    for change in work.changes:
        if staged.extent(change.ledger) is None:
            staged.refuse(work, change.ledger)
            return False
    return True


def _stored_or_not(
    values: dict[Any, bytes | None], store: RowStatement, drop: RowStatement
) -> Iterator[Statement]:
    yield from store.over([v for key, value in values.items() if value is not None for v in (*key, value)])
    yield from drop.over([v for key, value in values.items() if value is None for v in key])

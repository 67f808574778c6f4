"""What is staged and what writers committed: entries that are there, sets of topics and counts that can be read."""

import sqlite3
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import FORGOTTEN, Span

from .check_entries import Found, LogRow

FIRST_VERSION: Final = 3  # of the tables, that has what is looked at

_STAGES: Final = "SELECT start, writer, batch, stage, part, ledger, messages, size_bytes, numbers FROM stages"
_LIE: Final = "SELECT count(*), coalesce(sum(length(data)), 0) FROM entries WHERE id >= ? AND id < ?"
_COMMITS: Final = """
    SELECT writer, topics, batch, messages, spans, EXISTS (SELECT 1 FROM writers WHERE name = writer) FROM commits
"""


def check_stages(connection: sqlite3.Connection, logs: Mapping[int, LogRow]) -> Iterator[Found]:
    """Look at every run of staged entries, and at every last commit."""
    for start, writer, batch, stage, part, ledger, *counted, blob in connection.execute(_STAGES):
        place = f"writer {writer!r}, batch {batch}, stage {stage!r}, part {part}"
        if ledger not in logs:
            continue  # its topic was deleted: the commit will say so
        numbers = array("q", blob[: len(blob) // 8 * 8])
        if len(blob) % 24 or [sum(numbers[0::3]), sum(numbers[1::3])] != counted:
            yield (
                place,
                f"it says that it has {counted[0]} messages in {counted[1]} bytes, and its entries differ",
            )
            continue
        count = len(numbers) // 3
        lie = connection.execute(_LIE, (start, start + count)).fetchone()
        if lie != (count, counted[1]):
            yield (
                place,
                f"of its {count} entries with {counted[1]} bytes, {lie[0]} with {lie[1]} bytes are there",
            )
    for row in connection.execute(_COMMITS):
        yield from _check_commit(row)


def _check_commit(row: tuple[Any, ...]) -> Iterator[Found]:
    writer, topics, batch, messages, blob, owned = row
    place = f"writer {writer!r}, commit to {topics or 'all topics'}"
    if not owned:
        yield place, "there is no such writer"
    if batch < FORGOTTEN:
        yield place, f"its batch is {batch}"
    try:
        names = msgspec.json.decode(topics, type=list[str]) if topics else []
        if names != sorted({str(TopicName.parse(name).base) for name in names}):
            yield place, "its topics are no ordered set of full names"
        spans = msgspec.json.decode(blob, type=list[Span])
    except (PenstockError, msgspec.DecodeError) as error:
        yield place, f"it cannot be read: {error}"
        return
    if sum(span.messages for span in spans) != messages:
        yield place, f"it says that it has {messages} messages, and its spans differ"

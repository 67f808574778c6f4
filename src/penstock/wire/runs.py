"""A stream of what a log holds, in frames. Messages that were published alone share a frame, unless the reader takes entries only.

    offset u64 | kind u2, messages u30 | entry id u64 | length u32 | content            big endian

    ENTRY    an entry, as it is stored
    RUN      of each message its entry:
             size u32 of each                                                           little endian
             then the entries, one after the other
    RECORDS  messages that say nothing but this, each an entry:
             publish time i64 of each | schema version i64 of each (-1: none)           little endian
             size of the key i32 of each (-1: none) | size of the value i32 of each (-1: null)
             then the keys, one after the other, and then the values

Offsets and ids of entries count from those in the head. In a log of many ledgers, a frame without messages and without content
goes before the first entry of each ledger: its entry id is the ledger.
"""

import struct
from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, cast

from penstock.model.entry import Entry, EntryRun, RecordRun, Stretch

ENTRIES: Final = "application/vnd.penstock.entries"  # frames of kind ENTRY only
RUNS: Final = "application/vnd.penstock.entry-runs"

HEAD: Final = struct.Struct(">QIQI")
ENTRY, RUN, RECORDS = range(3)
NONE: Final = -1

_KIND_SHIFT: Final = 30
_COUNT: Final = (1 << _KIND_SHIFT) - 1


def split_head(buffer: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Of a frame: the offset, the kind, how many messages, the entry id, and the length of the content."""
    offset, count, entry_id, length = HEAD.unpack_from(buffer, at)
    return offset, count >> _KIND_SHIFT, count & _COUNT, entry_id, length


class Frames:
    """The frames of a log, for a reader that takes `runs`, or entries only; `ledger` is the one they are in, -1 where each names its
    own."""

    def __init__(self, ledger: int, *, runs: bool) -> None:
        self._many = ledger < 0
        self._ledger = ledger
        self._runs = runs

    def block(self, found: Sequence[Stretch], end: int) -> bytes:
        """The frames of what begins before the offset `end`."""
        found = found[: bisect_left(found, end, key=attrgetter("offset"))]
        parts: list[bytes] = []
        for one in _joined(found) if self._runs else found:
            if self._many and one.ledger != self._ledger:
                self._ledger = one.ledger
                parts.append(HEAD.pack(one.offset, 0, one.ledger, 0))
            match one:
                case Entry():
                    parts += (HEAD.pack(one.offset, one.count, one.entry_id, len(one.data)), one.data)
                case EntryRun():
                    parts += (_head(one, RUN, len(one.sizes) + len(one.data)), one.sizes, one.data)
                case RecordRun():
                    _add_records(one, parts)
        return b"".join(parts)


def _head(run: EntryRun | RecordRun, kind: int, length: int) -> bytes:
    return HEAD.pack(run.offset, kind << _KIND_SHIFT | run.count, run.entry_id, length)


def _add_records(run: RecordRun, parts: list[bytes]) -> None:
    count = run.count
    sizes = [
        [NONE if content is None else len(content) for content in contents]
        for contents in (run.keys, run.values)
    ]
    versions = [NONE if version is None else version for version in run.versions]
    columns = struct.pack(f"<{2 * count}q{2 * count}i", *run.times, *versions, *sizes[0], *sizes[1])
    contents = [content for content in (*run.keys, *run.values) if content is not None]
    parts += (_head(run, RECORDS, len(columns) + sum(map(len, contents))), columns, *contents)


def _joined(found: Sequence[Stretch]) -> list[Stretch]:
    """The same with entries of one message each, and runs of them, in one run as far as they follow one another."""
    if set(map(type, found)) == {Entry}:
        entries = cast(Sequence[Entry], found)
        if _follow(entries):
            return [_run_of(entries)]
    made: list[Stretch] = []
    run: list[Entry | EntryRun] = []
    following = (-1, -1, -1)  # ledger, entry id and offset of what may join the run
    for one in found:
        if isinstance(one, RecordRun) or (type(one) is Entry and one.count > 1):
            _end(run, made)
            made.append(one)
            continue
        if (one.ledger, one.entry_id, one.offset) != following:
            _end(run, made)
        run.append(one)
        following = one.ledger, one.entry_id + one.count, one.end
    _end(run, made)
    return made


def _follow(entries: Sequence[Entry]) -> bool:
    """Whether entries have one message each, and ids and offsets that follow one another: both rise by one at least."""
    first, last, after = entries[0], entries[-1], len(entries) - 1
    return (
        last.ledger == first.ledger
        and last.entry_id - first.entry_id == after
        and last.end - first.offset == len(entries)
    )


def _run_of(entries: Sequence[Entry]) -> EntryRun:
    first = entries[0]
    data = [entry.data for entry in entries]
    sizes = struct.pack(f"<{len(data)}I", *map(len, data))
    return EntryRun(first.ledger, first.entry_id, first.offset, sizes, b"".join(data))


def _end(run: list[Entry | EntryRun], made: list[Stretch]) -> None:
    """Add what was gathered."""
    if len(run) == 1:
        made.append(run[0])
    elif run:
        first = run[0]
        sizes = [len(one.data).to_bytes(4, "little") if type(one) is Entry else one.sizes for one in run]  # type: ignore[union-attr] # a run's
        made.append(
            EntryRun(
                first.ledger,
                first.entry_id,
                first.offset,
                b"".join(sizes),
                b"".join([one.data for one in run]),
            )
        )
    run.clear()

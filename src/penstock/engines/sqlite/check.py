"""Checks a data folder's storage: read only, as of one moment, also while a server runs in it.

In addition to SQLite's own check four invariants must hold:

- the entries of a log follow one another, from its first entry to its noted end, by entry id, offset and byte position;
- each entry can be decoded and has the messages that it counts;
- each cursor is within its log;
- each document that a server reads when it starts can be read, and each log has a topic.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo
from penstock.broker.topics import TopicDocument
from penstock.engines.registry.schemas import stored_number, stored_version
from penstock.engines.shared.documents import UNREADABLE
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_entity
from penstock.model.policy import NamespacePolicies, TopicPolicies

from .connection import open_reader, translate
from .folder import Files
from .runs import entries_of, read_sizes
from .schema import (
    APPLICATION_ID,
    DATA,
    ENTRY_BITS,
    RUNS_VERSION,
    STAGING,
    VERSION,
    check_version,
    first_id,
    number,
)
from .store import FILE_NAME

_USE: Final = os.R_OK | os.W_OK | os.X_OK
FINDINGS_MAX: Final = 1000  # listed; further ones are counted
_PROGRESS_EVERY: Final = 1024  # rows
_ENTRIES: Final = f"""
    SELECT id, first_offset, count, publish_time, deliver_at, {DATA}, {{sizes}}, first_byte FROM entries
    WHERE id < ? AND NOT EXISTS (SELECT 1 FROM sweeps WHERE start <= entries.id AND entries.id < until) ORDER BY id
"""  # noqa: S608 - constants only
Found = tuple[str, str]  # the location, and the problem
Progress = Callable[[str, int, int], None]  # subject, number done, total number


class Condition(msgspec.Struct, frozen=True):
    """Of a folder that can be used."""

    version: int | None  # of the storage in it; None if there is none yet
    newest: int = VERSION  # what a start makes of it


def look(folder: Path, file_name: str) -> Condition:
    """The state of `folder` as a server would find it; raises UNAVAILABLE with the reason if it could not use it.

    Another server may have the folder: whether one does is not looked at.
    """
    # By os.path: before Python 3.14 Path raises for paths below a folder that this user may not read.
    there = folder
    while not os.path.exists(there) and there != there.parent:  # noqa: PTH110
        there = there.parent
    if not os.path.isdir(there):  # noqa: PTH112
        raise _unusable(folder, f"{there} is no folder")
    if not os.access(there, _USE):
        raise _unusable(folder, f"{there} is not writable for user {os.geteuid()}")
    file = folder / file_name
    if not os.path.exists(file):  # noqa: PTH110
        return Condition(None)
    if not os.access(file, os.R_OK | os.W_OK):
        raise _unusable(folder, f"{file} is not writable for user {os.geteuid()}")
    written = Files(
        file.resolve(), None
    ).wal_bytes  # the log is in the folder of the file that a link leads to
    try:
        with closing(open_reader(file, immutable=not written)) as connection:
            return Condition(check_version(connection))
    except sqlite3.Error as error:
        raise _unusable(folder, translate(error).message) from None
    except PenstockError as error:
        raise _unusable(folder, error.message) from None


def _unusable(folder: Path, reason: str) -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, f"data folder {folder} cannot be used: {reason}")


def _json(parse: Callable[[str], object], type_: Any) -> Callable[[str, bytes], object]:
    def read(key: str, document: bytes) -> object:
        parse(key)
        return msgspec.json.decode(document, type=type_)

    return read


def _read_compaction(key: str, document: bytes) -> int:
    part = key.rpartition("\0")[2]
    return int(document if part == "horizon" else part)  # any bytes are a block's


# How the broker reads a document, by kind; raises one of `UNREADABLE`.
_DOCUMENTS: Final[dict[str, Callable[[str, bytes], object]]] = {
    "tenant": _json(lambda key: check_entity("tenant", key), TenantInfo),
    "namespace": _json(NamespaceName.parse, NamespacePolicies),
    "topic-policies": _json(TopicName.parse, TopicPolicies),
    "topic": _json(TopicName.parse, TopicDocument),
    "schema": lambda key, document: stored_version(stored_number(key), document),
    "epoch": lambda _, document: int(document),
    "compaction": _read_compaction,
}


class Finding(msgspec.Struct, frozen=True):
    """A problem and its location."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Report(msgspec.Struct):
    """The checked parts, and the problems found."""

    folder: str
    version: int = 0
    topics: int = 0
    logs: int = 0
    entries: int = 0
    messages: int = 0
    size_bytes: int = 0
    cursors: int = 0
    schemas: int = 0
    findings: list[Finding] = []
    further: int = 0  # findings beyond those that are listed

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def add(self, place: str, message: str) -> None:
        """Something was found."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(Finding(place, message))
        else:
            self.further += 1


def check(folder: Path, decode: Callable[[Entry], None], progress: Progress = lambda *_: None) -> Report:
    """Look through the storage in `folder`; blocks. `decode` raises PenstockError for an invalid entry.

    Raises NOT_FOUND if there is no storage, and UNAVAILABLE if it cannot be opened at all.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if not file.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is no storage at {file}")
    report = Report(str(folder), findings=[])
    try:
        with closing(open_reader(file)) as connection:
            connection.execute("BEGIN")  # all that follows is of one moment
            for place, message in _check(connection, report, decode, progress):
                report.add(place, message)
    except sqlite3.DatabaseError as error:
        report.add("the file", translate(error).message)
    return report


class _Log(msgspec.Struct):
    """A log as its row has it, and the end of the entries read so far."""

    ledger: int
    topic: str
    first_entry: int
    noted: tuple[int, int, int]  # the end as of the last trim: entry, offset, byte
    end: tuple[int, int, int]
    entries: int = 0


def _check(
    connection: sqlite3.Connection, report: Report, decode: Callable[[Entry], None], progress: Progress
) -> Iterator[Found]:
    """Check everything, and count it in `report`."""
    owner = number(connection, "PRAGMA application_id")
    report.version = number(connection, "PRAGMA user_version")
    if owner != APPLICATION_ID:
        yield "the file", "it was not written by Penstock"
        return
    if not 0 < report.version <= VERSION:
        yield "the file", f"it has version {report.version}; this Penstock knows {VERSION}"
        return
    progress("pages", 0, 1)
    for (said,) in connection.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
        if said != "ok":
            yield "the file", f"SQLite says: {said}"
    progress("pages", 1, 1)
    query = "SELECT ledger, topic, first_entry, first_offset, first_byte, next_entry, next_offset, next_byte FROM logs"
    logs = {row[0]: _Log(row[0], row[1], row[2], row[5:], row[2:5]) for row in connection.execute(query)}
    report.logs = len(logs)
    report.messages = -sum(log.end[1] for log in logs.values())
    report.size_bytes = -sum(log.end[2] for log in logs.values())
    yield from _check_entries(connection, logs, report.version, decode, progress)
    report.entries = sum(log.entries for log in logs.values())
    report.messages += sum(log.end[1] for log in logs.values())
    report.size_bytes += sum(log.end[2] for log in logs.values())
    report.cursors = number(connection, "SELECT count(*) FROM cursors")
    report.schemas = number(connection, "SELECT count(*) FROM meta WHERE kind = 'schema'")
    yield from _check_cursors(connection, logs)
    yield from _check_documents(connection, logs, report)


def _check_entries(
    connection: sqlite3.Connection,
    logs: dict[int, _Log],
    version: int,
    decode: Callable[[Entry], None],
    progress: Progress,
) -> Iterator[Found]:
    """Read every entry once, in order; sets the ends of `logs`."""
    query = _ENTRIES.format(sizes="sizes" if version >= RUNS_VERSION else "NULL")
    bound = first_id(STAGING)
    unknown: set[int] = set()  # ledgers
    total = number(connection, "SELECT count(*) FROM entries WHERE id < ?", bound)
    for done, row in enumerate(connection.execute(query, (bound,))):
        if done % _PROGRESS_EVERY == 0:
            progress("entries", done, total)
        log = logs.get(row[0] >> ENTRY_BITS)
        if log is not None:
            yield from _check_row(log, row[:-1], row[-1], decode)
        elif row[0] >> ENTRY_BITS not in unknown:
            unknown.add(row[0] >> ENTRY_BITS)
            yield f"ledger {row[0] >> ENTRY_BITS}", "there are entries, and no log that they belong to"
    progress("entries", total, total)
    for log in logs.values():
        if log.end < log.noted and (log.entries or log.first_entry != log.noted[0]):
            yield (
                log.topic,
                f"its last entries are missing: it ends at {log.end[0]}, and was at {log.noted[0]}",
            )


def _check_row(
    log: _Log, row: tuple[Any, ...], byte: int, decode: Callable[[Entry], None]
) -> Iterator[Found]:
    """Check one entry or a run of them, the first of which a trim may have deleted."""
    first = row[0] - first_id(log.ledger)
    entries = _entries_of(row)
    if entries is None:
        yield f"{log.topic}, entry {first}", "its data is missing, or its run cannot be divided into entries"
        log.end = (first + (row[2] if row[6] else 1), row[1] + row[2], byte)
        return
    for entry in entries:
        place = f"{log.topic}, entry {entry.entry_id}"
        at = (entry.entry_id, entry.offset, byte)
        byte += len(entry.data)
        if entry.entry_id < log.first_entry:
            if first + len(entries) <= log.first_entry:
                yield place, f"it lies before the log's first entry, {log.first_entry}"
            continue
        if at != log.end:
            yield place, f"it begins at {at} (entry, offset, byte), and the one before ends at {log.end}"
        log.entries += 1
        log.end = (entry.entry_id + 1, entry.offset + entry.count, byte)
        try:
            decode(entry)
        except PenstockError as error:
            yield place, error.message


def _entries_of(row: tuple[Any, ...]) -> list[Entry] | None:
    """The entries of a row; None if its columns contradict each other."""
    *_, count, _, _, data, sizes = row
    if not isinstance(data, bytes):
        return None
    if sizes is not None:
        if not isinstance(sizes, bytes) or len(sizes) % 4:
            return None
        found = read_sizes(sizes)
        if (len(found), sum(found)) != (count, len(data)):
            return None
    return entries_of(row)


def _check_cursors(connection: sqlite3.Connection, logs: dict[int, _Log]) -> Iterator[Found]:
    for ledger, name, mark in connection.execute("SELECT ledger, subscription, mark FROM cursors"):
        log = logs.get(ledger)
        if log is None:
            yield f"subscription {name!r}", f"it is of ledger {ledger}, which does not exist"
        elif not 0 <= mark <= log.end[1]:
            place = f"{log.topic}, subscription {name!r}"
            yield place, f"its mark is {mark}, and the log ends at {log.end[1]}"


def _check_documents(
    connection: sqlite3.Connection, logs: dict[int, _Log], report: Report
) -> Iterator[Found]:
    """Read every document, and look for the topics of `logs`."""
    topics: set[str] = set()
    for kind, read in _DOCUMENTS.items():
        for key, document in connection.execute("SELECT key, document FROM meta WHERE kind = ?", (kind,)):
            try:
                content = read(key, document)
            except UNREADABLE as error:
                yield f"{kind} {key!r}", f"its document cannot be read: {error}"
                continue
            if isinstance(content, TopicDocument):
                topics.add(key)
    report.topics = len(topics)
    for log in logs.values():
        try:
            name = TopicName.parse(log.topic)
        except PenstockError as error:
            yield log.topic, f"its log has an invalid name: {error.message}"
            continue
        if not topics & {str(name), str(name.base)}:
            yield log.topic, f"ledger {log.ledger} is a log of no topic"

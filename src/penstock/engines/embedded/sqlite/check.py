"""Whether a data folder holds what it should: read only, as of one moment, also while a server runs in it."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from penstock.broker.topics import TopicDocument
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .check_cursors import check_cursors
from .check_documents import check_documents
from .check_entries import LogRow, check_entries
from .check_stages import FIRST_VERSION, check_stages
from .connection import open_reader, translate
from .schema import APPLICATION_ID, MIGRATIONS, first_id
from .store import FILE_NAME

FINDINGS_MAX: Final = 1000  # told one by one; the rest is counted

_ENTRIES: Final = "SELECT count(*) FROM entries WHERE id < ?"


class Finding(msgspec.Struct, frozen=True):
    """Something that should not be: where, and what."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class Report(msgspec.Struct):
    """What was looked at, and what was found."""

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


Progress = Callable[[str, int, int], None]  # what is looked at, how many are done, of how many


def check(folder: Path, decode: Callable[[Entry], None], progress: Progress = lambda *_: None) -> Report:
    """Look through the storage in `folder`; blocks. `decode` raises PenstockError for an entry that is no good.

    Raises NOT_FOUND where there is no storage, and UNAVAILABLE where it cannot be opened at all.
    """
    file = folder / FILE_NAME if folder.is_dir() else folder
    if not file.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is no storage at {file}")
    report = Report(str(folder), findings=[])
    try:
        with closing(open_reader(file)) as connection:
            connection.execute("BEGIN")  # all that follows is of one moment
            if _check_file(connection, report):
                _check_content(connection, report, decode, progress)
    except sqlite3.DatabaseError as error:
        report.add("the file", translate(error).message)
    return report


def _check_file(connection: sqlite3.Connection, report: Report) -> bool:
    """Whether it is a storage of ours, whose content can be looked at."""
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    report.version = connection.execute("PRAGMA user_version").fetchone()[0]
    if owner != APPLICATION_ID:
        report.add("the file", "it was not written by Penstock")
        return False
    if not 0 < report.version <= len(MIGRATIONS):
        report.add("the file", f"it has version {report.version}; this Penstock knows {len(MIGRATIONS)}")
        return False
    return True


def _check_content(
    connection: sqlite3.Connection, report: Report, decode: Callable[[Entry], None], progress: Progress
) -> None:
    progress("pages", 0, 1)
    for (said,) in connection.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
        if said != "ok":
            report.add("the file", f"SQLite says: {said}")
    progress("pages", 1, 1)
    logs = {row.ledger: row for row in _logs(connection)}
    report.logs = len(logs)
    for place, message in _check_logs(connection, logs):
        report.add(place, message)
    total = connection.execute(_ENTRIES, (first_id(max(logs, default=0) + 1),)).fetchone()[0]
    for found in check_entries(connection, logs, decode, lambda done: progress("entries", done, total)):
        report.add(*found)
    progress("entries", total, total)
    report.entries = sum(log.entries for log in logs.values())
    report.messages = sum(log.end.offset - log.first_offset for log in logs.values())
    report.size_bytes = sum(log.end.byte - log.first_byte for log in logs.values())
    report.cursors = connection.execute("SELECT count(*) FROM cursors").fetchone()[0]
    for found in check_cursors(connection, logs):
        report.add(*found)
    if report.version >= FIRST_VERSION:
        for found in check_stages(connection, logs):
            report.add(*found)
    for found in check_documents(connection):
        report.add(*found)
    _check_topics(connection, logs, report)
    _check_schemas(connection, report)


def _logs(connection: sqlite3.Connection) -> Iterator[LogRow]:
    for row in connection.execute(
        "SELECT ledger, topic, first_entry, first_offset, first_byte, next_entry, next_offset, next_byte FROM logs"
    ):
        yield LogRow(*row)


def _check_logs(connection: sqlite3.Connection, logs: dict[int, LogRow]) -> Iterator[tuple[str, str]]:
    next_ledger = connection.execute("SELECT ledger FROM next_ledger").fetchone()
    if next_ledger is None:
        yield "the file", "the number of the next ledger is missing"
    for log in logs.values():
        if next_ledger is not None and log.ledger >= next_ledger[0]:
            yield (
                log.topic,
                f"ledger {log.ledger} would be given to another topic; the next is {next_ledger[0]}",
            )
        starts = (log.first_entry, log.first_offset, log.first_byte)
        ends = (log.next_entry, log.next_offset, log.next_byte)
        trimmed = ends != (0, 0, 0)  # the end is noted by trims only
        if min(starts) < 0 or (trimmed and any(s > e for s, e in zip(starts, ends, strict=True))):
            yield log.topic, f"its log begins at {starts} and ends at {ends}"


def _check_topics(connection: sqlite3.Connection, logs: dict[int, LogRow], report: Report) -> None:
    documents: dict[str, TopicDocument] = {}
    for key, document in connection.execute("SELECT key, document FROM meta WHERE kind = 'topic'"):
        try:
            TopicName.parse(key)
            documents[key] = msgspec.json.decode(document, type=TopicDocument)
        except (PenstockError, msgspec.DecodeError) as error:
            report.add(f"topic {key!r}", f"its document cannot be read: {error}")
    report.topics = len(documents)
    for log in logs.values():
        try:
            name = TopicName.parse(log.topic)
        except PenstockError as error:
            report.add(log.topic, f"its log has a name that cannot be: {error.message}")
            continue
        own, base = documents.get(str(name)), documents.get(str(name.base))
        if own is None and base is None:
            report.add(log.topic, f"ledger {log.ledger} is a log of no topic")
        elif own is None and base is not None and not 0 <= name.partition < base.partitions:
            report.add(log.topic, f"the topic has {base.partitions} partitions, and this is none of them")
        elif own is not None and own.partitions and log.end.entry > log.first_entry:
            report.add(log.topic, "the topic has partitions, and entries beside them")


def _check_schemas(connection: sqlite3.Connection, report: Report) -> None:
    versions: Counter[str] = Counter()
    query = "SELECT key, document FROM meta WHERE kind = 'schema' ORDER BY key"
    for key, document in connection.execute(query):
        topic, _, number = key.rpartition("\0")
        report.schemas += 1
        place = f"schema of {topic}"
        if not number.isdigit() or int(number) != versions[topic]:
            report.add(
                place, f"version {versions[topic]} is missing before {number or 'what has no number'!r}"
            )
            versions[topic] = int(number) if number.isdigit() else versions[topic]
        versions[topic] += 1
        try:
            content = msgspec.json.decode(document)
            if not isinstance(content, dict) or "type" not in content:
                report.add(place, f"version {number} has no type")
        except msgspec.DecodeError as error:
            report.add(place, f"version {number} cannot be read: {error}")

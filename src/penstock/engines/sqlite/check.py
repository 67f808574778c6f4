"""Whether a data folder holds what it should: read only, as of one moment, also while a server runs in it."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.broker.namespaces import TenantInfo
from penstock.broker.topics import TopicDocument
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_entity
from penstock.model.policy import NamespacePolicies, TopicPolicies

from .check_logs import Found, LogRow, check_cursors, check_entries, check_logs, check_stages
from .connection import open_reader, translate
from .schema import APPLICATION_ID, RUNS_VERSION, VERSION, first_id, number
from .store import FILE_NAME

FINDINGS_MAX: Final = 1000  # listed one by one; the rest is counted
STAGES_VERSION: Final = 3  # of the tables: the first with the stages and commits that are looked at

# What a server does not start with where it cannot read it: how a key is parsed, and of which type the document is.
_DOCUMENTS: Final[dict[str, tuple[Callable[[str], object], Any]]] = {
    "tenant": (lambda key: check_entity("tenant", key), TenantInfo),
    "namespace": (NamespaceName.parse, NamespacePolicies),
    "topic-policies": (TopicName.parse, TopicPolicies),
    "topic": (TopicName.parse, TopicDocument),
}


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
            for place, message in _check(connection, report, decode, progress):
                report.add(place, message)
    except sqlite3.DatabaseError as error:
        report.add("the file", translate(error).message)
    return report


def _check(
    connection: sqlite3.Connection, report: Report, decode: Callable[[Entry], None], progress: Progress
) -> Iterator[Found]:
    """Look at everything, and count it in `report`."""
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
    logs = LogRow.load(connection)
    report.logs = len(logs)
    yield from check_logs(connection, logs)
    total = number(
        connection, "SELECT count(*) FROM entries WHERE id < ?", first_id(max(logs, default=0) + 1)
    )
    runs = report.version >= RUNS_VERSION
    yield from check_entries(
        connection, logs, decode, lambda done: progress("entries", done, total), runs=runs
    )
    progress("entries", total, total)
    report.entries = sum(log.entries for log in logs.values())
    report.messages = sum(log.end.offset - log.first_offset for log in logs.values())
    report.size_bytes = sum(log.end.byte - log.first_byte for log in logs.values())
    report.cursors = number(connection, "SELECT count(*) FROM cursors")
    yield from check_cursors(connection, logs)
    if report.version >= STAGES_VERSION:
        yield from check_stages(connection, logs)
    topics: dict[str, TopicDocument] = {}
    yield from _check_documents(connection, topics)
    report.topics = len(topics)
    yield from _check_topics(logs, topics)
    yield from _check_schemas(connection, report)


def _check_documents(connection: sqlite3.Connection, topics: dict[str, TopicDocument]) -> Iterator[Found]:
    """Read every document, and collect those of topics."""
    for kind, (parse, type_) in _DOCUMENTS.items():
        for key, document in connection.execute("SELECT key, document FROM meta WHERE kind = ?", (kind,)):
            try:
                parse(key)
                content = msgspec.json.decode(document, type=type_)
            except (PenstockError, msgspec.DecodeError, UnicodeDecodeError) as error:
                yield f"{kind} {key!r}", f"its document cannot be read: {error}"
                continue
            if isinstance(content, TopicDocument):
                topics[key] = content


def _check_topics(logs: Mapping[int, LogRow], topics: Mapping[str, TopicDocument]) -> Iterator[Found]:
    for log in logs.values():
        try:
            name = TopicName.parse(log.topic)
        except PenstockError as error:
            yield log.topic, f"its log has a name that cannot be: {error.message}"
            continue
        own, base = topics.get(str(name)), topics.get(str(name.base))
        if own is None and base is None:
            yield log.topic, f"ledger {log.ledger} is a log of no topic"
        elif own is None and base is not None and not 0 <= name.partition < base.partitions:
            yield log.topic, f"the topic has {base.partitions} partitions, and this is none of them"
        elif own is not None and own.partitions and log.end.entry > log.first_entry:
            yield log.topic, "the topic has partitions, and entries beside them"


def _check_schemas(connection: sqlite3.Connection, report: Report) -> Iterator[Found]:
    versions: Counter[str] = Counter()
    query = "SELECT key, document FROM meta WHERE kind = 'schema' ORDER BY key"
    for key, document in connection.execute(query):
        topic, _, version = key.rpartition("\0")
        report.schemas += 1
        place = f"schema of {topic}"
        if not version.isdigit() or int(version) != versions[topic]:
            yield place, f"version {versions[topic]} is missing before {version or 'what has no number'!r}"
            versions[topic] = int(version) if version.isdigit() else versions[topic]
        versions[topic] += 1
        try:
            content = msgspec.json.decode(document)
            if not isinstance(content, dict) or "type" not in content:
                yield place, f"version {version} has no type"
        except msgspec.DecodeError as error:
            yield place, f"version {version} cannot be read: {error}"

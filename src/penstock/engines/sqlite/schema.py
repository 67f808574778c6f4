"""The tables, their version, and how a file of an older version becomes one of this.

    entries(id = ledger << 40 | entry id, ...)   clustered: a log's entries lie together, in order; see `runs`
    logs(ledger, topic, ...)                     the start of a log, and its end when last trimmed
    sweeps(start, until)                         ids of deleted entries, whose room is still to be freed

    stages(start, ...)                           stages: runs of entries in a separate ledger
    writers(name, owner, ...)                    the owner of a writer's name
    commits(writer, topics, batch, ...)          the last batch that each writer committed to a set of topics

Staged entries lie in the ledger STAGING. A commit does not move them: the log's entry holds, in place of its
data, the id of the staged one (an integer in place of a blob). So a commit costs a small row an entry,
however large the entries are.

Entry ids of a log have no gaps from `first_entry` on, so that an offset or a time is found by bisection over
look-ups of the row that holds an id, without an index to be written on every append.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

log = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x50454E53  # "PENS", in the file's header
PAGE_BYTES: Final = 8192  # see the measurements in docs/storage.md

ENTRY_BITS: Final = 40
ENTRY_MASK: Final = (1 << ENTRY_BITS) - 1
STAGING: Final = (1 << (63 - ENTRY_BITS)) - 2  # ids are signed 64 bit, and a log's end must be one too
LEDGERS_MAX: Final = STAGING  # those of logs lie below

# How many entries a row has; for a SELECT from `entries`.
ENTRIES_IN_ROW: Final = "CASE WHEN sizes IS NULL THEN 1 ELSE count END"
# An entry's data, wherever it lies; for a SELECT from `entries`.
DATA: Final = """CASE WHEN typeof(data) = 'integer'
    THEN (SELECT held.data FROM entries AS held WHERE held.id = entries.data) ELSE data END"""


def first_id(ledger: int) -> int:
    """The id of a ledger's entry 0."""
    return ledger << ENTRY_BITS


# The blob comes last, so that the small columns are read without it.
_VERSION_1: Final = (
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        first_offset INTEGER NOT NULL,
        count INTEGER NOT NULL,
        publish_time INTEGER NOT NULL,
        deliver_at INTEGER NOT NULL,
        first_byte INTEGER NOT NULL,
        data BLOB NOT NULL
    )""",
    """CREATE TABLE logs (
        ledger INTEGER PRIMARY KEY,
        topic TEXT NOT NULL UNIQUE,
        first_entry INTEGER NOT NULL,
        first_offset INTEGER NOT NULL,
        first_byte INTEGER NOT NULL,
        next_entry INTEGER NOT NULL,
        next_offset INTEGER NOT NULL,
        next_byte INTEGER NOT NULL
    )""",
    "CREATE TABLE next_ledger (ledger INTEGER NOT NULL)",
    "INSERT INTO next_ledger VALUES (0)",
    "CREATE TABLE sweeps (start INTEGER PRIMARY KEY, until INTEGER NOT NULL)",
    """CREATE TABLE producers (
        ledger INTEGER NOT NULL,
        name TEXT NOT NULL,
        sequence_id INTEGER NOT NULL,
        PRIMARY KEY (ledger, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE cursors (
        ledger INTEGER NOT NULL,
        subscription TEXT NOT NULL,
        mark INTEGER NOT NULL,
        properties BLOB,
        PRIMARY KEY (ledger, subscription)
    ) WITHOUT ROWID""",
    """CREATE TABLE cursor_chunks (
        ledger INTEGER NOT NULL,
        subscription TEXT NOT NULL,
        chunk INTEGER NOT NULL,
        bits BLOB NOT NULL,
        PRIMARY KEY (ledger, subscription, chunk)
    ) WITHOUT ROWID""",
    """CREATE TABLE meta (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        document BLOB NOT NULL,
        PRIMARY KEY (kind, key)
    ) WITHOUT ROWID""",
)


# Staged publishing. `numbers` has three numbers an entry, see `stages.py`.
_VERSION_2: Final = (
    """CREATE TABLE stages (
        start INTEGER PRIMARY KEY,
        writer TEXT NOT NULL,
        batch INTEGER NOT NULL,
        stage TEXT NOT NULL,
        part INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        at INTEGER NOT NULL,
        ledger INTEGER NOT NULL,
        topic TEXT NOT NULL,
        messages INTEGER NOT NULL,
        size_bytes INTEGER NOT NULL,
        numbers BLOB NOT NULL
    )""",
    "CREATE INDEX stages_by_writer ON stages (writer, batch, stage)",
    """CREATE TABLE commits (
        writer TEXT PRIMARY KEY,
        batch INTEGER NOT NULL,
        at INTEGER NOT NULL,
        owner TEXT NOT NULL,
        keep INTEGER NOT NULL,
        spans BLOB NOT NULL
    ) WITHOUT ROWID""",
)


_VERSION_3: Final = (
    """CREATE TABLE commits (
        writer TEXT NOT NULL,
        topics TEXT NOT NULL,
        batch INTEGER NOT NULL,
        at INTEGER NOT NULL,
        origin TEXT NOT NULL,
        keep INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        stages TEXT NOT NULL,
        spans BLOB NOT NULL,
        PRIMARY KEY (writer, topics)
    ) WITHOUT ROWID""",
    "CREATE INDEX commits_by_origin ON commits (origin)",
    """CREATE TABLE writers (
        name TEXT PRIMARY KEY,
        owner TEXT NOT NULL,
        origin TEXT NOT NULL,
        at INTEGER NOT NULL,
        keep INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX writers_by_origin ON writers (origin)",
    "CREATE INDEX writers_by_owner ON writers (owner, name)",
    "CREATE INDEX writers_by_time ON writers (keep, at)",
)


# Runs of entries in one row. No row is written again: those without the column have NULL.
_VERSION_4: Final = ("ALTER TABLE entries ADD COLUMN sizes BLOB",)
RUNS_VERSION: Final = 4


def _execute(statements: Iterable[str], connection: sqlite3.Connection) -> None:
    for statement in statements:
        connection.execute(statement)


def _add_writers(connection: sqlite3.Connection) -> None:
    """Version 3: commits by writer and topics, and writers' owners. Commits of version 2 count for all topics."""
    commits = connection.execute("SELECT writer, batch, at, owner, keep, spans FROM commits").fetchall()
    connection.execute("DROP TABLE commits")
    _execute(_VERSION_3, connection)
    for writer, batch, at, owner, keep, spans in commits:
        messages = sum(span["messages"] for span in msgspec.json.decode(spans))
        row = (writer, "", batch, at, owner, keep, messages, "", spans)
        connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("INSERT INTO writers VALUES (?, ?, ?, ?, ?)", (writer, owner, owner, at, keep))
    connection.execute(
        "INSERT OR IGNORE INTO writers SELECT writer, '', '', max(at), 0 FROM stages GROUP BY 1"
    )


Migration = Callable[[sqlite3.Connection], None]

# Number n makes version n + 1 of version n.
MIGRATIONS: Final[tuple[Migration, ...]] = (
    partial(_execute, _VERSION_1),
    partial(_execute, _VERSION_2),
    _add_writers,
    partial(_execute, _VERSION_4),
)
VERSION: Final = len(MIGRATIONS)


def check_version(connection: sqlite3.Connection, newest: int = VERSION) -> int:
    """The version of the file, 0 for an empty one; raises UNAVAILABLE for a file of a newer Penstock or of another
    program."""
    version = number(connection, "PRAGMA user_version")
    owner = number(connection, "PRAGMA application_id")
    empty = number(connection, "SELECT count(*) FROM sqlite_master") == 0
    if owner != APPLICATION_ID and not (empty and owner == 0):
        raise PenstockError(ErrorKind.UNAVAILABLE, "the file was not written by Penstock")
    if version > newest:
        raise PenstockError(
            ErrorKind.UNAVAILABLE,
            f"the file has version {version}, written by a newer Penstock; this one knows {newest}",
        )
    return version


def prepare(connection: sqlite3.Connection, migrations: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the file to the newest version, one transaction a step; an empty file is version 0.

    Raises UNAVAILABLE for a file of a newer Penstock or of another program, and leaves it as it was.
    """
    version = check_version(connection, len(migrations))
    for step in range(version, len(migrations)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            migrations[step](connection)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {step + 1}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    if 0 < version < len(migrations):
        log.warning("upgraded the storage", extra={"from": version, "to": len(migrations)})


def number(connection: sqlite3.Connection, query: str, *values: object) -> int:
    """The one number that a query or a pragma returns."""
    return int(connection.execute(query, values).fetchone()[0])

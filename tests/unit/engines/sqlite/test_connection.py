"""SQLite's errors in the project's words."""

import sqlite3
from pathlib import Path

import pytest

from penstock.engines.sqlite.connection import (
    blames_surroundings,
    open_reader,
    open_writer,
    translate,
)
from penstock.model.errors import ErrorKind, PenstockError


def error(code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError("so it goes")
    made.sqlite_errorcode = code
    return made


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (sqlite3.SQLITE_FULL, ErrorKind.STORAGE_FULL),
        (sqlite3.SQLITE_IOERR_WRITE, ErrorKind.STORAGE_FAILED),
        (sqlite3.SQLITE_IOERR_FSYNC, ErrorKind.STORAGE_FAILED),
        (sqlite3.SQLITE_READONLY, ErrorKind.STORAGE_FAILED),
        (sqlite3.SQLITE_CORRUPT, ErrorKind.UNAVAILABLE),
        (sqlite3.SQLITE_NOTADB, ErrorKind.UNAVAILABLE),
        (sqlite3.SQLITE_BUSY, ErrorKind.UNAVAILABLE),
        (sqlite3.SQLITE_TOOBIG, ErrorKind.INTERNAL),
    ],
)
def test_codes(code: int, kind: ErrorKind) -> None:
    assert translate(error(code)).kind is kind
    assert blames_surroundings(error(code)) == (kind is not ErrorKind.INTERNAL)
    assert "so it goes" in translate(error(code)).message


def test_other_errors() -> None:
    known = PenstockError(ErrorKind.UNAVAILABLE, "as it is")

    assert translate(known) is known
    assert translate(OverflowError("too large")).kind is ErrorKind.INTERNAL
    assert not blames_surroundings(OverflowError())
    assert not blames_surroundings(sqlite3.ProgrammingError())


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    file = tmp_path / "a file with ? and # and %41.db"
    writer = open_writer(file)
    writer.execute("CREATE TABLE t (id INTEGER)")
    reader = open_reader(file)

    assert reader.execute("SELECT count(*) FROM t").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("INSERT INTO t VALUES (1)")
    reader.close()
    writer.close()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.sqlite.connection.SQLITE_MIN", (99, 0, 0))
    with pytest.raises(PenstockError, match=r"99\.0\.0 is needed"):
        open_writer(tmp_path / "t.db")

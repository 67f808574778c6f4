"""Plain Parquet with a log of our own, for who wants no Delta: which files are the table, and who wrote what.

    _penstock/00000000000000000007.json      a commit: what it adds, removes and remembers
    _penstock/00000000000000000050.all.json  the table as it was then, instead of all commits up to it
    _penstock/lock                           held while a commit is made

A commit is written aside and linked under its number, which fails where somebody has that number already; so a
commit is there as a whole or not at all. Every CHECKPOINT commits the table is written out, and what came before
the last KEEP commits is deleted: the log does not grow for ever.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pyarrow as pa

from penstock.pipeline.errors import PipelineError

from . import partitioning, positions, schema
from .repeats import is_new, last_of
from .values import PARQUET, Batch, File, Position

FOLDER: Final = "_penstock"
CHECKPOINT: Final = 50
KEEP: Final = 100  # commits that readers and `version` may still want
READS_MAX: Final = 5  # a reader may lose a race against the clearing of the log


class Commit(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the table's history; a checkpoint is one with all there is."""

    version: int
    at: int
    schema: str  # Arrow's IPC, in hex: every type comes back as it was
    partition_by: list[str] = []
    add: list[File] = []
    remove: list[str] = []
    gone: dict[str, int] = {}  # in a checkpoint: removed files that may still lie there, and since when
    overwrite: bool = False
    writers: dict[str, int] = {}
    rows: dict[str, tuple[int, int]] = {}  # by writer: its last batch and the rows of that
    positions: dict[str, Position] = {}


class ParquetSnapshot:
    """The table at a version: a checkpoint and the commits after it."""

    def __init__(self, state: Commit, log: Path) -> None:
        self.state = state
        self._log = log
        self.version = state.version
        self.schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(state.schema)))
        self.partition_by = tuple(state.partition_by)

    def files(self) -> list[File]:
        return list(self.state.add)

    def committed(self, writer: str) -> int | None:
        return self.state.writers.get(writer)

    def committed_rows(self, writer: str) -> int | None:
        number = self.committed(writer)
        known, rows = self.state.rows.get(writer, (None, 0))
        if number is None or known == number:
            return None if number is None else rows
        return self._rows_in_log(writer, number)

    def _rows_in_log(self, writer: str, number: int) -> int | None:
        """The rows that a commit of an earlier version added, as far as the log goes back."""
        for version in range(self.version, -1, -1):
            try:
                commit = load(self._log / f"{version:020d}.json")
            except FileNotFoundError:
                return None
            if commit.writers.get(writer) == number:
                return sum(file.rows for file in commit.add)
        return None

    def position(self, topic: str, partition: int) -> Position | None:
        return self.state.positions.get(f"{topic}#{partition}")


class Parquet:
    """A table of Parquet files in a folder."""

    kind = PARQUET

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = folder / FOLDER

    def snapshot(self, version: int | None = None) -> ParquetSnapshot | None:
        for _ in range(READS_MAX):
            try:
                state = self._read(version)
            except FileNotFoundError:
                if version is not None:
                    break
                continue  # cleared away between being listed and being read: there is a newer checkpoint
            except msgspec.DecodeError as error:
                raise PipelineError(f"the log of the table {self.folder} is damaged: {error}") from None
            return None if state is None else ParquetSnapshot(state, self._log)
        if version is not None:
            raise PipelineError(f"option version: the table {self.folder} has no version {version}")
        raise PipelineError(f"the log of the table {self.folder} cannot be read: its files keep vanishing")

    def commit(self, batch: Batch) -> bool:
        with self._locked():
            now = self.snapshot()
            known: dict[str, int] = {}
            columns = batch.schema
            if now is not None:
                partitioning.check_same(
                    [partitioning.By(name) for name in batch.partition_by], now.partition_by
                )
                if not is_new(self.folder, batch, last_of(now, batch.writer)):
                    return False
                columns = schema.grow(now.schema, batch.schema)
            if batch.writer:
                known[batch.writer] = batch.number
            moved = {
                f"{p.topic}#{p.partition}": positions.follow(
                    p,
                    now.position(p.topic, p.partition) if now else None,
                    batch.ledgers.get((p.topic, p.partition), -1),
                )
                for p in batch.pieces
            }
            self._append(
                Commit(
                    version=now.version + 1 if now else 0,
                    at=_now(),
                    schema=_hex(columns),
                    partition_by=list(now.partition_by if now else batch.partition_by),
                    add=list(batch.files),
                    overwrite=batch.overwrite,
                    writers=known,
                    rows={name: (number, batch.rows) for name, number in known.items()},
                    positions=moved,
                )
            )
        return True

    def replace(self, old: list[File], new: list[File]) -> bool:
        with self._locked():
            now = self.snapshot()
            gone = {file.path for file in old}
            if now is None or not gone <= {file.path for file in now.files()}:
                return False
            self._append(
                Commit(
                    version=now.version + 1,
                    at=_now(),
                    schema=now.state.schema,
                    partition_by=now.state.partition_by,
                    add=new,
                    remove=sorted(gone),
                )
            )
        return True

    def vacuum(self, hours: float) -> int:
        now = self.snapshot()
        if now is None:
            return 0
        before = _now() - int(hours * 3_600_000)
        kept = {file.path for file in now.files()}
        kept |= {path for path, at in now.state.gone.items() if at >= before}
        count = 0
        for full in self.folder.rglob("part-*.parquet"):
            path = full.relative_to(self.folder).as_posix()
            if path not in kept and full.stat().st_mtime * 1000 < before:
                full.unlink(missing_ok=True)
                count += 1
        return count

    def _read(self, version: int | None) -> Commit | None:
        commits, checkpoints = self._listed()
        limit = version if version is not None else max(commits | checkpoints, default=-1)
        begin = max((n for n in checkpoints if n <= limit), default=-1)
        state = None
        if begin >= 0:
            state = load(self._log / f"{begin:020d}.all.json")
        for number in range(begin + 1, limit + 1):
            commit = load(self._log / f"{number:020d}.json")
            state = commit if state is None else applied(state, commit)
        return state

    def _listed(self) -> tuple[set[int], set[int]]:
        names = [path.name for path in self._log.glob("*.json")] if self._log.is_dir() else []
        checkpoints = {int(name[:20]) for name in names if name.endswith(".all.json")}
        return {int(name[:20]) for name in names if not name.endswith(".all.json")}, checkpoints

    def _append(self, commit: Commit) -> None:
        self._place(commit, self._log / f"{commit.version:020d}.json")
        if commit.version % CHECKPOINT == CHECKPOINT - 1:
            state = self._read(commit.version)
            assert state is not None
            state.gone = {path: at for path, at in state.gone.items() if (self.folder / path).exists()}
            self._place(state, self._log / f"{commit.version:020d}.all.json")
            self._clear(commit.version)

    def _place(self, commit: Commit, path: Path) -> None:
        aside = self._log / f".{uuid4()}.tmp"
        with aside.open("wb") as file:
            file.write(msgspec.json.encode(commit))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, path)
        finally:
            aside.unlink()
        handle = os.open(self._log, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _clear(self, version: int) -> None:
        """Delete what a checkpoint has made needless, older than the last KEEP commits."""
        commits, checkpoints = self._listed()
        base = max((n for n in checkpoints if n <= version - KEEP), default=-1)
        for number in commits:
            if number <= base:
                (self._log / f"{number:020d}.json").unlink(missing_ok=True)
        for number in checkpoints:
            if number < base:
                (self._log / f"{number:020d}.all.json").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._log.mkdir(parents=True, exist_ok=True)
        with (self._log / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def load(path: Path) -> Commit:
    """One file of the log."""
    return msgspec.json.decode(path.read_bytes(), type=Commit)


def applied(state: Commit, commit: Commit) -> Commit:
    """The table after a commit. Rewritten files take the place of the first that they replace."""
    removed = {file.path for file in state.add} if commit.overwrite else set(commit.remove)
    place = next((n for n, file in enumerate(state.add) if file.path in removed), len(state.add))
    if not commit.remove:
        place = len(state.add)
    files = [file for file in state.add[:place] if file.path not in removed]
    files += commit.add
    files += [file for file in state.add[place:] if file.path not in removed]
    return Commit(
        version=commit.version,
        at=commit.at,
        schema=commit.schema,
        partition_by=commit.partition_by,
        add=files,
        gone=state.gone | dict.fromkeys(removed, commit.at),
        writers=state.writers | commit.writers,
        rows=state.rows | commit.rows,
        positions=state.positions | commit.positions,
    )


def _hex(columns: pa.Schema) -> str:
    return bytes(columns.serialize()).hex()


def _now() -> int:
    return int(time.time() * 1000)

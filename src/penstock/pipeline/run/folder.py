"""The folder of a pipeline's state: owned by its name, used by one at a time.

<state>/<name>/checkpoint/    Spark's
               owner.json     whose checkpoint it is: the pipeline's name, and what its sources read
               lock           held as long as the pipeline runs
               status.json    the last thing it said about itself
               control        orders to the run: stop
               scratch/       what Spark needs while it runs: spilled and cached data, copies of state
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec, fingerprint, goes_on, source_topics

T = TypeVar("T")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose checkpoint a folder holds. `start` is where it began, if not where the file says."""

    pipeline: str
    fingerprint: str
    sources: dict[str, str]
    start: int | None = None  # ms since the epoch


class Folder:
    """The paths, and what is read and written there."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.checkpoint = home / "checkpoint"
        self.lock = home / "lock"
        self.scratch = home / "scratch"
        self.made: list[Path] = []  # folders that the lock made, the innermost first
        self._owner = home / "owner.json"
        self._status = home / "status.json"
        self._control = home / "control"

    def owner(self) -> Owner | None:
        """Whose it is; None for a free one. Raises PipelineError for a file that is none of ours."""
        return read(self._owner, Owner)

    def check_owner(self, spec: Spec) -> Owner | None:
        """Refuse the checkpoint of another pipeline. Changes nothing."""
        owner = self.owner()
        if owner is None:
            if self.checkpoint.exists() and any(self.checkpoint.iterdir()):
                raise PipelineError(
                    f"{self.checkpoint} holds a checkpoint that is not this pipeline's: choose another state folder"
                )
            return None
        if owner.pipeline != spec.name:
            raise PipelineError(
                f"{self.home} belongs to pipeline {owner.pipeline!r}, not to {spec.name!r}: choose another state"
                " folder"
            )
        begun = (self.checkpoint / "metadata").exists()  # before, nothing of the sources is remembered
        same = owner.fingerprint == fingerprint(spec)
        if begun and not same and not goes_on(owner.sources, source_topics(spec)):
            raise PipelineError(
                f"the checkpoint in {self.home} was made for {_listed(owner.sources)}, but {spec.file} now reads"
                f" {_listed(source_topics(spec))}: give the pipeline another name, or run full-refresh"
            )
        return owner

    def own(self, spec: Spec, start: int | None = None) -> None:
        """Write whose it is."""
        owner = Owner(
            pipeline=spec.name, fingerprint=fingerprint(spec), sources=source_topics(spec), start=start
        )
        replace(self._owner, msgspec.json.encode(owner))

    def forget(self) -> None:
        """Remove the checkpoint: the next run begins from the start."""
        gone = self.home / "checkpoint.gone"  # first out of the way: half a checkpoint is worse than none
        shutil.rmtree(gone, ignore_errors=True)
        if self.checkpoint.exists():
            self.checkpoint.rename(gone)
        self._owner.unlink(missing_ok=True)
        shutil.rmtree(gone, ignore_errors=True)

    def vacate(self) -> None:
        """Leave nothing where nothing has run: no checkpoint, and no name on it. For the holder of the lock."""
        if self._owner.exists() or self.checkpoint.exists():
            return
        shutil.rmtree(self.scratch, ignore_errors=True)
        for file in (self._status, self._control, self.lock):
            file.unlink(missing_ok=True)
        with suppress(OSError):  # something else is there, and stays
            for folder in self.made:
                folder.rmdir()

    def clean_scratch(self) -> Path:
        """The folder for what a run leaves behind when it is killed; empty. For the holder of the lock."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self.scratch

    def status(self) -> dict[str, Any] | None:
        """What the pipeline last said about itself."""
        try:
            found: dict[str, Any] = msgspec.json.decode(self._status.read_bytes(), type=dict[str, Any])
            return found
        except (OSError, msgspec.DecodeError):
            return None

    def write_status(self, status: dict[str, Any]) -> None:
        """Write what `status` reads."""
        replace(self._status, msgspec.json.encode(status))

    def ask_to_stop(self) -> None:
        """What the running pipeline sees within a second."""
        replace(self._control, b"stop")

    def asked_to_stop(self) -> bool:
        return self._control.exists()

    def clear_control(self) -> None:
        self._control.unlink(missing_ok=True)


class Lock:
    """A folder in use; given back when the process ends, however it ends. A context manager."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: int | None = None

    def __enter__(self) -> Self:
        home = self._folder.home
        while not self._taken(home):  # the holder before removed the file, see `vacate`
            pass
        return self

    def _taken(self, home: Path) -> bool:
        self._folder.made += [folder for folder in (home, *home.parents) if not folder.exists()]
        try:
            home.mkdir(parents=True, exist_ok=True)
            file = os.open(self._folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PipelineError(f"the state folder {home} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            who = f" by process {holder}" if holder else ""
            raise PipelineError(f"the state folder {home} is in use{who}: the pipeline is running") from None
        if not _is_at(file, self._folder.lock):
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file
        return True

    @property
    def file(self) -> int:
        """The descriptor, for a child to hold too."""
        assert self._file is not None
        return self._file

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def in_use(folder: Folder) -> bool:
    """Whether a process holds the lock. Creates nothing."""
    try:
        file = os.open(folder.lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def read(path: Path, type_: type[T]) -> T | None:
    """A file of JSON, None where there is none. Raises PipelineError for one that is none of ours."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PipelineError(f"{path} cannot be read: {error}") from None


def replace(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_bytes(content)
    new.replace(path)


def _listed(sources: dict[str, str]) -> str:
    return ", ".join(f"{name} ({topics})" for name, topics in sources.items())


def forget(spec: Spec) -> list[str]:
    """Forget how far the pipeline has come, and empty its tables, each in one commit; returns what was done.

    Topics keep what they have: what a new checkpoint writes there comes after it, under a new writer's name.
    """
    folder = Folder(spec.home)
    with Lock(folder):
        _check_name(spec, folder)
        folder.forget()
        tables = [sink.path for sink in spec.sinks.values() if sink.path]
        emptied = [f"emptied the table {path}" for path in tables if empty(path, spec.storage)]
    return [f"forgot the checkpoint in {folder.home}", *emptied]


def reset(spec: Spec, start_ms: int) -> None:
    """Let the next run begin with the messages published at or after a time. Sinks keep what they have."""
    folder = Folder(spec.home)
    with Lock(folder):
        _check_name(spec, folder)
        folder.forget()
        folder.own(spec, start_ms)


def empty(path: str, storage: Mapping[str, str]) -> bool:
    """Take all rows out of a table in one commit; False where there is none."""
    from penstock.pipeline.lake.options import is_table, table_at
    from penstock.pipeline.lake.store import Location
    from penstock.pipeline.lake.values import Batch

    folder = Location.of(path, storage)
    if not is_table(folder):
        return False
    table = table_at(folder)
    now = table.snapshot()
    if now is None:
        return False
    table.commit(Batch(files=(), schema=now.schema, partition_by=tuple(now.partition_by), overwrite=True))
    return True


def _check_name(spec: Spec, folder: Folder) -> None:
    """Other sources are a reason to begin again, another pipeline is none."""
    owner = folder.owner()
    if owner is None:
        folder.check_owner(spec)
    elif owner.pipeline != spec.name:
        raise PipelineError(f"{folder.home} belongs to pipeline {owner.pipeline!r}, not to {spec.name!r}")

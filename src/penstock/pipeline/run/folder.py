"""The folder of a pipeline's state: owned by its name, used by one at a time.

<state>/<name>/checkpoint/    Spark's
               owner.json     whose checkpoint it is: the pipeline's name, what its sources read, and how its sinks write
               lock           held as long as the pipeline runs
               status.json    the last thing it said about itself
               control        orders to the run: stop
               scratch/       what Spark needs while it runs: spilled and cached data, copies of state

For state in an object store, `remote` does the same with objects.
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec, fingerprint, goes_on, source_topics

T = TypeVar("T")

VERSION: Final = 2  # of checkpoints, see docs/upgrades.md; 2 came with `sinks`


class SinkWriter(msgspec.Struct, frozen=True, kw_only=True):
    """How a sink writes: under the query's id and `suffix`, to `target`, with the dead letters for the topic `letters` (empty:
    none). `at_once`: no commit says whether it has a batch."""

    suffix: str
    target: str
    letters: str = ""
    at_once: bool = False


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The owner of a checkpoint folder. `start` is its start, if another than the file's; `sinks` are those of the last run.
    A file that names no version has version 1."""

    pipeline: str
    fingerprint: str
    sources: dict[str, str]
    start: int | None = None  # ms since the epoch
    sinks: dict[str, SinkWriter] = {}
    version: int = 1


class Folder:
    """Reads and writes of the folder. `scratch` is always on this machine."""

    version = VERSION  # that is written

    def __init__(self, home: Path) -> None:
        self.home: Path | str = home
        self.checkpoint = home / "checkpoint"
        self.lock = home / "lock"
        self.scratch = home / "scratch"
        self.made: list[Path] = []  # folders that the lock made, the innermost first
        self.epoch = 0  # of the holder of the lock; see `remote`
        self._here = home

    def locked(self) -> "Lock":
        """The lock, to be held as long as the folder is used. A context manager."""
        return Lock(self)

    def in_use(self) -> bool:
        """Whether a process holds the lock. Creates nothing."""
        return lock_held(self.lock)

    def owner(self) -> Owner | None:
        """Its owner; None for a free one. Raises PipelineError for a foreign file, or a later version's."""
        found = self.read("owner.json", dict[str, Any])
        if found is None:
            return None
        version = found.get("version", 1)
        if not isinstance(version, int) or version > self.version:
            raise PipelineError(
                f"the checkpoint in {self.home} has version {version}, written by a newer Penstock; this one knows {self.version}: run"
                " the newer one, or give the pipeline another state folder"
            )
        try:
            return msgspec.convert(found, Owner)
        except msgspec.ValidationError as error:
            raise PipelineError(f"{self.home}/owner.json cannot be read: {error}") from None

    def check_owner(self, spec: Spec) -> Owner | None:
        """Refuse the checkpoint of another pipeline. Changes nothing."""
        owner = self.owner()
        if owner is None:
            if self._has_checkpoint():
                raise PipelineError(
                    f"{self.home}/checkpoint holds a checkpoint that is not this pipeline's: choose another state folder"
                )
            return None
        if owner.pipeline != spec.name:
            raise PipelineError(
                f"{self.home} belongs to pipeline {owner.pipeline!r}, not to {spec.name!r}: choose another state"
                " folder"
            )
        same = owner.fingerprint == fingerprint(spec)
        # Before there is a checkpoint, nothing of the sources is remembered.
        if not same and self.has("checkpoint/metadata") and not goes_on(owner.sources, source_topics(spec)):
            raise PipelineError(
                f"the checkpoint in {self.home} was made for {_listed(owner.sources)}, but {spec.file} now reads"
                f" {_listed(source_topics(spec))}: give the pipeline another name, or run full-refresh"
            )
        return owner

    def own(
        self, spec: Spec, start: int | None = None, sinks: Mapping[str, SinkWriter] = MappingProxyType({})
    ) -> None:
        """Write whose it is."""
        owner = Owner(
            pipeline=spec.name,
            fingerprint=fingerprint(spec),
            sources=source_topics(spec),
            start=start,
            sinks=dict(sinks),
            version=self.version,
        )
        self.replace("owner.json", msgspec.json.encode(owner))

    @property
    def checkpoint_url(self) -> str:
        """The checkpoint, as Spark takes it."""
        return str(self.checkpoint)

    def query(self) -> str:
        """The id of the checkpoint's query; empty if there is none."""
        with suppress(PipelineError):
            return str((self.read("checkpoint/metadata", dict[str, Any]) or {}).get("id", ""))
        return ""

    def last_committed(self) -> int:
        """The number of the last batch that is over; -1 before the first. The batch behind it is the next to run."""
        return max(self.numbers("checkpoint/commits"), default=-1)

    def offsets(self, batch: int) -> list[str]:
        """What Spark wrote as a batch began: JSON of the batch, then of each source. Raises FileNotFoundError."""
        content = self.content(f"checkpoint/offsets/{batch}")
        if content is None:
            raise FileNotFoundError(f"{self.home}/checkpoint/offsets/{batch}")
        return content.decode().splitlines()[1:]  # behind a version

    def numbers(self, name: str) -> list[int]:
        """The files in a folder whose names are numbers."""
        return [int(path.name) for path in (self._here / name).glob("[0-9]*") if path.name.isdigit()]

    def forget(self) -> None:
        """Remove the checkpoint: the next run begins from the start."""
        gone = self._here / "checkpoint.gone"  # first out of the way: half a checkpoint is worse than none
        shutil.rmtree(gone, ignore_errors=True)
        if self.checkpoint.exists():
            self.checkpoint.rename(gone)
        self.remove("owner.json")
        shutil.rmtree(gone, ignore_errors=True)

    def vacate(self) -> None:
        """Leave nothing if nothing has run: no checkpoint, and no name on it. For the holder of the lock."""
        if self.has("owner.json") or self.checkpoint.exists():
            return
        shutil.rmtree(self.scratch, ignore_errors=True)
        for name in ("status.json", "control", "lock"):
            self.remove(name)
        with suppress(OSError):  # something else is there, and stays
            for folder in self.made:
                folder.rmdir()

    def clean_scratch(self) -> Path:
        """The folder for what a run leaves behind when it is killed; empty. For the holder of the lock."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self.scratch

    def begin(self, spark: Any) -> None:
        """A query is about to be planned in a session. Raises PipelineError if Spark cannot reach its checkpoint."""

    def begin_batch(self, number: int) -> None:
        """A batch is about to be computed and written. Raises PipelineError if that is not ours to do any more."""

    def status(self) -> dict[str, Any] | None:
        """What the pipeline last said about itself."""
        try:
            return self.read("status.json", dict[str, Any])
        except PipelineError:
            return None

    def write_status(self, status: dict[str, Any]) -> None:
        """Write what `status` reads."""
        self.replace("status.json", msgspec.json.encode(status))

    def ask_to_stop(self) -> None:
        """What the running pipeline sees within seconds."""
        self.replace("control", b"stop")

    def asked_to_stop(self) -> bool:
        return self.has("control")

    def clear_control(self) -> None:
        self.remove("control")

    def read(self, name: str, type_: type[T]) -> T | None:
        """A file of JSON, or None. Raises PipelineError for a foreign one."""
        try:
            content = self.content(name)
            return None if content is None else msgspec.json.decode(content, type=type_)
        except (OSError, msgspec.DecodeError) as error:
            raise PipelineError(f"{self.home}/{name} cannot be read: {error}") from None

    def has(self, name: str) -> bool:
        """Whether there is a file."""
        return (self._here / name).exists()

    def names(self) -> list[str]:
        """Of the files in the folder itself, and maybe of others by their paths."""
        return [path.name for path in self._here.iterdir()] if self._here.exists() else []

    def replace(self, name: str, content: bytes) -> None:
        """Write a file whole or not at all."""
        path = self._here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.{os.getpid()}.new")
        new.write_bytes(content)
        new.replace(path)

    def remove(self, name: str) -> None:
        """Delete a file; it may be gone."""
        (self._here / name).unlink(missing_ok=True)

    def confirm(self) -> None:
        """Raise PipelineError if the lock is another's by now."""

    def content(self, name: str) -> bytes | None:
        """A file's bytes, or None."""
        try:
            return (self._here / name).read_bytes()
        except FileNotFoundError:
            return None

    def _has_checkpoint(self) -> bool:
        return self.checkpoint.exists() and any(self.checkpoint.iterdir())


class Lock:
    """A folder in use; given back when the process ends, however it ends, and with it each that has `files`. A context
    manager."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._file: int | None = None

    def __enter__(self) -> Self:
        while not self._taken(self._folder.lock.parent):  # the holder before removed the file, see `vacate`
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
            text = f"the state folder {self._folder.home} is in use{who}: the pipeline is running"
            raise PipelineError(text) from None
        if not _is_at(file, self._folder.lock):
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file
        return True

    @property
    def files(self) -> tuple[int, ...]:
        """Descriptors for a child to hold too."""
        assert self._file is not None
        return (self._file,)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except OSError:
        return False


def lock_held(lock: Path) -> bool:
    """Whether a process holds the lock. Creates nothing."""
    try:
        file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _listed(sources: dict[str, str]) -> str:
    return ", ".join(f"{name} ({topics})" for name, topics in sources.items())

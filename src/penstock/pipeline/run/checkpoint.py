"""A checkpoint in an object store: Spark's files on this machine, and a copy of each in the store.

Spark itself writes and reads a folder of this machine. What it wrote is copied before a batch is computed, the batch's
own file of offsets last, so that the store never has a batch of which it lacks something older. A copy has the epoch of
the run that made it in its name: `offsets/7.3` is batch 7 as run 3 began it. The latest run's is what counts, so that what
a run that was overtaken still copies replaces nothing.
"""

import re
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Final, NamedTuple

from penstock.model.errors import ErrorKind
from penstock.pipeline.lake.store import Location, StoreError

AT_ONCE: Final = 8  # files that are copied
ATTEMPTS_MAX: Final = 3  # to fetch all
_ALWAYS: Final = "metadata"  # the query's id: Spark writes it first, and never deletes it
_METADATA: Final = "/_metadata/"
_PATH: Final = re.compile(rb'"file:/[^"]*/checkpoint/(state/)')

Stamp = tuple[int, int]  # size, and time of change in ns


class _Kind(NamedTuple):
    """Files that Spark writes behind those of the kinds before."""

    pattern: str
    start: str = ""
    end: str = ""


_OFFSETS: Final = _Kind("offsets/*", start="offsets/")
_KINDS: Final = (
    _Kind("**/*"),
    _Kind("**/*.zip", end=".zip"),  # of RocksDB, which name files beside them
    _Kind("commits/*", start="commits/"),
    _OFFSETS,
)


class CheckpointCopy:
    """The checkpoint in `local`, and below `folder` of a store. Raises OSError."""

    def __init__(self, local: Path, store: Location, folder: str, epoch: int) -> None:
        self._local = local
        self._store = store
        self._folder = folder
        self._epoch = epoch
        self._known: dict[str, tuple[Stamp, str]] = {}  # what the store has, and its name there
        self._old: list[str] = []  # copies that are of no use any more
        self._lock = threading.Lock()

    def restore(self) -> None:
        """Make `local` what the store has."""
        for _ in range(ATTEMPTS_MAX - 1):
            with suppress(FileNotFoundError):  # the run before deletes what it had confirmed meanwhile
                return self._fetch_all()
        return self._fetch_all()

    def _fetch_all(self) -> None:
        shutil.rmtree(self._local, ignore_errors=True)
        prefix = f"{self._folder}/"
        there = [path.removeprefix(prefix) for path in self._store.files() if path.startswith(prefix)]
        latest = counting(there)
        with self._lock, ThreadPoolExecutor(AT_ONCE, "checkpoint") as threads:
            stamps = threads.map(lambda name: self._fetch(name, latest[name]), latest)
            self._known = {name: (stamp, latest[name]) for name, stamp in zip(latest, stamps, strict=True)}

    def save(self) -> None:
        """Copy what is new. Raises StoreError where Spark's files are gone: they were not Spark's to delete."""
        with self._lock:
            now = self._look()
            if _ALWAYS in self._known and _ALWAYS not in now:
                raise StoreError(
                    ErrorKind.UNAVAILABLE, f"the files of the checkpoint in {self._local} are gone"
                )
            changed = [name for name, stamp in now.items() if self._stamp(name) != stamp]
            with ThreadPoolExecutor(AT_ONCE, "checkpoint") as threads:
                for group in in_order(changed):
                    list(threads.map(lambda name: self._put(name, now[name]), group))
            self._old += [self._known.pop(name)[1] for name in list(self._known) if name not in now]

    def tidy(self) -> None:
        """Delete the copies of what Spark has deleted or written again, as of the last `save`. For the run that counts:
        another may be reading them."""
        with self._lock, ThreadPoolExecutor(AT_ONCE, "checkpoint") as threads:
            kept = {copy for _, copy in self._known.values()}  # what Spark deleted may be there again
            gone = [copy for copy in self._old if copy not in kept]
            list(threads.map(lambda copy: self._store.remove(f"{self._folder}/{copy}"), gone))
            self._old = []

    def _look(self) -> dict[str, Stamp]:
        """The files that there are. Spark writes meanwhile, so each kind is listed before what it needs, which it finds
        written already: offsets, the commits before them, state."""
        found: dict[str, Stamp] = {}
        for kind in reversed(_KINDS):
            for path in self._local.glob(kind.pattern):
                name = str(path.relative_to(self._local))
                if (
                    path.name.startswith(".") or _kind(name) is not kind
                ):  # Spark is still writing it; or later
                    continue
                with suppress(FileNotFoundError):  # Spark deletes old files meanwhile
                    about = path.stat()
                    if S_ISREG(about.st_mode):
                        found[name] = about.st_size, about.st_mtime_ns
        return found

    def _stamp(self, name: str) -> Stamp | None:
        return self._known[name][0] if name in self._known else None

    def _fetch(self, name: str, copy: str) -> Stamp:
        path = self._local / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(placed(self._local, name, self._store.read(f"{self._folder}/{copy}")))
        about = path.stat()
        return about.st_size, about.st_mtime_ns

    def _put(self, name: str, stamp: Stamp) -> None:
        try:
            content = (self._local / name).read_bytes()
        except FileNotFoundError:
            return
        copy = f"{name}.{self._epoch}"
        self._store.write(f"{self._folder}/{copy}", content)
        before = self._known.get(name, (stamp, copy))[1]
        self._known[name] = stamp, copy
        if before != copy:
            self._old.append(before)


def placed(local: Path, name: str, content: bytes) -> bytes:
    """A file as this machine needs it: what Spark notes of an operator's state has full paths of files of the checkpoint."""
    if _METADATA not in name:
        return content
    here = f'"file:{local}/'.encode()
    return _PATH.sub(lambda found: here + found[1], content)


def counting(copies: Iterable[str]) -> dict[str, str]:
    """The files that there are, and of each the copy that counts: the latest run's."""
    latest: dict[str, tuple[int, str]] = {}
    for copy in copies:
        name, _, epoch = copy.rpartition(".")
        latest[name] = max(latest.get(name, (-1, "")), (int(epoch), copy))
    return {name: copy for name, (_, copy) in latest.items()}


def in_order(names: Iterable[str]) -> list[list[str]]:
    """Groups of files, to be copied one group after the other: what needs others behind them, offsets by batch."""
    groups: dict[_Kind, list[str]] = {kind: [] for kind in _KINDS}
    for name in names:
        groups[_kind(name)].append(name)
    offsets = sorted(groups.pop(_OFFSETS), key=lambda name: int(Path(name).name))
    return [*groups.values(), *([name] for name in offsets)]


def _kind(name: str) -> _Kind:
    return next(kind for kind in reversed(_KINDS) if name.startswith(kind.start) and name.endswith(kind.end))

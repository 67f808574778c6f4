"""The storage of a table: a folder of a file system, or an object store by its URL; and its files.

An object store is reached through deltalake's own client, for the files as for the commits: one set of options and
credentials, which the environment has or the options `storage.…` name.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    LocalFileSystem,
    PyFileSystem,
    SubTreeFileSystem,
)

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import NEEDS_DELTA, PipelineError
from penstock.pipeline.options import STORAGE, is_url, revealed

try:
    from deltalake.fs import DeltaStorageHandler
except ImportError:
    raise PipelineError(NEEDS_DELTA) from None

SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")
BUFFER: Final = 1 << 20  # of a file that is written; a store's client takes no larger piece at once

_COLOUR: Final = re.compile(r"\x1b\[\d*m|[↳\u2937]")
_QUERY: Final = re.compile(r"\?[^\s]*")  # of a URL: a signature may be part of it
_NO_BUCKET: Final = (
    "NoSuchBucket",
    "ContainerNotFound",
    "bucket does not exist",
)  # as S3, Azure and GCS say it
_REFUSED: Final = re.compile(
    r"necessary privileges|\b(?:401|403)\b|Unauthori[sz]ed|Forbidden|AccessDenied|credential", re.IGNORECASE
)


class Location(msgspec.Struct, frozen=True):
    """`url` is an absolute path, or a URL with one of `SCHEMES`; `options` are the store's, and in no text.

    Paths within are relative to it. Raises OSError as file systems do.
    """

    url: str
    options: dict[str, str] = {}

    @classmethod
    def of(cls, text: str | Path, options: Mapping[str, str] | None = None) -> Self:
        """From a path or a URL. Raises PipelineError for anything else."""
        text = str(text).strip()
        if not text:
            raise PipelineError("option path is missing: the folder of the table, or its URL")
        if text.startswith("file:"):
            text = unquote(urlsplit(text).path)
        if not is_url(text):
            return cls(str(Path(text).absolute()))
        parts = urlsplit(text)
        # The container is before the `@` of an abfs:// URL.
        user = "" if parts.scheme.startswith("abfs") else parts.username
        if user or parts.password or parts.query or parts.fragment:
            raise PipelineError(
                "option path: a URL names a store and a folder, nothing else; credentials are options storage.…, or"
                " in the environment"
            )
        if parts.scheme not in SCHEMES:
            raise PipelineError(
                f"option path: {text} is in no store that is known; the URL of a table begins with"
                f" {', '.join(f'{scheme}://' for scheme in SCHEMES)} or file://"
            )
        if not parts.netloc or not parts.path.strip("/"):
            raise PipelineError(f"option path: {text} names no folder in a store")
        return cls(text.rstrip("/"), {name.lower(): value for name, value in (options or {}).items()})

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"Location({self.url!r})"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.url.rpartition("/")[2]

    @property
    def remote(self) -> bool:
        """Whether it is in an object store."""
        return is_url(self.url)

    def store(self) -> dict[str, str] | None:
        """The options as deltalake takes them; None for a folder. Raises PipelineError for a variable that is not set."""
        if not self.remote:
            return None
        return {name: revealed(f"{STORAGE}{name}", text) for name, text in self.options.items()}

    def has(self, path: str = "") -> bool:
        """Whether there is a file or folder."""
        return bool(self._info(path).type != FileType.NotFound)

    def is_file(self) -> bool:
        """Whether it is a file itself, and no folder of files."""
        return not self.remote and Path(self.url).is_file()

    def files(self, below: str = "") -> list[str]:
        """The paths of all files, or of those below a folder."""
        found = self._system().get_file_info(FileSelector(below, recursive=True, allow_not_found=True))
        return [info.path for info in found if info.type == FileType.File]

    def read(self, path: str) -> bytes:
        """A file's content."""
        with self.open(path) as file:
            return bytes(file.read())

    def write(self, path: str, content: bytes) -> None:
        """A new file; durable when this returns."""
        with self.create(path) as file:
            for at in range(0, len(content), BUFFER // 2):
                file.write(content[at : at + BUFFER // 2])
        self.sync(path)

    def open(self, path: str) -> Any:
        """A file, to be read."""
        return self._system().open_input_file(path)

    def create(self, path: str) -> Any:
        """A file, to be written. In an object store it is there when it is closed."""
        if not self.remote:
            (Path(self.url) / path).parent.mkdir(parents=True, exist_ok=True)
        return self._system().open_output_stream(path, buffer_size=BUFFER)

    def sync(self, path: str) -> None:
        """Let a file that was closed survive a crash of the machine. An object store has done so."""
        if not self.remote:
            file = os.open(f"{self.url}/{path}", os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def size(self, path: str) -> int:
        """Of a file, in bytes."""
        return int(self._info(path).size)

    def age_s(self, path: str) -> float:
        """The age of a file, by the store's clock and ours; infinite if it does not exist."""
        info = self._info(path)
        return time.time() - info.mtime_ns / 1e9 if info.mtime_ns else float("inf")

    def remove(self, path: str) -> None:
        """Delete a file; it may be gone."""
        with suppress(FileNotFoundError):
            self._system().delete_file(path)

    @contextmanager
    def reached(self, what_is_there: str = "the table") -> Iterator[None]:
        """Turn errors of an object store into one sentence: missing rights are final, others are retried."""
        try:
            yield
        except OSError as error:
            if not self.remote:
                raise
            if any(name in str(error) for name in _NO_BUCKET):
                bucket = urlsplit(self.url).netloc
                raise PipelineError(
                    f"option path: there is no bucket {bucket}", ErrorKind.NOT_FOUND
                ) from None
            kind = ErrorKind.FORBIDDEN if _REFUSED.search(str(error)) else ErrorKind.UNAVAILABLE
            what = "permission denied" if kind is ErrorKind.FORBIDDEN else "the store cannot be used"
            raise StoreError(kind, f"{what_is_there} {self.url}: {what}: {sentence(error)}") from None

    def _info(self, path: str) -> FileInfo:
        return self._system().get_file_info([path])[0]

    def _system(self) -> FileSystem:
        if (options := self.store()) is not None:
            return _remote(self.url, tuple(options.items()))
        return SubTreeFileSystem(self.url, LocalFileSystem())


@lru_cache(maxsize=16)
def _remote(url: str, options: tuple[tuple[str, str], ...]) -> FileSystem:
    """A store's file system, which keeps its connections."""
    return PyFileSystem(DeltaStorageHandler(url, dict(options)))


class StoreError(PenstockError):
    """An object store is away, or refuses."""


def sentence(error: BaseException) -> str:
    """What a store said, in one line, without the queries of URLs."""
    lines = [" ".join(_COLOUR.sub("", line).split()) for line in str(error).splitlines()]
    said = [_QUERY.sub("", line) for line in lines if line and not line.startswith("<")]
    return ": ".join(dict.fromkeys(said)) or type(error).__name__


def unique(suffix: str) -> str:
    """A file's name that no other has."""
    return f"{uuid4()}{suffix}"

"""Where a table is, and what lies in its folder."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import DELTA_ONLY, PipelineError

from .delta import Snapshot, Table

PARQUET_LOG: Final = "_penstock"  # the log of a Parquet table of an earlier version


def folder_of(text: str) -> Path:
    """A table's folder from a path or a `file:` URL. Raises PipelineError."""
    text = text.strip()
    if not text:
        raise PipelineError("option path is missing: the folder of the table")
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if "://" in text:
        raise PipelineError(f"option path: {text} is on no file system of this machine, which tables need")
    return Path(text).absolute()


def check_format(text: str) -> None:
    """Raises PipelineError unless the format asked for is Delta, or none is named."""
    if text == "parquet":
        raise PipelineError(f"option table: {DELTA_ONLY}")
    if text not in ("", "delta"):
        raise PipelineError(f"option table: {text!r} is not delta")


def is_table(folder: Path) -> bool:
    """Whether there is a table. Raises PipelineError for a Parquet table of an earlier version."""
    if (folder / "_delta_log").is_dir():
        return True
    if (folder / PARQUET_LOG).is_dir():
        raise PipelineError(f"option path: {folder} is a Parquet table, and {DELTA_ONLY}")
    return False


def table_at(folder: Path) -> Table:
    """The table in a folder, or the one to be made there. Raises PipelineError where the folder holds something else."""
    if not is_table(folder) and folder.exists() and (not folder.is_dir() or any(_foreign(folder))):
        raise PipelineError(f"option path: {folder} holds something else than a table")
    return Table(folder)


def snapshot_of(folder: Path, version: int | None = None) -> Snapshot:
    """A table that is there. Raises PipelineError where there is none."""
    found = Table(folder).snapshot(version) if is_table(folder) else None
    if found is None:
        raise PipelineError(f"option path: there is no table at {folder}", ErrorKind.NOT_FOUND)
    return found


def _foreign(folder: Path) -> list[Path]:
    """What lies in a folder without a table: files of a first batch that was never committed are ours."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not (path.name.startswith("part-") and path.name.endswith(".zstd.parquet"))
    ]

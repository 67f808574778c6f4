"""Where a table is and of which kind: found by what lies in its folder."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import PipelineError

from .manifest import FOLDER, Parquet
from .values import DELTA, KINDS, PARQUET, Snapshot, Table


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


def kind_of(folder: Path) -> str:
    """DELTA or PARQUET, "" where there is no table."""
    if (folder / "_delta_log").is_dir():
        return DELTA
    if (folder / FOLDER).is_dir():
        return PARQUET
    return ""


def table_at(folder: Path, kind: str = "") -> Table:
    """The table in a folder, of what kind it is; of `kind`, or Delta, where there is none yet.

    Raises PipelineError where it is of another kind than `kind`, or where the folder holds something else.
    """
    if kind and kind not in KINDS:
        raise PipelineError(f"option table: {kind!r} is neither delta nor parquet")
    there = kind_of(folder)
    if there and kind and there != kind:
        raise PipelineError(f"option table: {folder} is a {there} table, not {kind}")
    if not there and folder.exists() and (not folder.is_dir() or any(_foreign(folder))):
        raise PipelineError(f"option path: {folder} holds something else than a table")
    if (there or kind or DELTA) == PARQUET:
        return Parquet(folder)
    try:
        from .delta import Delta  # here: plain Parquet needs no delta-rs
    except ImportError:
        raise PipelineError(
            "Delta tables need the package deltalake: pip install 'penstock[delta]'"
        ) from None
    return Delta(folder)


def snapshot_of(folder: Path, version: int | None = None) -> tuple[Table, Snapshot]:
    """A table that is there. Raises PipelineError where there is none."""
    found = table_at(folder).snapshot(version) if kind_of(folder) else None
    if found is None:
        raise PipelineError(f"option path: there is no table at {folder}", ErrorKind.NOT_FOUND)
    return table_at(folder), found


def _foreign(folder: Path) -> list[Path]:
    """What lies in a folder without a table: files of a first batch that was never committed are ours."""
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and not (path.name.startswith("part-") and path.name.endswith(".zstd.parquet"))
    ]

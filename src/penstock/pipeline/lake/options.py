"""The options of tables, read and checked. Spark hands them over in lower case."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import NAMES as SERVER_NAMES
from penstock.pipeline.options import flag, number, parse_server

from . import partitioning
from .files import TARGET_BYTES
from .partitioning import PartitionColumn
from .tables import check_format, folder_of
from .values import OffsetRange

VACUUM_HOURS: Final = 168  # as Delta: readers of an old version have a week
TARGET_LEAST: Final = 1 << 10

_WRITE: Final = (
    "path",
    "table",
    "partitionBy",
    "writer",
    "batch",
    "compact",
    "targetFileBytes",
    "vacuumHours",
    "archive",
    *SERVER_NAMES,
)
_SPARK: Final = ("checkpointLocation", "queryName")  # handed to every streaming sink
_READ: Final = ("path", "version", "columns", "offsets")


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is written. `archive`: rows are a topic's, and their offsets must go on where the table ends;
    `server` is then asked which log they are of."""

    path: Path
    partition_by: tuple[PartitionColumn, ...]
    writer: str
    batch: int | None
    compact: bool
    target_bytes: int
    vacuum_hours: int
    archive: bool
    server: Access | None


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a table: a version (None: the newest), columns (empty: all), ranges of an archive."""

    path: Path
    version: int | None
    columns: tuple[str, ...]
    offsets: tuple[OffsetRange, ...] | None


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises PipelineError, which names the option."""
    texts = _named(given, (*_WRITE, *_SPARK))
    check_format(texts.get("table", "").strip().lower())
    batch = number(texts, "batch", 0, least=0) if "batch" in texts else None
    writer = texts.get("writer", "").strip()
    if batch is not None and not writer:
        raise PipelineError("option batch needs option writer, whose batch it is")
    archive = flag(texts, "archive", default=False)
    return WriteOptions(
        path=folder_of(texts.get("path", "")),
        partition_by=partitioning.parse(texts.get("partitionBy", "")),
        writer=writer,
        batch=batch,
        compact=flag(texts, "compact", default=True),
        target_bytes=number(texts, "targetFileBytes", TARGET_BYTES, least=TARGET_LEAST),
        vacuum_hours=number(texts, "vacuumHours", VACUUM_HOURS, least=0),
        archive=archive,
        server=parse_server(texts) if archive and texts.get("url") else None,
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises PipelineError, which names the option."""
    texts = _named(given, _READ)
    return ReadOptions(
        path=folder_of(texts.get("path", "")),
        version=number(texts, "version", 0, least=0) if "version" in texts else None,
        columns=tuple(name.strip() for name in texts.get("columns", "").split(",") if name.strip()),
        offsets=parse_offsets(texts["offsets"]) if "offsets" in texts else None,
    )


def parse_offsets(text: str) -> tuple[OffsetRange, ...]:
    """`{"persistent://public/default/t": {"0": [0, 100]}}`: from an offset up to another, exclusive."""
    try:
        raw = msgspec.json.decode(text, type=dict[str, dict[int, tuple[int, int]]])
    except msgspec.DecodeError as error:
        raise PipelineError(
            f'option offsets: expected JSON like {{"topic": {{"0": [0, 100]}}}} ({error})'
        ) from None
    pieces = [OffsetRange(t, p, start, end) for t, ps in raw.items() for p, (start, end) in ps.items()]
    if any(not 0 <= piece.start <= piece.end for piece in pieces):
        raise PipelineError("option offsets: a range begins at 0 or later, and ends where it begins or later")
    return tuple(sorted(pieces))


def write_offsets(pieces: tuple[OffsetRange, ...]) -> str:
    """The text that `parse_offsets` reads; each partition once."""
    found: dict[str, dict[str, list[int]]] = {}
    for piece in pieces:
        found.setdefault(piece.topic, {})[str(piece.partition)] = [piece.start, piece.end]
    return json.dumps(found)


def _named(given: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    known = {name.lower(): name for name in names}
    texts: dict[str, str] = {}
    for key, text in given.items():
        name = known.get(key.lower())
        if name is None:
            shown = ", ".join(name for name in names if name not in _SPARK)
            raise PipelineError(f"unknown option {key}; there are {shown}")
        texts[name] = text
    return texts

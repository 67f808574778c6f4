"""The path of a table, the content of its folder, and the options of its readers and writers, read and checked."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import ErrorKind
from penstock.pipeline import options
from penstock.pipeline.errors import DELTA_ONLY, PipelineError
from penstock.pipeline.options import (
    SERVER,
    STORAGE,
    TABLE_SINK,
    TABLE_SOURCE,
    names_in,
    parse_server,
    split_prefixed,
)
from penstock.pipeline.zones import TIME_ZONE, UTC, is_time_zone

from . import partitioning
from .delta import Table
from .files import TARGET_BYTES
from .partitioning import PartitionColumn
from .store import Location
from .values import Snapshot

PARQUET_LOG: Final = "_penstock"  # the log of a Parquet table of an earlier version

_SPARK: Final = ("checkpointlocation", "queryname")  # handed to every streaming sink
_TOPIC: Final = {"topic": "that is format penstock; a table is named by option path"}
_UPKEEP: Final = "tables are maintained by penstock pipeline maintain, and by pipelines that run"
_WRITE_HINTS: Final = {**_TOPIC, "compact": _UPKEEP, "vacuumhours": _UPKEEP}
_READ_HINTS: Final = {**_TOPIC, "offsets": "filter by topic, partition and offset, with option pruneFiles"}


def check_format(text: str) -> None:
    """Raises PipelineError unless the format asked for is Delta, or none is named."""
    if text == "parquet":
        raise PipelineError(f"option table: {DELTA_ONLY}")
    if text not in ("", "delta"):
        raise PipelineError(f"option table: {text!r} is not delta")


def is_table(folder: Location) -> bool:
    """Whether there is a table. Raises PipelineError for a Parquet table of an earlier version."""
    with folder.reached():
        if folder.has("_delta_log"):
            return True
        parquet = folder.has(PARQUET_LOG)
    if parquet:
        raise PipelineError(f"option path: {folder} is a Parquet table, and {DELTA_ONLY}")
    return False


def table_at(folder: Location) -> Table:
    """The table in a folder, or the one to be made there. Raises PipelineError if the folder holds something else."""
    with folder.reached():
        foreign = not is_table(folder) and _foreign(folder)
    if foreign:
        raise PipelineError(f"option path: {folder} holds something else than a table")
    return Table(folder)


def snapshot_of(folder: Location, version: int | None = None) -> Snapshot:
    """An existing table. Raises PipelineError if it does not exist."""
    found = Table(folder).snapshot(version) if is_table(folder) else None
    if found is None:
        raise PipelineError(f"option path: there is no table at {folder}", ErrorKind.NOT_FOUND)
    return found


def _foreign(folder: Location) -> bool:
    """Whether a folder without a table holds something else. Files of a first batch that was never committed are ours,
    and so is the log that another writer has just begun."""
    if folder.is_file():
        return True
    files = (path for path in folder.files() if not path.startswith("_delta_log/"))
    names = (path.rpartition("/")[2] for path in files)
    return any(not (name.startswith("part-") and name.endswith(".zstd.parquet")) for name in names)


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is written. `keys`: rows replace those that agree in these columns, or delete them if `deletes`, a column
    that is not kept, is true. `archive`: rows are a topic's, and their offsets must continue at the end of the table; `server` is
    then asked for the log that they are of."""

    path: Location
    partition_by: tuple[PartitionColumn, ...]
    time_zone: str  # of derived partitions
    keys: tuple[str, ...]
    deletes: str
    writer: str
    batch: int | None
    target_bytes: int
    archive: bool
    server: Access | None


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The read part of a table: a version (None: the newest), columns (empty: all)."""

    path: Location
    version: int | None
    columns: tuple[str, ...]
    prune: bool  # whether filters that Spark pushes down choose files


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of a write. Raises PipelineError, which names the option."""
    store, given = split_prefixed(given, STORAGE)
    found = options.read_options(given, (*TABLE_SINK, *SERVER), _SPARK, _WRITE_HINTS)
    check_format(found["table"].strip().lower())
    writer, batch, archive = found["writer"].strip(), found["batch"], found["archive"]
    if batch is not None and not writer:
        raise PipelineError("option batch needs option writer, whose batch it is")
    keys = names_in(found["keys"])
    if keys and archive:
        raise PipelineError("options keys and archive exclude one another: an archive keeps every message")
    deletes = found["deleteColumn"].strip()
    if deletes and not keys:
        raise PipelineError("option deleteColumn needs option keys: a row deletes the one with its key")
    time_zone = found["timeZone"].strip() or UTC
    if not is_time_zone(time_zone):
        raise PipelineError(f"option timeZone: {time_zone!r} is no {TIME_ZONE}")
    return WriteOptions(
        path=Location.of(found["path"], store),
        partition_by=partitioning.parse(found["partitionBy"], time_zone),
        time_zone=time_zone,
        keys=keys,
        deletes=deletes,
        writer=writer,
        batch=batch,
        target_bytes=found["targetFileBytes"] or TARGET_BYTES,
        archive=archive,
        server=parse_server(found) if archive and found["url"] else None,
    )


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Check the options of a read. Raises PipelineError, which names the option."""
    store, given = split_prefixed(given, STORAGE)
    found = options.read_options(given, TABLE_SOURCE, hints=_READ_HINTS)
    return ReadOptions(
        path=Location.of(found["path"], store),
        version=found["version"],
        columns=names_in(found["columns"]),
        prune=found["pruneFiles"],
    )

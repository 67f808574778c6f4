"""The Parquet files of a table: written by tasks, partitioned, of bounded size, each with its statistics; opened."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.errors import PipelineError

from . import partitioning
from .partitioning import PartitionColumn
from .schema import conform
from .store import Location, unique
from .values import File

TARGET_BYTES: Final = 128 << 20  # of a file; Spark's own splits are as large
GROUP_BYTES: Final = 32 << 20  # of a row group, before compression: the unit of reads
OPEN_MAX: Final = 32  # files that a task has open at once
LEVEL: Final = 1  # of zstd: twice as fast as the default, a tenth larger

Values = tuple[str | None, ...]
T = TypeVar("T")

COLUMNS_MAX: Final = 32  # as Delta counts
TEXT_MAX: Final = 64  # a longer bound says nothing


class FileWriter:
    """Writes rows into the files of one task. `schema` is the table's, with its partition columns."""

    def __init__(
        self,
        root: Location,
        schema: pa.Schema,
        bys: Sequence[PartitionColumn],
        target_bytes: int = TARGET_BYTES,
    ) -> None:
        self._root = root
        self._bys = tuple(bys)
        self._schema = partitioning.file_schema(schema, self._bys)
        self._target = target_bytes
        self._open: dict[Values, _Open] = {}  # the least recently used first
        self.files: list[File] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        for values, rows in partitioning.part(batch, self._bys):
            file = self._open.pop(values, None)
            if file is None:
                if len(self._open) >= OPEN_MAX:
                    self._close(next(iter(self._open)))
                file = _Open(self._root, self._schema, [by.name for by in self._bys], values)
            self._open[values] = file
            file.add(conform(rows, self._schema))
            if file.size >= self._target:
                self._close(values)

    def finish(self) -> tuple[File, ...]:
        """Close open files; returns the written ones."""
        for values in list(self._open):
            self._close(values)
        return tuple(self.files)

    def discard(self) -> None:
        """Delete everything that was written: no commit names it."""
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        remove(self._root, self.files)
        self.files.clear()

    def _close(self, values: Values) -> None:
        self.files.append(self._open.pop(values).close())


class _Open:
    """A file that is being written. It appears under its name when it is opened: only a commit makes it count."""

    def __init__(self, root: Location, schema: pa.Schema, names: Sequence[str], values: Values) -> None:
        self._values = dict(zip(names, values, strict=True))
        folder = partitioning.folder(names, values)
        self._path = f"{folder}/{_name()}" if folder else _name()
        self._root = root
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._sink = root.create(self._path)
        self._writer = pq.ParquetWriter(self._sink, schema, **writing(schema))

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> File:
        self._flush()
        self._writer.close()
        self._sink.close()
        self._root.sync(self._path)  # the commit that names it is durable; so must the file be
        return described(self._root, self._path, self._values)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):  # a full disk may be why it is abandoned
            self._writer.close()
        with contextlib.suppress(OSError):
            self._sink.close()
        with contextlib.suppress(OSError):
            self._root.remove(self._path)

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting, self._bytes = [], 0


def writing(schema: pa.Schema) -> dict[str, Any]:
    """How files are written. Payloads do not repeat, and offsets never: no dictionaries for them."""
    repeating = [
        field.name
        for field in schema
        if not (
            pa.types.is_nested(field.type) or field.name in ("value", "offset", "message_id", "sequence_id")
        )
    ]
    return {"compression": "zstd", "compression_level": LEVEL, "use_dictionary": repeating}


def described(root: Location, path: str, values: dict[str, str | None]) -> File:
    """A finished file as a table has it."""
    with pq.ParquetFile(root.open(path)) as file:
        footer = file.metadata
    return File(
        path=path,
        size=root.size(path),
        rows=footer.num_rows,
        at=int(time.time() * 1000),
        values=values,
        stats=summary(footer),
    )


def open_file(folder: Location, path: str) -> Any:
    """A file of a table. Raises PipelineError if it is gone: an old version's, taken by vacuum."""
    try:
        return pq.ParquetFile(folder.open(path), pre_buffer=True)
    except FileNotFoundError:
        raise PipelineError(f"the table {folder} has lost the file {path}; has it been vacuumed?") from None


def runs(items: Iterable[T], most: int, size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Neighbours put together, of `most` bytes at most in all; one of them at least."""
    run: list[T] = []
    size = 0
    for item in items:
        if run and size + size_of(item) > most:
            yield run
            run, size = [], 0
        run.append(item)
        size += size_of(item)
    if run:
        yield run


def remove(root: Location, files: Iterable[File]) -> None:
    """Delete files that no table holds."""
    for file in files:
        root.remove(file.path)


def _name() -> str:
    return f"part-{unique('.zstd.parquet')}"


def summary(footer: pq.FileMetaData) -> str:
    """Delta's statistics of a file, as JSON."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    counted = 0
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        if "." in name or counted == COLUMNS_MAX:
            continue
        counted += 1
        found = [footer.row_group(g).column(number).statistics for g in range(footer.num_row_groups)]
        if not found or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[name] = sum(each.null_count for each in found)
        if all(each.has_min_max or each.num_values == 0 for each in found):
            bounding = [each for each in found if each.has_min_max]
            # Python has no dates and times outside the years 1 to 9999: they are part of the rows, and of no bound.
            with contextlib.suppress(OverflowError, ValueError):  # ValueError also if no group has bounds
                low[name] = min(each.min for each in bounding)
            with contextlib.suppress(OverflowError, ValueError):
                high[name] = max(each.max for each in bounding)
    stats = {
        "numRecords": footer.num_rows,
        "minValues": _plain(low, up=False),
        "maxValues": _plain(high, up=True),
        "nullCount": nulls,
    }
    return json.dumps(stats)


def _plain(bounds: dict[str, Any], *, up: bool) -> dict[str, Any]:
    found = {name: _bound(value, up=up) for name, value in bounds.items()}
    return {name: value for name, value in found.items() if value is not None}


def _bound(value: Any, *, up: bool) -> Any:
    """A bound in Delta's JSON; None if it has none. Times have ms: a lower bound goes down, an upper one up."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            # Parquet's bounds pass over NaN, which Spark holds to be above all numbers: a file may have it.
            return value if math.isfinite(value) and not up else None
        case str():
            return value if len(value) <= TEXT_MAX else None
        case datetime():
            ms, rest = divmod(value.microsecond, 1000)
            text = value.replace(microsecond=0, tzinfo=None).isoformat()
            if up and rest:
                ms += 1
            if ms == 1000:
                return None
            return f"{text}.{ms:03d}" + ("Z" if value.tzinfo else "")
        case date():
            return value.isoformat()
    return None

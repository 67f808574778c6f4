"""The maintenance of tables: small files put together by Delta's OPTIMIZE, files that no version needs deleted by its VACUUM.

It runs outside the batches: `python -m penstock.pipeline.lake.maintenance` is started next to a running pipeline
(`Upkeep` of `run/sinks.py`), and `penstock pipeline maintain` does the same. One run is bounded: it begins no further partition after
`seconds_max`, and a partition is rewritten in files of one size at a time, so that a row is rewritten a few times in all.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import PenstockError
from penstock.pipeline.options import shown

from .delta import Table
from .files import TARGET_BYTES
from .store import Location
from .values import text_of

STEP: Final = 8  # small files become files of an eighth of the target first: a growing file is not rewritten with each run
SMALL_MIN: Final = 16  # small files of a partition that is written to make it worth a run
CLOSED_MS: Final = 3_600_000  # a partition without new files for so long gets no more
VACUUM_HOURS: Final = 168  # as Delta: readers of an old version have a week
SECONDS_MAX: Final = 120.0
NICE: Final = 10  # batches come first


class Due(msgspec.Struct, frozen=True):
    """A partition whose small files are to become files of `target_bytes`."""

    partition: dict[str, str | None]
    target_bytes: int
    closed: bool


class Report(msgspec.Struct, kw_only=True):
    """The result of the maintenance of a table."""

    table: str
    compacted: int = 0  # files that were put together
    deleted: int = 0  # files that no version needs
    left: int = 0  # partitions for the next run
    errors: list[str] = []


class Order(msgspec.Struct, frozen=True):
    """A table for the maintenance process, with the options of its store."""

    path: str
    storage: dict[str, str]
    vacuum: bool

    def __repr__(self) -> str:
        return shown(self, "storage")


def due(actions: pa.Table, partition_by: Sequence[str], target_bytes: int, now_ms: int) -> list[Due]:
    """The partitions to compact: closed ones first, then those with the most small files.

    A closed partition gets files of `target_bytes`; so does one that is written to, once it has as many middle-sized files
    as make one. Before that its small files become middle-sized ones. Pure.
    """
    size = actions["size_bytes"]
    middle = target_bytes // STEP
    names = [f"partition.{name}" for name in partition_by]
    is_small = pc.less(size, middle)
    counted = {
        "small": is_small,
        "middle": pc.and_(pc.invert(is_small), pc.less(size, target_bytes // 2)),
        "newest": actions["modification_time"],
    }
    files = pa.table({**{name: actions[name] for name in names}, **counted})
    sums = [("small", "sum"), ("middle", "sum"), ("newest", "max")]
    found: list[tuple[int, Due]] = []
    for row in files.group_by(names, use_threads=False).aggregate(sums).to_pylist() if len(files) else []:
        small, middles = row["small_sum"], row["middle_sum"]
        closed = row["newest_max"] < now_ms - CLOSED_MS
        whole = middles >= STEP or (closed and small + middles > 1)
        if whole or small >= SMALL_MIN:
            partition = {name: text_of(row[column]) for name, column in zip(partition_by, names, strict=True)}
            found.append((small + middles, Due(partition, target_bytes if whole else middle, closed)))
    found.sort(key=lambda one: (not one[1].closed, -one[0]))
    return [one for _, one in found]


def maintain(
    table: Table,
    *,
    target_bytes: int = TARGET_BYTES,
    vacuum_hours: int | None = VACUUM_HOURS,
    seconds_max: float = SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Compact a table, and vacuum it unless `vacuum_hours` is None. Raises StoreError.

    A partition that a writer changes at the same time is left for the next run, and so is all that is due after
    `seconds_max`. Files that cannot be rewritten are named in the report.
    """
    report = Report(table=str(table.folder))
    until = clock() + seconds_max
    now = table.snapshot()
    if now is None:
        return report
    table.settle()
    for one in due(now.actions(), now.partition_by, target_bytes, round(time.time() * 1000)):
        if clock() >= until:
            report.left += 1
            continue
        try:
            report.compacted += table.compact(one.partition, one.target_bytes)
        except PenstockError as error:
            report.errors.append(error.message)
    if vacuum_hours is not None:
        report.deleted = table.vacuum(vacuum_hours)
    return report


def main() -> None:
    """Maintain the tables that stdin lists, and print to stderr what fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the pipeline ends this process
    os.nice(NICE)
    for order in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Order]):
        signal.alarm(round(2 * SECONDS_MAX))  # ends the process: commits stay
        try:
            table = Table(Location.of(order.path, order.storage))
            report = maintain(table, vacuum_hours=VACUUM_HOURS if order.vacuum else None)
            errors = report.errors
        except Exception as error:
            errors = [str(error)]
        for text in errors:
            sys.stderr.write(f"maintenance of the table {order.path}: {text}\n")


if __name__ == "__main__":
    main()

"""Small files become larger ones: what is put together, and the rewriting. Rows, their order and all that the
table remembers stay as they are.

Files grow in steps, as in a log-structured store: so many files of about one size become one of the next, so a
row is rewritten once a step and not with every batch.
"""

import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from .delta import Table
from .files import FileWriter, open_file, remove, runs
from .partitioning import PartitionColumn, constants
from .schema import conform
from .snapshot import Snapshot
from .values import COLUMNS, File

FILES_MIN: Final = 16  # of one step make one of the next
STEP: Final = 8  # how much larger a file of the next step is at least
SMALLEST: Final = 1 << 20  # files below are one step
SECONDS_MAX: Final = 10.0  # after which no further group is begun: batches wait for the driver


def groups(files: Sequence[File], target_bytes: int, files_min: int = FILES_MIN) -> list[list[File]]:
    """What is to be rewritten together: at least `files_min` files of a step, one partition, neighbours in order.

    A group holds about `target_bytes` at most; files of the target size are left alone. Pure.
    """
    found: list[list[File]] = []
    for members in _partitions(files).values():
        for step, files_of_step in groupby(members, lambda file: _step(file.size, target_bytes)):
            if step is not None:
                together = runs(files_of_step, target_bytes, lambda file: file.size)
                found += [run for run in together if len(run) >= files_min]
    return found


def compact(
    table: Table,
    target_bytes: int,
    *,
    files_min: int = FILES_MIN,
    seconds_max: float = SECONDS_MAX,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Rewrite what `groups` finds, one commit a group; returns how many files went.

    Stops at the first group that another writer has changed meanwhile: the next time will do.
    """
    now = table.snapshot()
    if now is None:
        return 0
    until = clock() + seconds_max
    gone = 0
    for group in groups(now.files(), target_bytes, files_min):
        if clock() >= until:
            break
        made = _rewrite(table, now, group)
        if not table.replace(group, made):
            remove(table.folder, made)
            break
        gone += len(group)
    return gone


def _rewrite(table: Table, now: Snapshot, group: list[File]) -> list[File]:
    bys = [PartitionColumn(name) for name in now.partition_by]
    writer = FileWriter(table.folder, now.schema, bys, 1 << 62)  # a group becomes one file
    try:
        for file in sorted(group, key=order) if _ranged(group) else group:
            fixed = constants(file.values, now.schema)
            with open_file(table.folder, file.path) as parquet:
                for batch in parquet.iter_batches(batch_size=65_536):
                    writer.write(conform(batch, now.schema, fixed))
        made = writer.finish()
    except BaseException:
        writer.discard()
        raise
    oldest = min(file.at for file in group)
    return [msgspec.structs.replace(file, at=oldest) for file in made]


def order(file: File) -> tuple[str, int, int]:
    """An archive's files by what they hold first."""
    return str(file.low["topic"]), int(file.low["partition"] or 0), int(file.low["offset"] or 0)


def _ranged(group: list[File]) -> bool:
    return all(set(COLUMNS) <= set(file.low) for file in group)


def _partitions(files: Sequence[File]) -> dict[tuple[tuple[str, str | None], ...], list[File]]:
    found: dict[tuple[tuple[str, str | None], ...], list[File]] = {}
    for file in files:
        found.setdefault(tuple(sorted(file.values.items())), []).append(file)
    return found


def _step(size: int, target_bytes: int) -> int | None:
    """None for a file that is large enough."""
    if size * 2 >= target_bytes:
        return None
    step, bound = 0, SMALLEST
    while size >= bound:
        step, bound = step + 1, bound * STEP
    return step

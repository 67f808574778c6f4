"""Whether a batch of a writer is new to a table, repeats the last one, or is neither.

A writer's batches have numbers that grow. A number above the last one is new. The last number again is a repeat where
the batch has as many rows as the commit had; then there is nothing to do. Everything else means that the numbers and
the rows no longer belong together (a checkpoint was rolled back, lost or copied, two writes share a name): it fails,
as rows that were passed over would be lost.
"""

import logging
from pathlib import Path
from typing import NamedTuple

from penstock.pipeline.errors import BatchConflict

from .values import Batch

log = logging.getLogger(__name__)


class Last(NamedTuple):
    """The last batch that a table has of a writer, and its rows; None where no commit tells how many."""

    batch: int
    rows: int | None


def is_new(folder: Path, batch: Batch, last: Last | None) -> bool:
    """Whether `batch` is to be committed; False for a repeat, which is logged. Raises BatchConflict."""
    if not batch.writer or last is None or batch.number > last.batch:
        return True
    if batch.number < last.batch:
        raise BatchConflict(
            f"the table {folder} has batch {last.batch} of writer {batch.writer} already, and now batch"
            f" {batch.number} with {batch.rows} rows came: nothing of it was written"
        )
    if last.rows is None:
        log.warning(
            "the table %s has batch %d of writer %s already; an earlier version of Penstock committed it and kept no"
            " count: the %d rows that come now are taken for a repeat",
            *(folder, batch.number, batch.writer, batch.rows),
        )
        return False
    if batch.rows != last.rows:
        raise BatchConflict(
            f"the table {folder} has batch {batch.number} of writer {batch.writer} already, with {last.rows} rows, and"
            f" now it came with {batch.rows}: nothing of it was written"
        )
    log.warning(
        "the table %s has batch %d of writer %s already: its %d rows are a repeat and are not written again",
        *(folder, batch.number, batch.writer, batch.rows),
    )
    return False

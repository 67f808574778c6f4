"""Which rows come too late, found exactly as Spark will find them, but before it drops them.

A stateful operator drops, in batch N, what is not newer than the watermark of batch N-1. That watermark is in the
checkpoint: Spark writes it to `offsets/N-1` before batch N-1 runs, and never changes it, so that a batch that is run
again decides alike.

Spark plans each batch anew from one analysed query, so that a constant of the query is one for all its batches. The
watermark is therefore read by a scalar subquery from a table of one row in the driver's memory, whose row is changed
between two batches: no job, no Python, and workers need not reach the checkpoint.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.errors import PipelineError

from .folder import Folder
from .windows import Window

_VIEW: Final = "_penstock_watermark"
_VALUE: Final = "(SELECT us FROM _penstock_watermark)"


class BatchWatermark:
    """The watermark that the rows of a batch are compared with."""

    def __init__(self, spark: SparkSession, folder: Folder) -> None:
        self._folder = folder
        table = spark.sql("SELECT us FROM VALUES (CAST(0 AS BIGINT)) AS t(us)")
        table.createOrReplaceTempView(_VIEW)
        plan: Any = table._jdf.queryExecution().analyzed()
        # InlineTable makes a LocalRelation: its row is shared by all plans that are made of this one.
        self._row = plan.collectLeaves().apply(0).data().apply(0)
        self._next = 0
        self._set(folder.last_committed())

    def late(self, event_time: Column, windows: Iterable[Window]) -> Column:
        """True for rows that a stateful operator of the batch would drop, and for those without an event time."""
        return f.coalesce(bound_us(event_time, windows) <= f.expr(_VALUE), f.lit(True))

    def check(self, batch: int) -> None:
        """Raise PipelineError unless the rows of this batch were compared with its own watermark."""
        if batch != self._next:
            raise PipelineError(
                f"batch {batch} came where batch {self._next} was expected: late rows are not known"
            )

    def advance(self, batch: int) -> None:
        """A batch is written: what the next is compared with."""
        self._set(batch)

    @property
    def written(self) -> int:
        """The last batch that is written; -1 before the first."""
        return self._next - 1

    def _set(self, batch: int) -> None:
        self._row.setLong(0, watermark_ms(self._folder, batch) * 1000)
        self._next = batch + 1


def bound_us(event_time: Column, windows: Iterable[Window]) -> Column:
    """The watermark, in microseconds, from which on a row is dropped somewhere."""
    event_us = f.unix_micros(event_time.cast("timestamp"))
    ends = [
        event_us - f.pmod(event_us - f.lit(window.offset), f.lit(window.slide)) + f.lit(window.size)
        for window in windows
    ]
    if not ends:
        return event_us
    return ends[0] if len(ends) == 1 else f.least(*ends)


def begun(folder: Folder) -> bool:
    """Whether some batch may have been written, even where none is over."""
    return bool(folder.numbers("checkpoint/offsets"))


def interrupted(folder: Folder) -> int | None:
    """The number of the batch that was begun and is not over; None where there is none."""
    last = max(folder.numbers("checkpoint/offsets"), default=-1)
    return last if last > folder.last_committed() else None


def watermark_ms(folder: Folder, batch: int) -> int:
    """The watermark that a batch ran with; 0 before the first."""
    return 0 if batch < 0 else int(json.loads(folder.offsets(batch)[0])["batchWatermarkMs"])

"""Tells late rows from others, exactly as Spark will, but before it drops them.

A stateful operator drops, in batch N, what is not newer than the watermark of batch N-1. That watermark is in the
checkpoint: Spark writes it to `offsets/N-1` before batch N-1 runs, and never changes it, so that a batch that is
run again decides alike. A task knows its batch by a property that Spark gives it.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.lateness import Window

BATCH: Final = "streaming.sql.batchId"


def late_column(checkpoint: Path, event_time: Column, windows: Iterable[Window]) -> Column:
    """True for rows that a stateful operator of this batch would drop, and for those without an event time."""
    folder = str(checkpoint)

    def late(bounds: pa.Array) -> pa.Array:
        context = TaskContext.get()
        batch = context.getLocalProperty(BATCH) if context is not None else None
        if batch is None:
            raise PipelineError("late rows are told in a streaming query only")
        watermark = pa.scalar(watermark_ms(folder, int(batch) - 1) * 1000, pa.int64())
        return pc.fill_null(pc.less_equal(bounds, watermark), True)

    told: Column = arrow_udf(late, "boolean")(bound_us(event_time, windows))  # type: ignore[call-overload]
    return told


def bound_us(event_time: Column, windows: Iterable[Window]) -> Column:
    """`lateness.late_us` as a column."""
    event_us = f.unix_micros(event_time.cast("timestamp"))
    ends = [
        event_us
        - f.pmod(event_us - f.lit(window.offset * 1000), f.lit(window.slide * 1000))
        + f.lit(window.size * 1000)
        for window in windows
    ]
    if not ends:
        return event_us
    return ends[0] if len(ends) == 1 else f.least(*ends)


def watermark_ms(checkpoint: str, batch: int) -> int:
    """The watermark that a batch ran with; 0 before the first."""
    if batch < 0:
        return 0
    path = Path(checkpoint) / "offsets" / str(batch)
    found = path.stat()
    return _watermark_ms(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _watermark_ms(path: Path, *identity: int) -> int:
    """What the file says. `identity` is of the file: a checkpoint that was deleted has another one of that name
    when it is made again, and the worker's process may have read the first."""
    lines = path.read_text("utf-8").splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])

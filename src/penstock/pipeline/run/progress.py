"""What a pipeline tells about itself: an event, as JSON, for each batch and each change of its state. Pure.

The fields are those of the system topic's messages; see docs/pipelines.md.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.marks import Marks, between, read_marks

STARTING: Final = "starting"
RUNNING: Final = "running"
IDLE: Final = "idle"
RESTARTING: Final = "restarting"
STOPPED: Final = "stopped"
FAILED: Final = "failed"

NO_WATERMARK_MS: Final = 0

# The names under which a query's counts stand in Spark's progress.
METRICS: Final = "penstock"  # rows written, dead letters, rows dropped
WARN: Final = "warn "  # and a view's name: how often each expectation did not hold


def batch_event(progress: Mapping[str, Any], branches: int) -> dict[str, Any]:
    """The event of a batch, from Spark's progress of it.

    `rows` are messages, counted by their offsets: Spark counts a row once for each branch that reads it.
    """
    sources = progress.get("sources") or []
    rows = sum(_rows(source, branches) for source in sources)
    batch_ms = int((progress.get("durationMs") or {}).get("triggerExecution", 0))
    metrics = progress.get("observedMetrics") or {}
    counts = metrics.get(METRICS) or {}
    dead, dropped = int(counts.get("dead_letters", 0)), int(counts.get("dropped", 0))
    return {
        "query": progress.get("id"),
        "state": RUNNING,
        "batch": progress.get("batchId"),
        "rows": rows,
        "written": int(counts.get("written", 0)),
        "rows_per_second": round(rows * 1000 / batch_ms, 1) if batch_ms else 0.0,
        "lag": _lag(sources),
        "batch_ms": batch_ms,
        "watermark": watermark_ms(progress),
        "rejected": dead + dropped,
        "dead_letters": dead,
        "warnings": _warnings(metrics),
        "late_unseen": sum(
            int(operator.get("numRowsDroppedByWatermark", 0))
            for operator in progress.get("stateOperators") or []
        ),
        "error": None,
        "error_class": None,
    }


def state_event(state: str, **more: Any) -> dict[str, Any]:
    """The event of a change of state."""
    return {"state": state, "error": None, "error_class": None, **more}


def watermark_ms(progress: Mapping[str, Any]) -> int | None:
    """The watermark of a batch in ms since the epoch; None where there is none, or none yet."""
    text = (progress.get("eventTime") or {}).get("watermark")
    if not text:
        return None
    found = round(datetime.fromisoformat(text).timestamp() * 1000)
    return found if found > NO_WATERMARK_MS else None


def _rows(source: Mapping[str, Any], branches: int) -> int:
    if source.get("startOffset") is not None and source["startOffset"] == source.get("endOffset"):
        return 0
    start, end = _marks(source.get("startOffset")), _marks(source.get("endOffset"))
    if start is None or end is None:
        return int(source.get("numInputRows") or 0) // max(1, branches)
    return sum(piece.size for piece in between(start, end))


def _lag(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """How many messages were there, when last looked, that the batch did not take."""
    lag: int | None = None
    for source in sources:
        end, head = _marks(source.get("endOffset")), _marks(source.get("latestOffset"))
        if end is None or head is None:
            continue
        missing = (
            spot.offset - end.spots[key].offset if key in end.spots else spot.offset
            for key, spot in head.spots.items()
        )
        lag = (lag or 0) + sum(max(0, count) for count in missing)
    return lag


def _marks(written: Any) -> Marks | None:
    try:
        return read_marks(written) if isinstance(written, dict) else None
    except PipelineError:
        return None  # not a source of ours


def _warnings(metrics: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, counts in metrics.items():
        if name.startswith(WARN):
            view = name.removeprefix(WARN)
            found |= {f"{view}.{expected}": int(count) for expected, count in counts.items() if count}
    return found

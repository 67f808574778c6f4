"""Runs a pipeline's query in this process, in a Spark session: plans, starts, watches, stops between batches."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from penstock.pipeline.spec.spec import Spec
from penstock.pipeline.versions import be_active

from . import events
from .causes import Cause, cause_of
from .failures import at_checkpoint, told
from .folder import Folder, Owner
from .lateness import BatchWatermark
from .outputs import collect_outputs
from .query import check_streaming, start_query
from .upkeep import Upkeep
from .views import build_views, session_for
from .writers import check_open_batch, plan_writers

LOOK_S: Final = 5.0  # whether the JVM is still there
IDLE_S: Final = 60.0  # between two events that say that nothing happens; Spark says it every other second
NEVER: Final = float("-inf")
LISTENER_S: Final = 10.0  # for Spark's events of the last batch to arrive

Emit = Callable[[dict[str, Any]], None]


class Runner:
    """One query of a pipeline. `emit` gets the event of every batch, in the order of the batches."""

    def __init__(self, spec: Spec, folder: Folder, spark: SparkSession, emit: Emit) -> None:
        self._spec = spec
        self._folder = folder
        self._spark = session_for(spec, spark)
        self._emit = emit
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._changed = threading.Event()  # a batch is over, the query is over, or an order to stop came
        self._listener: _Listener | None = None
        self._watermark: BatchWatermark | None = None
        self._upkeep: Upkeep | None = None

    def start(self, owner: Owner | None, *, once: bool, change_sinks: bool = False) -> None:
        """Plan and start the query, and report that it runs. Raises PipelineError or what Spark raises.

        `change_sinks`: see `writers.check_open_batch`.
        """
        start = owner.start if owner is not None else None
        spec = self._spec if start is None else _with_start(self._spec, start)
        be_active(self._spark)
        self._folder.begin(self._spark)
        self._watermark = watermark = BatchWatermark(self._spark, self._folder)
        views = build_views(spec, self._spark, watermark)
        outputs = collect_outputs(spec, views)
        check_streaming(spec, self._spark, outputs.frame)
        known = {} if owner is None else owner.sinks
        writers = plan_writers(spec, known, letters=outputs.letters)
        check_open_batch(spec, self._folder, known, writers, change_sinks=change_sinks)
        self._folder.own(self._spec, start, writers)
        self._listener = _Listener(self._emit, self._stopping, self._changed)
        self._spark.streams.addListener(self._listener)
        try:
            self._upkeep = None if once else Upkeep(spec)
            self._query = start_query(
                spec, self._spark, outputs, writers, watermark, self._folder, self._upkeep, once=once
            )
        except BaseException:
            self._spark.streams.removeListener(self._listener)
            if owner is None:  # nothing has begun
                self._folder.forget()
            raise
        self._listener.query = str(self._query.id)
        self._emit(
            events.state_event(
                events.RUNNING, query=self._listener.query, ui=self._spark.sparkContext.uiWebUrl
            )
        )

    def stop(self) -> None:
        """Stop after the batch that runs now."""
        self._stopping.set()
        self._changed.set()

    def kill(self) -> None:
        """Stop now; the batch that runs is run again by the next run."""
        if self._query is not None:
            with suppress(PySparkException):
                self._query.stop()

    def wait(self) -> Cause | None:
        """Until the query is over; why it failed, None where it did not."""
        query, listener = self._query, self._listener
        assert query is not None
        assert listener is not None
        while query.isActive:
            if self._stopping.is_set() and (
                listener.batch_over.is_set() or not query.status["isTriggerActive"]
            ):
                query.stop()
                break
            self._changed.wait(0.05 if self._stopping.is_set() else LOOK_S)
            if not self._stopping.is_set():
                self._changed.clear()
        if self._upkeep is not None:
            self._upkeep.stop()
        listener.over.wait(LISTENER_S)
        with suppress(Exception):  # of a JVM that is gone
            self._spark.streams.removeListener(listener)
        error = query.exception()
        if error is None:
            return None
        written = -1 if self._watermark is None else self._watermark.written
        return told(self._spec, at_checkpoint(cause_of(error), self._folder.home, written))


class _Listener(StreamingQueryListener):
    """Spark's events of one query; called from a thread of py4j's."""

    def __init__(self, emit: Emit, stopping: threading.Event, changed: threading.Event) -> None:
        super().__init__()
        self._emit = emit
        self._stopping = stopping
        self._changed = changed
        self.query = ""
        self._idle_at = NEVER  # when the last event said that there is nothing to do
        self.over = threading.Event()
        self.batch_over = threading.Event()  # set only while a thread waits for it

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        self.query = self.query or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = json.loads(event.progress.json)
        if str(found.get("id")) != self.query:
            return
        self._idle_at = NEVER
        made = events.batch_event(found)
        if not found.get("numInputRows") and not made["rows"] and not made["written"]:
            made["state"] = events.IDLE
        self._emit(made)
        if self._stopping.is_set():
            self.batch_over.set()
        self._changed.set()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.id) != self.query or time.monotonic() - self._idle_at < IDLE_S:
            return
        self._idle_at = time.monotonic()
        self._emit(events.state_event(events.IDLE))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.id) == self.query:
            self.over.set()
            self._changed.set()


def _with_start(spec: Spec, start_ms: int) -> Spec:
    """The spec with all sources beginning at a time."""
    sources = {name: msgspec.structs.replace(source, start=start_ms) for name, source in spec.sources.items()}
    return msgspec.structs.replace(spec, sources=sources)

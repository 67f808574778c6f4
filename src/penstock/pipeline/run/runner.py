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

from . import progress
from .causes import Cause, cause_of
from .folder import Folder, Owner
from .outputs import collect_outputs
from .query import check_streaming, start_query
from .views import build_views

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOOK_S: Final = 5.0  # whether the JVM is still there
IDLE_S: Final = 60.0  # between two events that say that nothing happens; Spark says it every other second
NEVER: Final = float("-inf")
LISTENER_S: Final = 10.0  # for Spark's events of the last batch to arrive

_CONF: Final = {
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,  # transformWithState needs it; memory is bounded
    "spark.sql.streaming.noDataProgressEventInterval": "2000",
}

Emit = Callable[[dict[str, Any]], None]


class Failed(Exception):
    """A pipeline ended with an error."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.sentence)
        self.cause = cause


class Runner:
    """One query of a pipeline. `emit` is told of every batch, in the order of the batches."""

    def __init__(self, spec: Spec, folder: Folder, spark: SparkSession, emit: Emit) -> None:
        self._spec = spec
        self._folder = folder
        self._spark = session_for(spec, spark)
        self._emit = emit
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._news = threading.Event()  # a batch is over, the query is over, or an order to stop came
        self._listener: _Listener | None = None
        self.branches = 1

    def start(self, owner: Owner | None, *, once: bool) -> str:
        """Plan and start the query; returns its id. Raises PipelineError or what Spark raises."""
        spec = (
            with_start(self._spec, owner.start)
            if owner is not None and owner.start is not None
            else self._spec
        )
        _be_active(self._spark)
        views = build_views(spec, self._spark, self._folder.checkpoint)
        outputs = collect_outputs(spec, views)
        self.branches = outputs.branches
        check_streaming(spec, self._spark, outputs.frame)
        self._folder.own(self._spec, owner.start if owner is not None else None)
        self._listener = _Listener(self)
        self._spark.streams.addListener(self._listener)
        try:
            self._query = start_query(spec, views, outputs, self._folder.checkpoint, once=once)
        except BaseException:
            self._spark.streams.removeListener(self._listener)
            if owner is None:  # nothing has begun
                self._folder.forget()
            raise
        self._listener.query = str(self._query.id)
        return str(self._query.id)

    def stop(self) -> None:
        """Stop after the batch that runs now."""
        self._stopping.set()
        self._news.set()

    def kill(self) -> None:
        """Stop now; the batch that runs is run again by the next run."""
        if self._query is not None:
            with suppress(PySparkException):
                self._query.stop()

    @property
    def active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until the query is over; False when time is. Raises Failed where it ended with an error."""
        query = self._query
        assert query is not None
        if not self._until_over(query, timeout_s):
            return False
        if self._listener is not None:
            self._listener.over.wait(LISTENER_S)
            with suppress(Exception):  # of a JVM that is gone
                self._spark.streams.removeListener(self._listener)
            self._listener = None
        error = query.exception()
        if error is not None:
            raise Failed(cause_of(error))
        return True

    def _until_over(self, query: StreamingQuery, timeout_s: float | None) -> bool:
        waited = 0.0
        while query.isActive:
            if self._stopping.is_set() and self._between_batches(query):
                query.stop()
                return True
            step = 0.05 if self._stopping.is_set() else LOOK_S
            if timeout_s is not None:
                if waited >= timeout_s:
                    return False
                step = min(step, timeout_s - waited)
            waited += step
            self._news.wait(step)
            if not self._stopping.is_set():
                self._news.clear()
        return True

    def _between_batches(self, query: StreamingQuery) -> bool:
        """Now, or as soon as Spark says that a batch is over."""
        listener = self._listener
        if listener is not None and listener.batch_over.is_set():
            return True
        return not query.status["isTriggerActive"]

    def told(self, event: dict[str, Any]) -> None:
        """An event of the listener's."""
        self._emit(event)

    def wake(self) -> None:
        """Something happened."""
        self._news.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()


class _Listener(StreamingQueryListener):
    """Spark's events of one query; called from a thread of py4j's."""

    def __init__(self, runner: Runner) -> None:
        super().__init__()
        self._runner = runner
        self.query = ""
        self._idle_at = NEVER  # when it was last told that there is nothing to do
        self.over = threading.Event()
        self.batch_over = threading.Event()  # set only while a thread waits for it

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        self.query = self.query or str(event.id)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        found = json.loads(event.progress.json)
        if str(found.get("id")) != self.query:
            return
        self._idle_at = NEVER
        said = progress.batch_event(found, self._runner.branches)
        if not found.get("numInputRows") and not said["rows"] and not said["written"]:
            said["state"] = progress.IDLE
        self._runner.told(said)
        if self._runner.stopping:
            self.batch_over.set()
        self._runner.wake()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        if str(event.id) != self.query or time.monotonic() - self._idle_at < IDLE_S:
            return
        self._idle_at = time.monotonic()
        self._runner.told(progress.state_event(progress.IDLE))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        if str(event.id) == self.query:
            self.over.set()
            self._runner.wake()


def session_for(spec: Spec, spark: SparkSession) -> SparkSession:
    """A session of the pipeline's own beside a given one: its own views and settings, the same Spark."""
    mine = spark.newSession()
    for key, value in {**_CONF, **spec.spark}.items():
        if key.startswith(
            "spark.sql."
        ):  # the others belong to Spark as a whole, and are set where it is started
            mine.conf.set(key, value)
    return mine


def _be_active(spark: SparkSession) -> None:
    """Let Spark find a session from this thread: without one it knows no data source of Python's."""
    sessions = SparkSession._get_j_spark_session_class(spark._jvm)
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)


def with_start(spec: Spec, start_ms: int) -> Spec:
    """The spec with all sources beginning at a time."""
    sources = {name: msgspec.structs.replace(source, start=start_ms) for name, source in spec.sources.items()}
    return msgspec.structs.replace(spec, sources=sources)

"""A pipeline in this process: for notebooks, `spark-submit` and tests."""

import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.session import session
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec

from . import events
from .backfill import Report, check_backfill, plan_backfill, run_backfill
from .events import Reporter
from .failures import Cause, ErrorClass, cause_of
from .preflight import preflight
from .preview import MESSAGES, ROWS, preview
from .query import Runner
from .state import folder_of
from .supervise import Backoff, Failures

# Not unknown errors: nothing here could start Spark again, and the user of a notebook wants to see them.
_AGAIN: Final = (ErrorClass.NEW_SCHEMA, ErrorClass.BROKER)


class Pipeline:
    """A declared pipeline that runs in a session of this process.

    A thread keeps it running: if the server is away, or a schema needs a new plan, the query is started
    again; any other error ends it, and is raised by `await_termination` and `stop`. Its state folder is locked
    from `start` to its end.
    """

    def __init__(
        self,
        spec: Spec,
        spark: SparkSession | None = None,
        listener: Callable[[dict[str, Any]], None] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self.spec = spec
        self._spark = spark
        self._folder = folder_of(spec)
        self._lock = self._folder.locked()
        self._listener = listener
        self._backoff = backoff or Backoff()
        self._failures = Failures(self._backoff)
        self._reporter: Reporter | None = None
        self._runner: Runner | None = None  # of the attempt that runs
        self._started = False
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._error: Cause | None = None

    @property
    def progress(self) -> dict[str, Any]:
        """The last event: see docs/pipelines.md."""
        return dict(self._reporter.last) if self._reporter is not None else {}

    @property
    def active(self) -> bool:
        """Whether it runs, or waits to run again."""
        return self._started and not self._over.is_set()

    def start(self, *, once: bool | None = None, change_sinks: bool = False) -> "Pipeline":
        """Begin, or continue at the checkpoint. `once`: process available messages, and end. `change_sinks`: a batch that was
        begun is repeated although the file now has other sinks; one that is gone lacks it.

        Raises PipelineError in one sentence; nothing is written then.
        """
        if self._started:
            raise PipelineError(f"pipeline {self.spec.name} was started already")
        spec = self.spec
        once = spec.once if once is None else once
        self._over.clear()
        self._stopping.clear()
        self._failures = Failures(self._backoff)
        self._folder.check_owner(spec)
        preflight(spec)
        self._lock.__enter__()
        try:
            self._folder.clear_control()
            self._folder.check_owner(spec)
            report = self._reporter = Reporter(spec, self._folder, str(uuid.uuid4()), self._listener)
            report(events.state_event(events.STARTING, query=None))
            spark = self._spark or session(
                spec.name, spec.master, scratch=self._folder.clean_scratch(), **spec.spark
            )

            def attempt() -> None:
                preflight(spec)  # a query would wait for the server without a word
                runner = Runner(spec, self._folder, spark, self._emit)
                runner.start(self._folder.check_owner(spec), once=once, change_sinks=change_sinks)
                self._runner = runner
                if self._stopping.is_set():
                    runner.stop()

            began = time.monotonic()
            attempt()
        except BaseException as error:
            self._end(cause_of(error))
            if not isinstance(error, Exception):
                raise
            raise self._raised() from error
        self._started = True
        threading.Thread(target=self._keep, args=(attempt, began), name="pipeline", daemon=True).start()
        return self

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; False after the timeout. Raises PipelineError if it failed."""
        if not self._started:
            raise PipelineError(f"pipeline {self.spec.name} was not started")
        if not self._over.wait(timeout_s):
            return False
        if self._error is not None:
            raise self._raised()
        return True

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop after the batch that runs now."""
        if self.active:
            self._stopping.set()
            if (runner := self._runner) is not None:
                runner.stop()
            if not self.await_termination(timeout_s):
                if (runner := self._runner) is not None:
                    runner.kill()
                self.await_termination()

    def preview(self, step: str = "", *, rows: int = ROWS, messages: int = MESSAGES) -> DataFrame:
        """See `preview.preview`. Nothing is started; a second call is faster, as Spark runs then."""
        return preview(self.spec, self._session(), step, rows=rows, messages=messages)

    def backfill(
        self,
        start: str | int | datetime,
        end: str | int | datetime,
        *,
        sinks: Iterable[str] = (),
        columns: Mapping[str, str] = {},
        margin: str = "",
        append_topics: bool = False,
    ) -> Report:
        """Compute a range of time again: see `backfill`. Raises PipelineError."""
        spec, plan = plan_backfill(
            self.spec, start, end, sinks=sinks, columns=columns, margin=margin, append_topics=append_topics
        )
        preflight(spec)
        check_backfill(spec, plan)
        return run_backfill(spec, self._session(), plan)

    def _session(self) -> SparkSession:
        return self._spark or session(self.spec.name, self.spec.master, scratch=None, **self.spec.spark)

    def _emit(self, event: dict[str, Any]) -> None:
        assert self._reporter is not None
        self._failures.see(event)
        self._reporter(event)

    def _keep(self, attempt: Callable[[], None], began: float) -> None:
        try:
            cause = self._kept(attempt, began)
        except BaseException as error:  # no other thread sees this thread's error
            cause = cause_of(error)
        self._end(cause)

    def _kept(self, attempt: Callable[[], None], began: float) -> Cause | None:
        """Until the end, one attempt after the other: why it failed, or None if it was stopped or is through."""
        assert self._reporter is not None
        while (runner := self._runner) is not None:
            try:
                cause, planned = runner.wait(), True
            finally:
                self._runner = None
            while cause is not None:
                if cause.kind not in _AGAIN:
                    return cause
                pause = self._failures.pause_s(cause.kind.value, time.monotonic() - began, planned=planned)
                if pause is None:
                    return cause._replace(sentence=Failures.too_many(cause.sentence))
                self._reporter(_caused(events.RESTARTING, cause))
                if self._stopping.wait(pause):
                    return None
                began, cause, planned = time.monotonic(), None, False
                try:
                    attempt()
                except Exception as error:
                    cause = cause_of(error)
        return None

    def _raised(self) -> PipelineError:
        cause = self._error or Cause(ErrorClass.UNKNOWN, "it ended")
        error = PipelineError(cause.sentence)
        error.error_class = cause.kind.value  # type: ignore[attr-defined]
        return error

    def _end(self, cause: Cause | None) -> None:
        self._error = cause
        try:
            if self._reporter is not None:
                self._reporter(
                    events.state_event(events.STOPPED) if cause is None else _caused(events.FAILED, cause)
                )
                self._reporter.close()
            if not self._started:
                with suppress(PenstockError):  # of a store that is away: the error is said, not this one
                    self._folder.vacate()
        finally:
            self._lock.__exit__(None, None, None)
            self._over.set()


def _caused(state: str, cause: Cause) -> dict[str, Any]:
    return events.state_event(state) | {"error": cause.sentence, "error_class": cause.kind.value}


def pipeline(given: Spec | Path | str, spark: SparkSession | None = None, **overrides: Any) -> Pipeline:
    """The pipeline that a file declares (or a Spec), to be run in `spark` or in its own session.

    `overrides` are those of `load_spec`: `url`, `state`, `master`, `settings`.
    """
    spec = given if isinstance(given, Spec) else load_spec(given, **overrides)
    for sentence in spec.warnings:
        warnings.warn(sentence, stacklevel=2)
    return Pipeline(spec, spark)

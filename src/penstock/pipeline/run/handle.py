"""A pipeline in this process: for notebooks, `spark-submit` and tests."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.session import session
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec

from . import progress
from .causes import Cause, cause_of
from .folder import Folder, Lock
from .preflight import preflight
from .report import Reporter
from .runner import Failed, Runner


class Pipeline:
    """A declared pipeline that runs in a session of this process, without a supervisor.

    Its state folder is locked from `start` to the end of `stop` or `await_termination`.
    """

    def __init__(
        self,
        spec: Spec,
        spark: SparkSession | None = None,
        listener: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.spec = spec
        self._spark = spark
        self._folder = Folder(spec.home)
        self._lock = Lock(self._folder)
        self._listener = listener
        self._reporter: Reporter | None = None
        self._runner: Runner | None = None

    @property
    def progress(self) -> dict[str, Any]:
        """The last event: see docs/pipelines.md."""
        return dict(self._reporter.last) if self._reporter is not None else {}

    @property
    def active(self) -> bool:
        return self._runner is not None and self._runner.active

    def start(self, *, once: bool | None = None) -> "Pipeline":
        """Begin, or go on where the checkpoint says. `once`: process what is there, and end.

        Raises PipelineError in one sentence; nothing is written then.
        """
        if self._runner is not None:
            raise PipelineError(f"pipeline {self.spec.name} was started already")
        spec = self.spec
        self._folder.check_owner(spec)
        preflight(spec)
        with _given_back(self._lock):
            self._folder.clear_control()
            owner = self._folder.check_owner(spec)
            self._reporter = Reporter(spec, self._folder, str(uuid.uuid4()), self._listener)
            self._reporter(progress.state_event(progress.STARTING, query=None))
            try:
                spark = self._spark or session(spec.name, spec.master, **spec.spark)
                self._runner = Runner(spec, self._folder, spark, self._reporter)
                if owner is None:
                    self._folder.own(spec)
                query = self._runner.start(owner, once=spec.once if once is None else once)
            except Exception as error:
                self._runner = None
                raise self._failed(cause_of(error)) from error
            self._reporter(progress.state_event(progress.RUNNING, query=query))
        return self

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait for the end; False when the time is over before. Raises PipelineError where it failed."""
        if self._runner is None:
            raise PipelineError(f"pipeline {self.spec.name} was not started")
        try:
            over = self._runner.wait(timeout_s)
        except Failed as failed:
            self._runner = None
            raise self._failed(failed.cause) from None
        if over:
            self._end(progress.state_event(progress.STOPPED))
        return over

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop after the batch that runs now."""
        if self._runner is not None:
            self._runner.stop()
            if not self.await_termination(timeout_s):
                self._runner.kill()
                self.await_termination()

    def _failed(self, cause: Cause) -> PipelineError:
        self._end(
            progress.state_event(progress.FAILED) | {"error": cause.sentence, "error_class": cause.kind.value}
        )
        error = PipelineError(cause.sentence)
        error.error_class = cause.kind.value  # type: ignore[attr-defined]
        return error

    def _end(self, event: dict[str, Any]) -> None:
        self._runner = None
        if self._reporter is not None:
            self._reporter(event)
            self._reporter.close()
        self._lock.__exit__(None, None, None)


class _given_back:  # noqa: N801 - used as a function
    """Take a lock, and keep it unless the block fails."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            self._lock.__exit__(None, None, None)


def pipeline(given: Spec | Path | str, spark: SparkSession | None = None, **overrides: Any) -> Pipeline:
    """The pipeline that a file declares (or a Spec), to be run in `spark` or in a session of its own.

    `overrides` are those of `load_spec`: `url`, `state`, `master`.
    """
    spec = given if isinstance(given, Spec) else load_spec(given, **overrides)
    return Pipeline(spec, spark)

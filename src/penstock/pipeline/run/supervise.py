"""Keeps a pipeline running: a worker process with Spark in it, started again when that may help.

The state folder's lock is held here and in the worker, so that the folder is in use as long as either lives.
Imports no Spark.
"""

import os
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import is_url
from penstock.pipeline.spec.options import STATIC, of_session
from penstock.pipeline.spec.spec import Spec

from . import events
from .events import Reporter
from .preflight import preflight
from .process import END_S, GONE, KILL, START, STOP, WORKER, Job, SharedWorker, WorkerEvent, WorkerProcess
from .state import folder_of

CONTROL_S: Final = 0.5  # how soon `penstock pipeline stop` is seen

Watch = Callable[[dict[str, Any]], None]
Outcome = Literal["done", "lost", "failed"]

FIRST_S: Final = 1.0  # the longest first pause
MOST_S: Final = 60.0
HEALTHY_S: Final = 60.0  # a run of that length had no trouble with how it began
FAILURES_MAX: Final = 10  # without progress between them

_RANDOM: Final = random.SystemRandom()  # the state of the `random` module belongs to the application


class Backoff:
    """Doubled with each failure, at most MOST_S; between half of it and all of it, so that many do not come at once."""

    def __init__(self, dice: Callable[[], float] = _RANDOM.random) -> None:
        self._dice = dice
        self._failures = 0

    def next_s(self, ran_s: float) -> float:
        """Seconds to wait after a run of `ran_s`."""
        if ran_s >= HEALTHY_S:
            self._failures = 0
        most = min(MOST_S, FIRST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return most * (0.5 + 0.5 * self._dice())


class Failures:
    """How often a pipeline has failed since it last made progress: since a batch was over, or nothing was left to do.

    A server that is away while a run begins is waited for, and not counted.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.count = 0
        self._backoff = backoff
        self._batch = -1

    def see(self, event: Mapping[str, Any]) -> None:
        """An event of the query."""
        batch = event.get("batch")
        if event.get("state") == events.IDLE or (isinstance(batch, int) and batch > self._batch):
            self.count = 0
        if isinstance(batch, int):
            self._batch = max(self._batch, batch)

    def pause_s(self, error_class: str, ran_s: float, *, planned: bool) -> float | None:
        """Seconds to wait after a failure, of a run whose query had started (`planned`) or not: none before the first plan with
        a new schema. None if it was one failure too many."""
        if planned or error_class != "broker":
            self.count += 1
        if self.count >= FAILURES_MAX:
            return None
        return 0.0 if error_class == "new_schema" and self.count == 1 else self._backoff.next_s(ran_s)

    @staticmethod
    def too_many(error: str) -> str:
        """The sentence of a pipeline that ends."""
        return f"{error}; it failed {FAILURES_MAX} times, and no batch was over in between"


class Supervisor:
    """Runs one pipeline until it is done, is stopped, or fails for good.

    `watch` is called with every event, and `{"waiting": …}` while there is something to wait for.
    """

    def __init__(
        self,
        spec: Spec,
        job: Job,
        watch: Watch,
        backoff: Backoff | None = None,
        command: Sequence[str] = WORKER,
        shared: SharedWorker | None = None,
    ) -> None:
        """`shared`: a worker that other supervisors have as well, in place of one of its own by `command`."""
        self._spec = spec
        self._job = job
        self._watch = watch
        self._shared = shared or SharedWorker(command, [job.file])
        self._folder = folder_of(spec)
        self._stops = 0
        self._failures = Failures(backoff or Backoff())
        self._planned = False  # since then, what passes is waited for
        self._worker: WorkerProcess | None = None
        self._error = ""

    def stop(self) -> None:
        """Stop after the current batch; the second time, now; the third, without asking."""
        self._stops += 1

    def run(self) -> None:
        """Until the end. Raises PipelineError with the reason where it failed."""
        try:
            self._run()
        finally:
            self._shared.leave(self._job.file)

    def _run(self) -> None:
        self._folder.check_owner(self._spec)
        preflight(self._spec)
        with self._folder.locked() as lock:
            self._job = msgspec.structs.replace(self._job, epoch=self._folder.epoch)
            self._folder.check_owner(self._spec)
            self._folder.clear_control()
            report = Reporter(self._spec, self._folder, str(uuid.uuid4()), self._watch)
            report(events.state_event(events.STARTING, query=None, pid=os.getpid()))
            try:
                self._shared.enter(self._job, lock.files)
                self._keep_running(report)
            except BaseException:
                if self._worker is not None:  # which may have other pipelines, and go on
                    self._worker.send(
                        STOP, self._job.file
                    )  # a query that is planned is not there to be killed
                    self._worker.send(KILL, self._job.file)
                report(events.state_event(events.FAILED, error="interrupted", error_class="unknown"))
                raise
            finally:
                self._release(END_S)
                report.close()
                with suppress(PenstockError):  # of a store that is away: the error is said, not this one
                    self._folder.clear_control()
                self._folder.clean_scratch()
                if not self._planned:
                    with suppress(PenstockError):
                        self._folder.vacate()
                self._shared.leave(self._job.file)
        if self._error:
            raise PipelineError(self._error)

    def _release(self, timeout_s: float) -> None:
        if self._worker is not None:
            self._shared.release(self._worker, self._job.file, timeout_s)
            self._worker = None

    def _keep_running(self, report: Reporter) -> None:
        while True:
            began = time.monotonic()
            if self._worker is None:
                self._folder.clean_scratch()  # of a worker that was killed
                self._worker = self._shared.acquire(self._job.file)
            self._worker.send(START, self._job.file)
            outcome, said = self._listen(self._worker, report)
            if outcome != "failed":
                self._release(END_S if outcome == "done" else 0)
            if outcome == "done" or self._stops:
                report(events.state_event(events.STOPPED))
                return
            error = {"error": said.error, "error_class": said.error_class}
            # A worker that is lost before a query has started will not do better, unless another pipeline may be the reason.
            again = self._planned or (outcome == "lost" and not self._shared.alone)
            pause = None
            if said.retried and again:
                ran_s = time.monotonic() - began
                pause = self._failures.pause_s(said.error_class, ran_s, planned=said.planned)
                if pause is None:
                    error["error"] = Failures.too_many(said.error)
            if pause is None:
                self._error = error["error"]
                report(events.state_event(events.FAILED) | error)
                return
            report(events.state_event(events.RESTARTING) | error)
            self._watch({"waiting": f"{pause:.0f} s before the next attempt"})
            if self._paused(pause):
                report(events.state_event(events.STOPPED))
                return

    def _listen(self, worker: WorkerProcess, report: Reporter) -> tuple[Outcome, WorkerEvent]:
        """Until the query is over: done, failed in a worker that can go on, or lost with it."""
        asked = 0
        while True:
            self._look_for_orders()
            while asked < self._stops:
                asked += 1
                if asked > 2:
                    worker.end(0)
                else:
                    worker.send(STOP if asked == 1 else KILL, self._job.file)
            said = worker.receive(self._job.file, CONTROL_S)
            if said is None:
                continue
            if said is GONE:
                text = f"Spark's process ended unexpectedly ({worker.why()})"
                return "lost", WorkerEvent(error=text, error_class="unknown", retried=True)
            if said.event is not None:
                if said.event.get("batch") is not None or said.event.get("state") == events.RUNNING:
                    self._planned = True
                self._failures.see(said.event)
                report({"error": None, "error_class": None, **said.event})
            elif said.waiting:
                self._watch({"waiting": said.waiting})
            elif said.over:
                self._planned = self._planned or said.planned
                return ("failed", said) if said.error else ("done", said)

    def _look_for_orders(self) -> None:
        if not self._stops and self._folder.asked_to_stop():
            self._stops = 1

    def _paused(self, seconds: float) -> bool:
        """Wait; True where an order to stop came."""
        until = time.monotonic() + seconds
        while not self._stops and time.monotonic() < until:
            time.sleep(min(CONTROL_S, max(0.0, until - time.monotonic())))
            self._look_for_orders()
        return self._stops > 0


def check_together(specs: Sequence[Spec]) -> None:
    """Raise PipelineError for pipelines that cannot share a Spark session. Pure."""
    first, *others = specs

    def of_spark(spec: Spec) -> dict[str, str]:
        return {key: text for key, text in spec.spark.items() if of_session(key)}

    def has_code(spec: Spec) -> bool:
        steps = any(step.python or step.stateful for step in spec.steps)
        return steps or any(sink.python for sink in spec.sinks.values())

    for number, spec in enumerate(others, 1):
        if any(spec.name == other.name or spec.file == other.file for other in specs[:number]):
            raise PipelineError(f"{spec.file}: pipeline {spec.name} is named twice")
        if spec.master != first.master:
            raise PipelineError(
                f"{spec.file}: master: {spec.master} is not that of {first.file}, {first.master}"
            )
        if of_spark(spec) != of_spark(first):
            raise PipelineError(
                f"{spec.file}: [spark]: settings other than spark.sql.…, and {', '.join(STATIC)}, belong to the session and"
                f" must be those of {first.file}"
            )
        if is_url(str(spec.home)) and is_url(str(first.home)) and spec.storage != first.storage:
            raise PipelineError(
                f"{spec.file}: [storage]: state in object stores needs the settings of {first.file}: Hadoop has one set of them"
            )
    folders = {spec.folder: spec.file for spec in specs if has_code(spec)}
    if len(folders) > 1:
        raise PipelineError(
            f"{' and '.join(folders.values())} are in different folders and both name functions, and Python would mix their"
            " modules: put the files into one folder, or run them apart"
        )


def run_together(
    supervisors: Mapping[str, Supervisor], *, stop_on_failure: bool, failed: Callable[[str], None]
) -> None:
    """Run supervisors, by the names of their pipelines, until all have ended. `failed` gets each failure as it happens.

    One that fails leaves the others alone, unless `stop_on_failure`. Raises PipelineError with the names of those that failed.
    """
    names: list[str] = []
    with ThreadPoolExecutor(len(supervisors), "supervisor") as threads:
        running = {threads.submit(supervisor.run): name for name, supervisor in supervisors.items()}
        for done in as_completed(running):
            if (error := done.exception()) is None:
                continue
            failed(error.message if isinstance(error, PenstockError) else f"{running[done]}: {error!r}")
            if stop_on_failure and not names:
                for supervisor in supervisors.values():
                    supervisor.stop()
            names.append(running[done])
    if names:
        raise PipelineError(f"{len(names)} of {len(supervisors)} pipelines failed: {', '.join(names)}")

"""Keeps a pipeline running: a worker process with Spark in it, started again when that may help.

The state folder's lock is held here and in the worker, so that the folder is in use as long as either lives.
Imports no Spark.
"""

import fcntl
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from . import events
from .events import Reporter
from .preflight import preflight
from .state import folder_of

CONTROL_S: Final = 0.5  # how soon `penstock pipeline stop` is seen

Watch = Callable[[dict[str, Any]], None]
Outcome = Literal["done", "lost", "failed"]

FIRST_S: Final = 1.0  # the longest first pause
MOST_S: Final = 60.0
HEALTHY_S: Final = 60.0  # a run of that length had no trouble with how it began
FAILURES_MAX: Final = 10  # without progress between them

_RANDOM: Final = random.SystemRandom()  # the state of the `random` module belongs to the application

# Orders; the job's file follows each.
START: Final = "start"  # begin, or begin again after a failure
STOP: Final = "stop"  # after the batch that runs now
KILL: Final = "kill"  # now

END_S: Final = 20.0  # a worker whose query is over has to close Spark
WORKER: Final = (sys.executable, "-m", "penstock.pipeline.run.worker")


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


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to run: the first line on its stdin is a list of them. The rest are what `load_spec` takes."""

    file: str
    url: str = ""
    state: str = ""
    master: str = ""
    settings: tuple[str, ...] = ()
    once: bool | None = None
    change_sinks: bool = False  # of a batch that was begun, see `writers`
    epoch: int = 0  # of the state in an object store
    scratch: str = (
        ""  # for the temporary files of a Spark that pipelines share; else it is the pipeline's own
    )

    def overrides(self) -> dict[str, Any]:
        given = {"url": self.url, "state": self.state or None, "master": self.master}
        return given | {"settings": self.settings}


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the worker's: an event of a pipeline's, or a step of starting up that its supervisor may wait for."""

    file: str = ""  # of the job
    event: dict[str, Any] | None = None
    waiting: str = ""
    over: bool = False  # the query is over; `error` says how
    error: str = ""
    error_class: str = ""
    retried: bool = False
    planned: bool = False  # the query has been running


GONE: Final = WorkerEvent(over=True, error="gone")


class WorkerProcess:
    """The worker: a separate process group, so that this process passes Ctrl-C on, and nothing of it is left."""

    def __init__(self, command: Sequence[str], jobs: Sequence[Job], files: Collection[int]) -> None:
        self.users: set[str] = set()  # files of jobs whose supervisors have it
        self.scratch = jobs[0].scratch
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=files
        )
        self._received: dict[str, queue.Queue[WorkerEvent]] = {job.file: queue.Queue() for job in jobs}
        self._writing = threading.Lock()
        self._reading = threading.Thread(target=self._read, name="worker", daemon=True)
        self._reading.start()
        self._write(msgspec.json.encode(jobs))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def send(self, word: str, file: str) -> None:
        self._write(f"{word} {file}".encode())

    def receive(self, file: str, timeout_s: float) -> WorkerEvent | None:
        try:
            return self._received[file].get(timeout=timeout_s)
        except queue.Empty:
            # What it started may hold its end of the pipe open: only the process itself says that it is gone.
            return None if self.alive else GONE

    def why(self) -> str:
        """How it ended, for people."""
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self, timeout_s: float) -> None:
        """Let it end by itself within a time, and see that nothing of its group is left."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reading.join(END_S)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with self._writing:
            try:
                self._process.stdin.write(line + b"\n")
                self._process.stdin.flush()
            except (OSError, ValueError):
                pass  # it is gone, which reading shows

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = msgspec.json.decode(line, type=WorkerEvent)
                self._received[said.file].put(said)
        for received in self._received.values():
            received.put(GONE)


class SharedWorker:
    """The worker process of one or several supervisors. It starts when the first acquires it and all have entered or left, because
    it inherits their locks; it ends when the last releases it."""

    def __init__(self, command: Sequence[str], files: Iterable[str]) -> None:
        self._command = command
        self._awaited = set(files)  # of jobs whose supervisors have neither entered nor left
        self.alone = len(self._awaited) == 1
        self._jobs: dict[str, tuple[Job, Collection[int]]] = {}
        self._worker: WorkerProcess | None = None
        self._changed = threading.Condition()

    def enter(self, job: Job, files: Collection[int]) -> None:
        """A supervisor holds the lock of its pipeline, whose descriptors are `files`."""
        with self._changed:
            self._jobs[job.file] = job, files
            self._awaited.discard(job.file)
            self._changed.notify_all()

    def leave(self, file: str) -> None:
        """A supervisor has ended: unlock its folder, whose descriptor the worker may still have."""
        with self._changed:
            for each in self._jobs.pop(file, (None, ()))[1]:
                fcntl.flock(each, fcntl.LOCK_UN)
            self._awaited.discard(file)
            self._changed.notify_all()

    def acquire(self, file: str) -> WorkerProcess:
        with self._changed:
            self._changed.wait_for(lambda: not self._awaited)
            if self._worker is None or not self._worker.alive:
                scratch = "" if self.alone else tempfile.mkdtemp(prefix="penstock-")
                jobs = [msgspec.structs.replace(job, scratch=scratch) for job, _ in self._jobs.values()]
                held = [each for _, files in self._jobs.values() for each in files]
                self._worker = WorkerProcess(self._command, jobs, held)
            self._worker.users.add(file)
            return self._worker

    def release(self, worker: WorkerProcess, file: str, timeout_s: float) -> None:
        with self._changed:
            worker.users.discard(file)
            if not worker.users:
                worker.end(timeout_s)
                if worker.scratch:
                    shutil.rmtree(worker.scratch, ignore_errors=True)
                if worker is self._worker:
                    self._worker = None


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
        """`shared`: a worker that other supervisors have as well, in place of a separate one by `command`."""
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
        """Wait for the end. Raises PipelineError with the reason of a failure."""
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
        """Wait; True if an order to stop came."""
        until = time.monotonic() + seconds
        while not self._stops and time.monotonic() < until:
            time.sleep(min(CONTROL_S, max(0.0, until - time.monotonic())))
            self._look_for_orders()
        return self._stops > 0


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

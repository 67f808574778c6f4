"""Keeps a pipeline running: a worker process with Spark in it, started again when that may help.

The state folder's lock is held here and in the worker, so that the folder is in use as long as either lives.
Imports no Spark.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from . import progress
from .backoff import Backoff
from .folder import Folder, Lock
from .orders import KILL, START, STOP, Job, WorkerEvent
from .preflight import preflight
from .report import Reporter

CONTROL_S: Final = 0.5  # how soon `penstock pipeline stop` is seen
END_S: Final = 20.0  # a worker whose query is over has to close Spark

WORKER: Final = (sys.executable, "-m", "penstock.pipeline.run.worker")

Watch = Callable[[dict[str, Any]], None]
Outcome = Literal["done", "lost", "failed"]


class Supervisor:
    """Runs one pipeline until it is done, is stopped, or fails for good.

    `watch` is told every event, and `{"waiting": …}` while there is something to wait for.
    """

    def __init__(
        self,
        spec: Spec,
        job: Job,
        watch: Watch,
        backoff: Backoff | None = None,
        command: Sequence[str] = WORKER,
    ) -> None:
        self._spec = spec
        self._job = job
        self._watch = watch
        self._backoff = backoff or Backoff()
        self._command = command
        self._folder = Folder(spec.home)
        self._stops = 0
        self._planned = False  # since then, what passes is waited for
        self._worker: _Process | None = None
        self._error = ("", "")

    def stop(self) -> None:
        """Stop after the current batch; the second time, now; the third, without asking."""
        self._stops += 1

    def run(self) -> None:
        """Until the end. Raises PipelineError with the reason where it failed."""
        self._folder.check_owner(self._spec)
        preflight(self._spec)
        with Lock(self._folder) as lock:
            self._folder.check_owner(self._spec)
            self._folder.clear_control()
            report = Reporter(self._spec, self._folder, str(uuid.uuid4()), self._watch)
            report(progress.state_event(progress.STARTING, query=None, pid=os.getpid()))
            try:
                self._keep_running(lock, report)
            except BaseException:
                report(progress.state_event(progress.FAILED, error="interrupted", error_class="unknown"))
                raise
            finally:
                if self._worker is not None:
                    self._worker.end(END_S)
                report.close()
                self._folder.clear_control()
                self._folder.clean_scratch()
                if not self._planned:
                    self._folder.vacate()
        if self._error[0]:
            raise PipelineError(self._error[0])

    def _keep_running(self, lock: Lock, report: Reporter) -> None:
        while True:
            began = time.monotonic()
            if self._worker is None:
                self._folder.clean_scratch()  # of a worker that was killed
                self._worker = _Process(self._command, self._job, lock)
            self._worker.say(START)
            outcome, said = self._listen(self._worker, report)
            if outcome != "failed":
                self._worker.end(END_S if outcome == "done" else 0)
                self._worker = None
            if outcome == "done" or self._stops:
                report(progress.state_event(progress.STOPPED))
                return
            error = {"error": said.error, "error_class": said.error_class}
            if not said.retried or not self._planned:
                self._error = (said.error, said.error_class)
                report(progress.state_event(progress.FAILED) | error)
                return
            pause = (
                0.0 if said.error_class == "new_schema" else self._backoff.next_s(time.monotonic() - began)
            )
            report(progress.state_event(progress.RESTARTING) | error)
            self._watch({"waiting": f"{pause:.0f} s before the next attempt"})
            if self._paused(pause):
                report(progress.state_event(progress.STOPPED))
                return

    def _listen(self, worker: "_Process", report: Reporter) -> tuple[Outcome, WorkerEvent]:
        """Until the query is over: done, failed in a worker that can go on, or lost with it."""
        asked = 0
        while True:
            self._look_for_orders()
            while asked < self._stops:
                asked += 1
                if asked > 2:
                    worker.end(0)
                else:
                    worker.say(STOP if asked == 1 else KILL)
            said = worker.hear(CONTROL_S)
            if said is None:
                continue
            if said is _GONE:
                text = f"Spark's process ended unexpectedly ({worker.why()})"
                return "lost", WorkerEvent(error=text, error_class="unknown", retried=True)
            if said.event is not None:
                if said.event.get("batch") is not None or said.event.get("state") == progress.RUNNING:
                    self._planned = True
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


_GONE: Final = WorkerEvent(over=True, error="gone")


class _Process:
    """The worker: a process group of its own, so that Ctrl-C is ours to hand on, and nothing of it is left."""

    def __init__(self, command: Sequence[str], job: Job, lock: Lock) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(lock.file,),
        )
        self._heard: queue.Queue[WorkerEvent] = queue.Queue()
        self._reading = threading.Thread(target=self._read, name="worker", daemon=True)
        self._reading.start()
        self._write(msgspec.json.encode(job))

    def say(self, word: str) -> None:
        self._write(word.encode())

    def hear(self, timeout_s: float) -> WorkerEvent | None:
        try:
            return self._heard.get(timeout=timeout_s)
        except queue.Empty:
            # What it started may hold its end of the pipe open: only the process itself says that it is gone.
            return _GONE if self._process.poll() is not None else None

    def why(self) -> str:
        """How it ended, for people."""
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def end(self, timeout_s: float) -> None:
        """Let it end by itself within a time, and see that nothing of its group is left."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        self._reading.join(END_S)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it is gone, which reading tells

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._heard.put(msgspec.json.decode(line, type=WorkerEvent))
        self._heard.put(_GONE)

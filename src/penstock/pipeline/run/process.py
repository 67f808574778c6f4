"""A worker process as its supervisors have it, and the lines that pass between them on stdin and stdout."""

import fcntl
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec


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


# Orders; the job's file follows each.
START: Final = "start"  # begin, or begin again after a failure
STOP: Final = "stop"  # after the batch that runs now
KILL: Final = "kill"  # now

END_S: Final = 20.0  # a worker whose query is over has to close Spark
WORKER: Final = (sys.executable, "-m", "penstock.pipeline.run.worker")


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
    """The worker: a process group of its own, so that Ctrl-C is ours to hand on, and nothing of it is left."""

    def __init__(self, command: Sequence[str], jobs: Sequence[Job], files: Collection[int]) -> None:
        self.users: set[str] = set()  # files of jobs whose supervisors have it
        self.scratch = jobs[0].scratch
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=files,
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

"""A worker process as its supervisor has it, and what passes between the two: lines of JSON on stdin and stdout."""

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to run: the first line on its stdin. The rest are what `load_spec` takes."""

    file: str
    url: str = ""
    state: str = ""
    master: str = ""
    settings: tuple[str, ...] = ()
    once: bool | None = None
    change_sinks: bool = False  # of a batch that was begun, see `writers`
    epoch: int = 0  # of the state in an object store

    def overrides(self) -> dict[str, Any]:
        given = {"url": self.url, "state": self.state or None, "master": self.master}
        return given | {"settings": self.settings}


START: Final = "start"  # begin, or begin again after a failure
STOP: Final = "stop"  # after the batch that runs now
KILL: Final = "kill"  # now

END_S: Final = 20.0  # a worker whose query is over has to close Spark
WORKER: Final = (sys.executable, "-m", "penstock.pipeline.run.worker")


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the worker's: an event of the pipeline's, or a step of starting up that the supervisor may wait for."""

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

    def __init__(self, command: Sequence[str], job: Job, files: Collection[int]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            pass_fds=files,
        )
        self._received: queue.Queue[WorkerEvent] = queue.Queue()
        self._reading = threading.Thread(target=self._read, name="worker", daemon=True)
        self._reading.start()
        self._write(msgspec.json.encode(job))

    def send(self, word: str) -> None:
        self._write(word.encode())

    def receive(self, timeout_s: float) -> WorkerEvent | None:
        try:
            return self._received.get(timeout=timeout_s)
        except queue.Empty:
            # What it started may hold its end of the pipe open: only the process itself says that it is gone.
            return GONE if self._process.poll() is not None else None

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
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it is gone, which reading shows

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._received.put(msgspec.json.decode(line, type=WorkerEvent))
        self._received.put(GONE)

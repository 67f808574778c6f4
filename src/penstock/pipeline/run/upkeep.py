"""The maintenance of a running pipeline's tables: by a process beside the driver, started between batches.

A batch waits for nothing of it. Of a commit of the maintenance that comes before a batch's own, the batch's commit learns
as of any other writer's: it looks again, and commits behind it.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from penstock.pipeline.spec.spec import Spec

EVERY_S: Final = 300.0  # from one run's start to the next
VACUUM_S: Final = 86_400.0  # it lists every file
STOP_S: Final = 10.0


class Upkeep:
    """At most one process at a time, and none unless batches are written."""

    def __init__(
        self, spec: Spec, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tables = [sink.path for sink in spec.sinks.values() if sink.path and sink.compact]
        self._storage = spec.storage
        self._every_s = every_s
        self._clock = clock
        self._due = clock() + every_s
        self._vacuum_due = self._due
        self._process: subprocess.Popen[bytes] | None = None

    def batch_over(self) -> None:
        """Start the process if it is time, and the one before has ended."""
        now = self._clock()
        if not self._tables or now < self._due or (self._process and self._process.poll() is None):
            return
        self._due = now + self._every_s
        vacuum = now >= self._vacuum_due
        if vacuum:
            self._vacuum_due = now + VACUUM_S
        orders = [{"path": path, "storage": self._storage, "vacuum": vacuum} for path in self._tables]
        command = [sys.executable, "-m", "penstock.pipeline.lake.maintenance"]
        # The batch is written: it does not fail because the maintenance cannot be started.
        with suppress(OSError):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            assert self._process.stdin is not None
            with self._process.stdin as orders_to:
                orders_to.write(msgspec.json.encode(orders))

    def stop(self) -> None:
        """End a process that runs: what it has not committed, the next one does again."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

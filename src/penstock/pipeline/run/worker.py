"""The process that Spark lives in: `python -m penstock.pipeline.run.worker`, started by the supervisor.

It runs queries as commands on stdin say, and writes to stdout what becomes of them. When stdin ends, the supervisor is
gone: it stops after the current batch. What user code prints goes to stderr.
"""

import logging
import os
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

import msgspec

from penstock.model.errors import PenstockError
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec

from .backlog import is_short
from .folder import Folder
from .preflight import preflight
from .process import KILL, START, STOP, Job, WorkerEvent
from .state import folder_of

if TYPE_CHECKING:  # they import Spark and Arrow, which takes most of a second
    from .causes import Cause
    from .runner import Runner


class Worker:
    """One session, one query at a time."""

    def __init__(self, orders: IO[bytes], out: IO[bytes]) -> None:
        self._orders = orders
        self._out = out
        self._writing = threading.Lock()
        self._runner: Runner | None = None
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._spark: Any = None

    def run(self) -> int:
        """Until stdin ends or says stop; 0, or 1 where the last query failed."""
        job = msgspec.json.decode(self._orders.readline(), type=Job)
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        failed = False
        while True:
            self._started.wait()
            self._started.clear()
            if self._stopping.is_set():
                break
            failed = not self._once(job)
            if not failed:
                break
            if self._spark is not None and not self._alive():
                return 1  # a worker without a JVM is of no use: the supervisor starts another
        if self._spark is not None:
            self._spark.stop()
        return 1 if failed else 0

    def _once(self, job: Job) -> bool:
        planned = False
        try:
            spec = load_spec(job.file, **job.overrides())
            folder = folder_of(spec, epoch=job.epoch)
            owner = folder.check_owner(spec)
            once = spec.once if job.once is None else job.once
            from .early import check_early
            from .runner import Runner

            preflight(spec)
            if self._spark is None:
                check_early(spec)
            self._runner = Runner(spec, folder, self._session(spec, folder, once=once), self._tell)
            if self._stopping.is_set():
                self._say(WorkerEvent(over=True))
                return True
            self._say(WorkerEvent(waiting="the plan"))
            query = self._runner.start(owner, once=once, change_sinks=job.change_sinks)
            planned = True
            self._tell({"state": "running", "query": query})
            if self._stopping.is_set():
                self._runner.stop()
            cause = self._runner.wait()
        except Exception as error:
            from .causes import cause_of

            cause = cause_of(error)
        finally:
            self._runner = None
        if cause is None:
            self._say(WorkerEvent(over=True, planned=True))
        else:
            self._over(cause, planned)
        return cause is None

    def _session(self, spec: Spec, folder: Folder, *, once: bool) -> Any:
        if self._spark is None:
            from penstock.pipeline.session import session, short_run

            self._say(WorkerEvent(waiting="Spark"))
            conf = short_run(spec.spark) if once and is_short(spec, folder) else spec.spark
            self._spark = session(spec.name, spec.master, scratch=folder.scratch, **conf)
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark

    def _alive(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:
            return False

    def _over(self, cause: "Cause", planned: bool) -> None:
        self._say(
            WorkerEvent(
                over=True,
                error=cause.sentence,
                error_class=cause.kind.value,
                retried=cause.kind.retried,
                planned=planned,
            )
        )

    def _tell(self, event: dict[str, Any]) -> None:
        self._say(WorkerEvent(event=event))

    def _say(self, said: WorkerEvent) -> None:
        with self._writing:
            try:
                self._out.write(msgspec.json.encode(said) + b"\n")
                self._out.flush()
            except (OSError, ValueError):
                pass  # the supervisor is gone: stdin has ended too

    def _listen(self) -> None:
        for line in self._orders:
            word = line.strip().decode()
            if word == START:
                self._started.set()
            elif word == STOP:
                self._stop()
            elif word == KILL and self._runner is not None:
                self._runner.kill()
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._started.set()
        if self._runner is not None:
            self._runner.stop()


def main() -> int:
    """Keep stdout for events, and let everything else that prints write to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # PySpark logs the errors that it raises; they are said once, by us.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        return Worker(sys.stdin.buffer, out).run()
    except PenstockError as error:
        sys.stderr.write(f"penstock: {error.message}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())

"""The process that Spark lives in: `python -m penstock.pipeline.run.worker`, started by the supervisor.

It runs the queries of one or several jobs as orders on stdin say, and writes to stdout what becomes of them. When stdin ends,
the supervisor is gone: it stops after the current batches. What user code prints goes to stderr.
"""

import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from penstock.model.errors import PenstockError
from penstock.pipeline.spec.options import of_session
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec

from .folder import Folder
from .preflight import is_short, preflight
from .state import folder_of
from .supervise import KILL, STOP, Job, WorkerEvent

if TYPE_CHECKING:  # they import Spark and Arrow, which takes most of a second
    from .failures import Cause
    from .query import Runner


class Worker:
    """One Spark session, and for each job one query at a time."""

    def __init__(self, orders: IO[bytes], out: IO[bytes]) -> None:
        self._orders = orders
        self._out = out
        self._writing = threading.Lock()
        self._jobs: dict[str, _Pipeline] = {}
        self._java = threading.Lock()
        self._spark: Any = None
        self.planning = (
            threading.Lock()
        )  # one query at a time: Python's modules and Spark's active session are shared

    def run(self) -> int:
        """Run until stdin ends or every job is over; 0, or 1 if the last query of one failed."""
        for job in msgspec.json.decode(self._orders.readline(), type=list[Job]):
            self._jobs[job.file] = _Pipeline(self, job)
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        with ThreadPoolExecutor(len(self._jobs), "pipeline") as threads:
            good = list(threads.map(_Pipeline.run, self._jobs.values()))
        if self._spark is not None:
            self._spark.stop()
        return 0 if all(good) else 1

    def session(self, spec: Spec, folder: Folder, job: Job, *, once: bool) -> Any:
        """The session of all jobs, which the first one starts."""
        with self._java:
            if self._spark is None:
                from penstock.pipeline.session import session, short_run

                self.say(WorkerEvent(file=job.file, waiting="Spark"))
                if job.scratch:
                    # `spark.sql.…` is set in the session of each pipeline; all other settings are the same in all files.
                    conf = {name: text for name, text in spec.spark.items() if of_session(name)}
                    conf.setdefault("spark.scheduler.mode", "FAIR")
                    self._spark = session("penstock", spec.master, scratch=Path(job.scratch), **conf)
                else:
                    short = once and is_short(spec, folder)
                    conf = short_run(spec.spark) if short else spec.spark
                    self._spark = session(spec.name, spec.master, scratch=folder.scratch, **conf)
                self._spark.sparkContext.setLogLevel("ERROR")
            return self._spark

    def check_alive(self) -> None:
        """End this process if its JVM is gone: the supervisor starts another."""
        if self._spark is None:
            return
        try:
            gone = self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:
            gone = True
        if gone:
            os._exit(1)

    def say(self, said: WorkerEvent) -> None:
        with self._writing:
            try:
                self._out.write(msgspec.json.encode(said) + b"\n")
                self._out.flush()
            except (OSError, ValueError):
                pass  # the supervisor is gone: stdin has ended too

    def _listen(self) -> None:
        for line in self._orders:
            word, _, file = line.decode().rstrip("\n").partition(" ")
            self._jobs[file].order(word)
        for pipeline in self._jobs.values():
            pipeline.order(STOP)


class _Pipeline:
    """The queries of one job, one after the other."""

    def __init__(self, worker: Worker, job: Job) -> None:
        self._worker = worker
        self._job = job
        self._runner: Runner | None = None
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._checked = False

    def order(self, word: str) -> None:
        if word == STOP:
            self._stopping.set()
            if self._runner is not None:
                self._runner.stop()
        elif word == KILL and self._runner is not None:
            self._runner.kill()
        self._started.set()

    def run(self) -> bool:
        """Until a query is over or the order to stop comes; whether the last one did not fail."""
        good = True
        while True:
            self._started.wait()
            self._started.clear()
            if self._stopping.is_set():
                self._worker.say(WorkerEvent(file=self._job.file, over=True))
                return good
            good = self._once()
            if good:
                return True
            self._worker.check_alive()

    def _once(self) -> bool:
        job, planned = self._job, False
        try:
            spec = load_spec(job.file, **job.overrides())
            folder = folder_of(spec, epoch=job.epoch)
            owner = folder.check_owner(spec)
            once = spec.once if job.once is None else job.once
            from .query import Runner, check_early

            preflight(spec)
            if not self._checked:
                with self._worker.planning:
                    check_early(spec)
                self._checked = True
            spark = self._worker.session(spec, folder, job, once=once)
            with self._worker.planning:
                spark.sparkContext.setLocalProperty("spark.scheduler.pool", spec.name)
                self._runner = Runner(spec, folder, spark, self._tell)
                if self._stopping.is_set():
                    self._worker.say(WorkerEvent(file=job.file, over=True))
                    return True
                self._worker.say(WorkerEvent(file=job.file, waiting="the plan"))
                self._runner.start(owner, once=once, change_sinks=job.change_sinks)
            planned = True
            if self._stopping.is_set():
                self._runner.stop()
            cause = self._runner.wait()
        except Exception as error:
            from .failures import cause_of

            cause = cause_of(error)
        finally:
            self._runner = None
        if cause is None:
            self._worker.say(WorkerEvent(file=job.file, over=True, planned=True))
        else:
            self._over(cause, planned)
        return cause is None

    def _over(self, cause: "Cause", planned: bool) -> None:
        self._worker.say(
            WorkerEvent(
                file=self._job.file,
                over=True,
                error=cause.sentence,
                error_class=cause.kind.value,
                retried=cause.kind.retried,
                planned=planned,
            )
        )

    def _tell(self, event: dict[str, Any]) -> None:
        self._worker.say(WorkerEvent(file=self._job.file, event=event))


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

"""The thread that writes. It takes everything that waits and commits it together (group commit).

One hand-over to the thread per turn of the event loop, one wake-up of the loop per commit. While a commit is
on its way to the disk the next group gathers, so that groups grow with the load.
"""

import asyncio
import sqlite3
import threading
from collections import deque
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.statistics import Writes

from .connection import blames_surroundings, translate
from .disk import Disk
from .gil_yield import GilYield
from .tables import Tables
from .work import Append, Extent, ExtentChanges, Stop, Work, apply

GROUP_ENTRIES: Final = 1024  # bound a transaction, and with it the wait of those behind it
GROUP_BYTES: Final = 4 << 20
SWEEPS_MAX: Final = 32  # in a row, while the disk is full


class Writer:
    """The loop's side of the thread, and the thread.

    `extents` are the logs as readers may see them: they change when the appends that changed them complete, not before.
    """

    def __init__(self, disk: Disk, gil_yield: GilYield) -> None:
        self.extents: dict[int, Extent] = {}
        self.writes = Writes()
        self._disk = disk
        self._gil_yield = gil_yield
        self._loop = asyncio.get_running_loop()
        self._gathered: list[Work] = []
        self._inbox: SimpleQueue[list[Work]] = SimpleQueue()
        self._backlog: deque[Work] = deque()
        self._sweeps_fail = False  # until something is written again
        self._thread = threading.Thread(target=self._run, name="penstock-writer", daemon=True)
        self._opening = Work()

    def start(self) -> asyncio.Future[None]:
        """Open the file; completes when it is, or raises why it cannot be."""
        self._thread.start()
        return self._opening.future

    def submit(self, work: Work) -> None:
        """Hand `work` over, together with all that is submitted in this turn of the loop."""
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(work)

    def join(self) -> None:
        """Wait for the thread to end, after `Stop`."""
        self._thread.join()

    def _hand_over(self) -> None:
        self._gil_yield.asked(len(self._gathered))
        self.writes.received += len(self._gathered)
        self._inbox.put(self._gathered)
        self._gathered = []

    def _opened(self) -> None:
        if self._opening.future.cancelled() and self._opening.error is None:
            self._inbox.put([Stop()])
        self._opening.complete()

    def _complete(self, works: list[Work], changes: ExtentChanges) -> None:
        """The thread's report, on the loop."""
        self._gil_yield.answered(len(works))
        self.writes.answered += len(works)
        apply(changes, self.extents)
        for work in works:
            future = work.future
            if work.error is None and not future.done():
                future.set_result(work.result)
            else:
                work.complete()

    def _run(self) -> None:
        try:
            tables = self._disk.open()
        except Exception as error:
            reason = error.message if isinstance(error, PenstockError) else str(error)
            message = f"{self._disk.file} cannot be opened: {reason}"
            self._opening.error = PenstockError(ErrorKind.UNAVAILABLE, message)
            self._disk.report(self._opened)
            return
        self._disk.report(self._opened)
        while self._turn(tables):
            pass

    def _turn(self, tables: Tables) -> bool:
        """One commit, and one slice of sweeping; false when it was the last."""
        self._take(wait=self._sweeps_fail or not tables.sweeps.waiting)
        if self._disk.problem is not None:
            self._disk.probe(tables)
            self._make_room(tables)
            self._sweeps_fail &= self._disk.problem is not None
        works = self._group()
        if works and isinstance(works[0], Stop):
            self._close(tables, works[0])
            return False
        if works:
            began = perf_counter()
            if self._disk.problem is None:
                self._commit(tables, works)
                self._sweeps_fail &= self._disk.problem is not None
            else:
                self._commit_some(tables, works)
            self.writes.commits.observe(perf_counter() - began)
            self._disk.report(self._complete, works, tables.take_changed())
        if tables.sweeps.waiting and not self._sweeps_fail:
            self._sweep(tables)
            self._tend(tables)
        elif works:
            self._tend(tables)
        return True

    def _take(self, *, wait: bool) -> None:
        """Move submitted work to the backlog; wait for work if there is none."""
        try:
            if wait and not self._backlog:
                self._backlog.extend(self._inbox.get(timeout=self._disk.wait_s))
            while True:
                self._backlog.extend(self._inbox.get_nowait())
        except Empty:
            pass

    def _group(self) -> list[Work]:
        """The next works that may share a transaction."""
        works: list[Work] = []
        backlog = self._backlog
        entries = size = 0
        while backlog and entries < GROUP_ENTRIES and size < GROUP_BYTES:
            work = backlog[0]
            if type(work) is Append:
                if works and not works[0].mixes:
                    break
                entries += len(work.entries)
            else:
                if works and not (work.mixes and works[0].mixes) and work.kind is not works[0].kind:
                    break
                entries += 1
            works.append(backlog.popleft())
            size += work.size_bytes
        return works

    def _commit(self, tables: Tables, works: list[Work]) -> None:
        """Commit the group. If that fails, find the work that caused it, and commit the rest.

        If the disk is full, work that frees space or is small uses the reserve.
        """
        try:
            tables.commit(works)
        except Exception as error:
            tables.recover()
            if blames_surroundings(error):
                failure = self._disk.failed(tables, error, works)
                if failure.kind is ErrorKind.STORAGE_FULL:
                    self._commit_some(tables, works)
                    return
                for work in works:
                    work.error = failure
            elif len(works) > 1:
                for work in works:
                    self._commit(tables, [work])
            else:
                works[0].error = translate(error)

    def _commit_some(self, tables: Tables, works: list[Work]) -> None:
        """Commit what may use the reserve; the rest is refused."""
        spared = self._disk.admitted(tables, works)
        if spared:
            self._commit_spared(tables, spared)
        if self._disk.limited:
            self._disk.probe(tables, now=True)  # writes nothing, and only work done here frees space

    def _commit_spared(self, tables: Tables, works: list[Work]) -> None:
        try:
            with tables.reserve():
                tables.commit(works)
            self._sweeps_fail = False
        except Exception as error:
            tables.recover()
            if self._found_room(tables):
                self._commit_spared(tables, works)
                return
            if not blames_surroundings(error) and len(works) > 1:
                for work in works:
                    self._commit_spared(tables, [work])
                return
            blameless = blames_surroundings(error)
            failure = self._disk.failed(tables, error, works) if blameless else translate(error)
            for work in works:
                work.error = failure

    def _found_room(self, tables: Tables) -> bool:
        """Give the reserve to what failed on a full disk; the write-ahead log has room once it is moved."""
        released = self._disk.release()
        if released:
            tables.checkpoint()
        return released

    def _tend(self, tables: Tables) -> None:
        try:
            if tables.tend():
                self._disk.outgrown()
            self._disk.look_inside(tables)
        except Exception as error:
            tables.recover()
            self._disk.failed(tables, error, [])

    def _make_room(self, tables: Tables) -> None:
        """At the bound: free what may be freed before anything is refused for want of it."""
        for _ in range(SWEEPS_MAX):
            if not self._disk.limited or not tables.sweeps.waiting or self._sweeps_fail:
                return
            self._sweep(tables)

    def _sweep(self, tables: Tables) -> None:
        try:
            tables.sweep()
        except Exception as error:
            tables.recover()
            if blames_surroundings(error):
                self._disk.failed(tables, error, [])
            # Else try again after the next commit, or when the disk is well.
            self._sweeps_fail = not self._found_room(tables)
        if self._disk.limited:
            self._disk.probe(tables, now=True)

    def _close(self, tables: Tables, work: Work) -> None:
        try:
            tables.close()
        except sqlite3.Error as error:
            work.error = translate(error)
        self._disk.report(self._complete, [work], {})

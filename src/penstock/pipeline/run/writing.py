"""Writes the rows of a batch: tasks to all sinks at once, and the driver makes what they wrote visible.

A batch is one job of Spark's, whose last step is `write_rows`: it parts the rows of a task by sink and hands them to the
sinks' own writers, each in a thread, which stage messages or write files as they do for Spark. What each wrote comes
back as the job's result, from the attempts that won; the commits are made from it. So a batch is computed once, nothing
of it is kept, and nothing is seen of it before all of it is written. A sink that gets no rows is left alone.
"""

import pickle
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.datasource import WriterCommitMessage

from .failures import at_sink

RESULT: Final = "sink STRING, message BINARY"
_SCHEMA: Final = pa.schema([("sink", pa.string()), ("message", pa.binary())])
_WAITING_MAX: Final = 2  # batches of Arrow on their way to a sink's thread

Rows = Iterator[pa.RecordBatch]
Write = Callable[[Rows], WriterCommitMessage]


def row_writer(
    sinks: Mapping[str, tuple[Any, tuple[str, ...]]], places: Mapping[str, str]
) -> Callable[[Rows], Rows]:
    """For `mapInArrow`: a task's rows to each sink's writer, which takes those of its columns of structs.

    `places` name the sinks in what the task raises.
    """

    def write_rows(batches: Rows) -> Rows:
        lanes = {name: _Lane(writer.write, places[name]) for name, (writer, _) in sinks.items()}
        try:
            for batch in batches:
                for name, (_, columns) in sinks.items():
                    for column in columns:
                        rows = _rows(batch.column(column))
                        if rows.num_rows:
                            lanes[name].put(rows)
            found = {name: lane.finish() for name, lane in lanes.items()}
        except BaseException:
            for lane in lanes.values():
                lane.give_up()
            raise
        done = {name: pickle.dumps(message) for name, message in found.items() if message is not None}
        yield pa.RecordBatch.from_arrays(
            [pa.array(list(done), pa.string()), pa.array(list(done.values()), pa.binary())], schema=_SCHEMA
        )

    return write_rows


def commit(
    writers: Mapping[str, Any],
    found: list[Row],
    batch: int,
    nothing: Mapping[str, WriterCommitMessage],
    writing: Callable[[str], AbstractContextManager[None]],
) -> None:
    """Make visible what the tasks wrote, in all sinks at once; `nothing` is what those say that got no rows; `writing`
    is told of each sink.

    Raises the first error, when all are done: a sink that has the batch takes it for a repeat the next time.
    """
    messages: dict[str, list[WriterCommitMessage]] = {}
    for row in found:
        message = pickle.loads(row["message"])  # noqa: S301 - of our own tasks
        messages.setdefault(row["sink"], []).append(message)
    for name, message in nothing.items():
        messages.setdefault(name, [message])
    if not messages:
        return

    def one(name: str, said: list[WriterCommitMessage]) -> None:
        with writing(name):
            writers[name].commit(said, batch)

    with ThreadPoolExecutor(len(messages), "commit") as threads:
        done = [threads.submit(one, name, said) for name, said in messages.items()]
    for each in done:
        each.result()


def _rows(column: Any) -> pa.RecordBatch:
    """The structs that are there, as rows."""
    there = column if not column.null_count else column.filter(pc.is_valid(column))
    return pa.RecordBatch.from_struct_array(there)


class _Lane:
    """A sink's writer in its own thread, which begins with the first rows."""

    def __init__(self, write: Write, place: str) -> None:
        self._write = write
        self._place = place
        self._waiting: queue.Queue[pa.RecordBatch | None] = queue.Queue(_WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._message: WriterCommitMessage | None = None
        self._error: BaseException | None = None
        self._given_up = threading.Event()

    def put(self, rows: pa.RecordBatch | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="penstock-write", daemon=True)
            self._thread.start()
        while self._error is None and not self._given_up.is_set():
            with suppress(queue.Full):
                self._waiting.put(rows, timeout=0.1)
                return
        self._fail()

    def finish(self) -> WriterCommitMessage | None:
        """The result of the write; None without rows."""
        if self._thread is None:
            return None
        self.put(None)
        self._thread.join()
        self._fail()
        return self._message

    def give_up(self) -> None:
        """Let the writer fail, as its task does: it removes what it wrote."""
        self._given_up.set()
        if self._thread is not None:
            self._thread.join()

    def _fail(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            with at_sink(self._place):
                self._message = self._write(self._rows())
        except BaseException as error:
            self._error = error

    def _rows(self) -> Rows:
        while True:
            try:
                rows = self._waiting.get(timeout=0.1)
            except queue.Empty:
                if self._given_up.is_set():
                    raise RuntimeError("the task failed") from None
                continue
            if rows is None:
                return
            yield rows

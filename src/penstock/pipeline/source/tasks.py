"""The tasks of a query: how ranges of offsets are cut into them, and the rows of each.

A task fetches the raw entries of one range and decodes them where it runs. What it needs travels in its partition,
so that readers of batches and of streams share it. A range is fetched complete, in order, and again from where a
connection broke.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.decode.plan import Plan
from penstock.pipeline.decode.typed import VERSION, TypedRows
from penstock.pipeline.errors import DataLoss
from penstock.pipeline.http.entries import Entries, entries
from penstock.pipeline.http.retry import AWAY_S, Outage
from penstock.pipeline.rows.entries import Frame, read_frames
from penstock.pipeline.rows.rows import Place, decode

from .offsets import Range
from .options import Options

ATTEMPTS_MAX: Final = 6  # at what the server should not answer; Spark itself may retry the task after that
BACKOFF_S: Final = 0.1  # doubled each time


class Split(InputPartition):
    """One task: messages of a log's partition, and how they are decoded. Kinds differ in where they read from."""

    def __init__(self, place: Place, include: tuple[str, ...], plan: Plan | None) -> None:
        super().__init__(None)
        self.place = place
        self.include = include
        self.plan = plan

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The raw messages in the order of their offsets, each once."""
        raise NotImplementedError


class LogSplit(Split):
    """A range of offsets of a log."""

    def __init__(
        self,
        server: Access,
        wanted: Range,
        include: tuple[str, ...],
        *,
        fail_on_data_loss: bool,
        plan: Plan | None = None,
    ) -> None:
        place = Place(wanted.topic, wanted.partition, wanted.ledger, wanted.partitioned)
        super().__init__(place, include, plan)
        self.server = server
        self.wanted = wanted
        self.fail_on_data_loss = fail_on_data_loss

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The messages, fetched from the server."""
        frames = fetch(self.server, self.wanted, fail_on_data_loss=self.fail_on_data_loss)
        include = raw_include(self.include, self.plan)
        return decode(self.place, frames, self.wanted.start, self.wanted.end, include)


def splits_for(options: Options, ranges: Sequence[Range], plan: Plan | None = None) -> list[InputPartition]:
    """The tasks that read ranges of logs, cut alike each time."""
    pieces = split(ranges, rows_max=options.records_max, pieces_min=options.partitions_min)
    return [
        LogSplit(
            options.server, piece, options.include, fail_on_data_loss=options.fail_on_data_loss, plan=plan
        )
        for piece in pieces
    ]


def split(ranges: Sequence[Range], *, rows_max: int, pieces_min: int = 1) -> list[Range]:
    """Cut into pieces of at most `rows_max` messages, and into about `pieces_min` of them at least.

    The pieces of a range are of equal size (give or take one). There are fewer than `pieces_min` only where
    there are fewer messages. A pure function, so that a batch that is run again is cut alike.
    """
    total = sum(each.size for each in ranges)
    pieces: list[Range] = []
    for each in ranges:
        wanted = max(-(-each.size // rows_max), -(-each.size * pieces_min // total))
        wanted = min(wanted, each.size)
        cuts = [each.start + each.size * n // wanted for n in range(wanted + 1)]
        pieces += [
            Range(each.topic, each.partition, each.partitioned, each.ledger, start, end)
            for start, end in pairwise(cuts)
        ]
    return pieces


def read_split(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of one task, their values as the query's options want them.

    Spark makes a task without a range of its own where there is nothing to read.
    """
    if not isinstance(partition, Split):
        return
    if partition.plan is None:
        yield from partition.rows()
        return
    decoder = TypedRows(partition.plan, partition.place, keep_version=VERSION in partition.include)
    for batch in partition.rows():
        yield decoder.apply(batch)


def raw_include(include: tuple[str, ...], plan: Plan | None) -> tuple[str, ...]:
    """The further columns that decoding starts from: it needs each row's schema version."""
    return include if plan is None or VERSION in include else (*include, VERSION)


def fetch(
    server: Access,
    wanted: Range,
    *,
    fail_on_data_loss: bool = True,
    entries: Callable[..., AbstractContextManager[Entries]] = entries,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Frame]:
    """Yield the entries that hold `wanted`, each once; the first and the last may hold more.

    Raises DataLoss where offsets are missing or the topic was created again; without `fail_on_data_loss` what is
    there is read. Raises UNAVAILABLE and its like when the server is away for too long.
    """
    topic = TopicName.parse(wanted.topic)
    where = f"{wanted.topic}, partition {wanted.partition}"
    at = wanted.start
    retries = _Retries(clock)
    while at < wanted.end:
        before = at
        try:
            with entries(server, topic, wanted.partition, at, wanted.end) as stream:
                if stream.ledger != wanted.ledger:
                    if fail_on_data_loss:
                        raise DataLoss(
                            f"{where}: the topic was deleted and made anew since the query was planned"
                        )
                    return
                for frame in read_frames(stream.read):
                    end = frame.offset + frame.count
                    if at == wanted.start and frame.offset <= at < end:
                        pass  # only the first entry may begin before its range
                    elif frame.offset < at:
                        raise ValueError(f"{where}: the server sent offset {frame.offset} instead of {at}")
                    elif frame.offset > at and fail_on_data_loss and (stream.dense or at < stream.earliest):
                        raise DataLoss(f"{where}: offsets {at} to {frame.offset - 1} are gone")
                    at = end
                    yield frame
            if at >= wanted.end or (
                not stream.dense and stream.earliest <= at and stream.latest >= wanted.end
            ):
                retries.absence.over()
                return
            error: PenstockError = DataLoss(f"{where}: the log ends at {at}, before {wanted.end}")
        except ValueError as broken:
            error = PenstockError(ErrorKind.BAD_ENCODING, str(broken))
        except EOFError as broken:
            error = PenstockError(ErrorKind.UNAVAILABLE, f"{where}: {broken}")
        except PenstockError as refused:
            if not refused.retriable:
                raise
            error = refused
        try:
            wait_s = retries.wait_s(error, moved=at > before)
        except DataLoss:
            if fail_on_data_loss:
                raise
            return
        sleep(wait_s)


class _Retries:
    """How often, and for how long, a broken range is asked for again; the count begins again where it moved on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.absence = Outage(AWAY_S, clock)
        self._attempts = 0

    def wait_s(self, error: PenstockError, *, moved: bool) -> float:
        """How long to wait. Raises `error` when it was enough."""
        if moved:
            self._attempts = 0
            self.absence.over()
        if error.retriable:
            return self.absence.wait_s(error)
        self._attempts += not moved
        if self._attempts == ATTEMPTS_MAX:
            raise error
        return BACKOFF_S * 2.0**self._attempts

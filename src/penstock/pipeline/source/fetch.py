"""A range of a log, fetched: complete, in order, and continued after a broken connection."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DataLoss
from penstock.pipeline.http.entries import Entries, entries
from penstock.pipeline.http.retry import AWAY_S, Outage
from penstock.pipeline.rows.entries import Frame, read_frames

from .offsets import Range

ATTEMPTS_MAX: Final = 6  # at what the server should not answer; Spark itself may retry the task after that
BACKOFF_S: Final = 0.1  # doubled each time


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

    Raises DataLoss if offsets are missing or the topic was recreated; without `fail_on_data_loss` what is
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
            error = PenstockError(refused.kind, f"reading {where}, from offset {at}: {refused.message}")
        try:
            wait_s = retries.wait_s(error, moved=at > before)
        except DataLoss:
            if fail_on_data_loss:
                raise
            return
        sleep(wait_s)


class _Retries:
    """How often, and for how long, a broken range is asked for again; the count begins again after progress."""

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

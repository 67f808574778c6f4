"""What is staged and not committed, in numbers, and how much may be: in the store by writer, in memory by role."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.broker.settings import BrokerSettings
from penstock.engines.shared.batches import Batch, Stage
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StagedRun, StageKey

# Of one role, or of one address without authentication, lest one takes the room of all.
BATCHES_MAX: Final = 10_000
PIECES_MAX: Final = 2_000_000  # parts, and logs of stages: about 100 bytes of memory each


class Batches:
    """Everything that is staged, by writer and batch."""

    def __init__(self) -> None:
        self._by_writer: dict[str, dict[int, Batch]] = {}
        self._sizes: Counter[str] = Counter()  # by writer
        self._counts: Counter[str] = Counter()  # batches by origin
        self._pieces: Counter[str] = (
            Counter()
        )  # numbers in memory, by origin: one a part, one a log of a stage
        self.size_bytes = 0

    def __iter__(self) -> Iterator[tuple[str, int, Batch]]:
        for writer, batches in self._by_writer.items():
            for number, batch in batches.items():
                yield writer, number, batch

    def of(self, writer: str) -> dict[int, Batch]:
        """The batches of a writer."""
        return self._by_writer.get(writer, {})

    def size_of(self, writer: str) -> int:
        """How many bytes a writer has staged."""
        return self._sizes[writer]

    def count_of(self, origin: str) -> int:
        """How many batches are staged by the writers of one origin."""
        return self._counts[origin]

    def pieces_of(self, origin: str) -> int:
        """How many parts, and logs of stages, are staged by the writers of one origin."""
        return self._pieces[origin]

    def add(self, run: StagedRun, origin: str) -> None:
        """Count a part that was stored."""
        batches = self._by_writer.setdefault(run.key.writer, {})
        batch = batches.get(run.key.batch)
        if batch is None:
            batch = batches[run.key.batch] = Batch(origin)
            self._counts[origin] += 1
        stage = batch.stages.setdefault(run.key.stage, Stage())
        before = stage.pieces
        stage.add(run)
        self._pieces[batch.origin] += stage.pieces - before
        batch.at = max(batch.at, run.at)
        self._sizes[run.key.writer] += run.size_bytes
        self.size_bytes += run.size_bytes

    def drop(self, keys: Iterable[StageKey]) -> None:
        """Stages are gone."""
        for key in keys:
            batch = self.of(key.writer).get(key.batch)
            stage = None if batch is None else batch.stages.pop(key.stage, None)
            if batch is None or stage is None:
                continue
            self.size_bytes -= stage.size_bytes
            self._sizes[key.writer] -= stage.size_bytes
            self._pieces[batch.origin] -= stage.pieces
            if not batch.stages:
                self._forget(key.writer, key.batch, batch)

    def _forget(self, writer: str, number: int, batch: Batch) -> None:
        del self._by_writer[writer][number]
        self._counts[batch.origin] -= 1
        if not self._counts[batch.origin]:
            del self._counts[batch.origin], self._pieces[batch.origin]
        if not self._by_writer[writer]:
            del self._by_writer[writer], self._sizes[writer]


def check_room(batches: Batches, settings: BrokerSettings, key: StageKey, origin: str, size: int) -> None:
    """Raise TOO_MANY_REQUESTS, TOO_LARGE or STORAGE_FULL where `size` more bytes may not be staged."""
    new = key.batch not in batches.of(key.writer)
    if new and batches.count_of(origin) >= BATCHES_MAX:
        raise PenstockError(
            ErrorKind.TOO_MANY_REQUESTS, f"{BATCHES_MAX} batches are being staged by {origin or 'writers'}"
        )
    if batches.pieces_of(origin) >= PIECES_MAX:
        raise PenstockError(
            ErrorKind.TOO_MANY_REQUESTS, f"{PIECES_MAX} parts are being staged by {origin or 'writers'}"
        )
    held = batches.size_of(key.writer)
    if held + size > settings.max_staged_bytes_per_writer:
        raise PenstockError(
            ErrorKind.TOO_LARGE,
            f"writer {key.writer} has staged {held} bytes; broker.max_staged_bytes_per_writer is"
            f" {settings.max_staged_bytes_per_writer}",
        )
    if batches.size_bytes + size > settings.max_staged_bytes:
        raise PenstockError(
            ErrorKind.STORAGE_FULL,
            f"{batches.size_bytes} bytes are staged by all writers; broker.max_staged_bytes is"
            f" {settings.max_staged_bytes}",
        )

"""What is staged and not committed, in numbers, and how much may be: in the store by writer, in memory by role."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Expected
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Span, StagedRun, StageKey

Counts = dict[str, int]  # messages by topic; those of partitions count for their topic


# Of one role, or of one address without authentication, lest one takes the room of all.
BATCHES_MAX: Final = 10_000
PIECES_MAX: Final = 2_000_000  # parts, and logs of stages: about 100 bytes of memory each


class Share:
    """What a stage holds for one log."""

    __slots__ = ("ledger", "messages", "size_bytes", "topic")

    def __init__(self, ledger: int, topic: str) -> None:
        self.ledger = ledger
        self.topic = topic
        self.messages = 0
        self.size_bytes = 0


class Stage:
    """One stage: which parts have come, and what they hold for each log."""

    __slots__ = ("checksums", "shares")

    def __init__(self) -> None:
        self.checksums: dict[int, int] = {}  # by part
        self.shares: dict[int, Share] = {}  # by ledger

    def add(self, run: StagedRun) -> None:
        self.checksums[run.part] = run.checksum
        share = self.shares.get(run.ledger)
        if share is None:
            share = self.shares[run.ledger] = Share(run.ledger, run.topic)
        share.messages += run.messages
        share.size_bytes += run.size_bytes

    @property
    def size_bytes(self) -> int:
        return sum(share.size_bytes for share in self.shares.values())

    @property
    def pieces(self) -> int:
        """How many numbers of it are in memory."""
        return len(self.checksums) + len(self.shares)

    def counted(self, name: str) -> Expected:
        """The stage as a commit has to name it."""
        messages = sum(share.messages for share in self.shares.values())
        return Expected(name, len(self.checksums), messages, self.size_bytes)


class Batch:
    """The stages of one batch of a writer. `origin` is what its batches are counted by."""

    def __init__(self, origin: str = "") -> None:
        self.origin = origin
        self.stages: dict[str, Stage] = {}
        self.at = 0  # when the last part came, ms since the epoch

    @property
    def size_bytes(self) -> int:
        return sum(stage.size_bytes for stage in self.stages.values())

    @property
    def topics(self) -> set[str]:
        """The topics and partitions that something is staged for."""
        return {share.topic for stage in self.stages.values() for share in stage.shares.values()}

    def expected(self, name: str) -> Expected:
        """A stage as a commit has to name it; of one that is not there, nothing."""
        return self.stages.get(name, Stage()).counted(name)

    def won(self, stages: Sequence[Expected]) -> list[Share]:
        """What `stages` hold. Raises STAGE_NOT_FOUND, and STAGE_CONFLICT where one is not as it is said."""
        names = [each.stage for each in stages]
        if len(set(names)) < len(names):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, "a stage is named twice")
        for each in stages:
            if each.parts and each.stage not in self.stages:
                raise PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {each.stage}")
            found = self.expected(each.stage)
            if found != each:
                raise PenstockError(
                    ErrorKind.STAGE_CONFLICT,
                    f"stage {each.stage} has {found.parts} parts with {found.messages} messages,"
                    f" not {each.parts} with {each.messages}",
                )
        held = [self.stages[name] for name in names if name in self.stages]
        return [share for stage in held for share in stage.shares.values()]


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


def bases_of(topics: Iterable[str]) -> set[str]:
    """The topics that these topics and partitions are of."""
    return {str(TopicName.parse(topic).base) for topic in set(topics)}


def counts_of(found: Iterable[Share | Span]) -> Counts:
    """How many messages there are for each topic."""
    by_log: Counter[str] = Counter()
    for each in found:
        by_log[each.topic] += each.messages
    counts: Counter[str] = Counter()
    for topic, messages in by_log.items():
        counts[str(TopicName.parse(topic).base)] += messages
    return dict(counts)


def digest_of(stages: Sequence[Expected]) -> str:
    """What tells one request to commit from another: its stages, as they were counted."""
    return sha256(msgspec.json.encode(list(stages))).hexdigest()[:32]


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

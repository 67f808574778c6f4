"""Staged batches in numbers: which parts came, and what they hold for each topic."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from penstock.broker.staging import Expected, StagedBatch
from penstock.model.errors import ErrorKind, PenstockError


class Share(msgspec.Struct):
    """The staged entries of one log. `ledger` is 0 if the engine finds logs by their topics."""

    ledger: int
    topic: str
    messages: int = 0
    size_bytes: int = 0


class Stage:
    """One stage: which parts came, and what they hold for each log."""

    __slots__ = ("checksums", "differs", "shares")

    def __init__(self) -> None:
        self.checksums: dict[int, int] = {}  # by part
        self.shares: dict[int | str, Share] = {}  # by ledger, or by topic
        self.differs = False  # a part came a second time with other content

    def add(self, part: int, checksum: int, share: Share) -> None:
        """Count what a part holds for one log."""
        self.checksums[part] = checksum
        known = self.shares.setdefault(share.ledger or share.topic, Share(share.ledger, share.topic))
        known.messages += share.messages
        known.size_bytes += share.size_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of all entries."""
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

    def __init__(self, writer: str, number: int, origin: str = "") -> None:
        self.writer = writer
        self.number = number
        self.origin = origin
        self.stages: dict[str, Stage] = {}
        self.at = 0  # when the last part came, ms since the epoch

    def add_part(self, name: str, part: int, checksum: int, at: int, shares: Iterable[Share]) -> bool:
        """Count a part of a stage unless it came before; whether it was counted."""
        stage = self.stages.setdefault(name, Stage())
        known = stage.checksums.get(part)
        if known is not None:
            stage.differs |= known != checksum
            return False
        self.at = max(self.at, at)
        for share in shares:
            stage.add(part, checksum, share)
        return True

    def has_part(self, name: str, part: int, checksum: int) -> bool:
        """Whether a part came. Raises STAGE_CONFLICT if it came with other content."""
        known = self.stages[name].checksums.get(part) if name in self.stages else None
        if known is not None and known != checksum:
            raise PenstockError(
                ErrorKind.STAGE_CONFLICT, f"part {part} of stage {name} came before, and differs"
            )
        return known is not None

    @property
    def size_bytes(self) -> int:
        """Bytes of all stages."""
        return sum(stage.size_bytes for stage in self.stages.values())

    @property
    def topics(self) -> set[str]:
        """The topics and partitions that something is staged for."""
        return {share.topic for stage in self.stages.values() for share in stage.shares.values()}

    def expected(self, name: str) -> Expected:
        """A stage as a commit has to name it; zeros if it is not there."""
        return self.stages.get(name, Stage()).counted(name)

    def shown(self) -> StagedBatch:
        """The stages as a commit has to name them."""
        return StagedBatch(self.at, [self.expected(name) for name in self.stages])

    def won(self, stages: Sequence[Expected]) -> list[Share]:
        """What `stages` hold. Raises STAGE_NOT_FOUND, and STAGE_CONFLICT unless each is as it was counted."""
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
        if any(stage.differs for stage in held):
            raise PenstockError(ErrorKind.STAGE_CONFLICT, "a part of a stage came twice, and differs")
        return [share for stage in held for share in stage.shares.values()]


B = TypeVar("B", bound=Batch)  # as an engine extends it


def outline_of(batches: Mapping[int, Batch]) -> tuple[dict[int, StagedBatch], int]:
    """The batches that have stages, as commits have to name them, and their size in bytes."""
    held = {number: batch for number, batch in sorted(batches.items()) if batch.stages}
    shown = {number: batch.shown() for number, batch in held.items()}
    return shown, sum(batch.size_bytes for batch in held.values())

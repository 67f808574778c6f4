"""What is staged for one batch, in numbers."""

from collections.abc import Sequence

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StagedRun


class Expected(msgspec.Struct, frozen=True):
    """A stage as its writer counted it: a commit takes it as it was meant, or not at all."""

    stage: str
    parts: int
    messages: int
    size_bytes: int


class Batch:
    """The stages of one batch of a writer."""

    def __init__(self) -> None:
        self.stages: dict[str, list[StagedRun]] = {}
        self.topics: set[str] = set()
        self._checksums: dict[tuple[str, int], int] = {}
        self.size_bytes = 0
        self.at = 0  # when the last part came, ms since the epoch

    def add(self, run: StagedRun) -> None:
        self.stages.setdefault(run.key.stage, []).append(run)
        self.topics.add(run.topic)
        self._checksums[run.key.stage, run.part] = run.checksum
        self.size_bytes += run.size_bytes
        self.at = max(self.at, run.at)

    def drop(self, stage: str) -> None:
        """Forget a stage."""
        runs = self.stages.pop(stage)
        self.size_bytes -= sum(run.size_bytes for run in runs)
        for run in runs:
            self._checksums.pop((stage, run.part), None)

    def checksum(self, stage: str, part: int) -> int | None:
        """The checksum of a part, None where it has not come."""
        return self._checksums.get((stage, part))

    def parts(self, stage: str) -> int:
        """How many parts of a stage have come."""
        return len({run.part for run in self.stages.get(stage, ())})

    def expected(self, stage: str) -> Expected:
        """A stage as it is."""
        runs = self.stages.get(stage, ())
        return Expected(
            stage, self.parts(stage), sum(r.messages for r in runs), sum(r.size_bytes for r in runs)
        )

    def won(self, stages: Sequence[Expected]) -> list[StagedRun]:
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
        return [run for name in names for run in self.stages.get(name, ())]

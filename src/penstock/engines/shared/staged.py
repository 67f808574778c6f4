"""What is staged, and what of it a request means: in every engine the same."""

from collections.abc import Iterable, Sequence

import msgspec

from penstock.broker.staging import Caller, Expected
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StagedRun, StageKey, Target, Targets

from .batches import Batch, Share, Stage, check_kept, check_same, counts_of, digest_of

Runs = list[tuple[str, Sequence[NewEntry]]]


class StagedParts:
    """`broker.StagedBatch` of an engine that reads what is staged: the parts of a batch as they came, each maybe more than once."""

    def __init__(self, key: tuple[str, int]) -> None:
        self.batch = Batch()
        self.conflicts: set[str] = set()  # stages of which a part came again with other content
        self._key = key
        self._logs: dict[str, int] = {}  # topics by number

    @property
    def at(self) -> int:
        return self.batch.at

    @property
    def stages(self) -> Sequence[str]:
        return list(self.batch.stages)

    def expected(self, name: str) -> Expected:
        return self.batch.expected(name)

    def won(self, stages: Sequence[Expected]) -> list[Share]:
        """What `stages` hold. Raises as `Batch.won`."""
        shares = self.batch.won(stages)
        for each in stages:
            if each.stage in self.conflicts:
                raise PenstockError(
                    ErrorKind.STAGE_CONFLICT, f"a part of stage {each.stage} came twice, and differs"
                )
        return shares

    def run_of(
        self, stage: str, part: int, checksum: int, at: int, topic: str, messages: int, size: int
    ) -> StagedRun:
        """What a part holds for a topic."""
        log = self._logs.setdefault(topic, len(self._logs))
        return StagedRun(StageKey(*self._key, stage), part, checksum, at, log, topic, messages, size)

    def add_part(self, name: str, number: int, checksum: int, at: int, runs: Iterable[StagedRun]) -> bool:
        """A part came whole; whether it is the first of its number, which counts."""
        stage = self.batch.stages.setdefault(name, Stage())
        known = stage.checksums.get(number)
        if known is not None:
            if known != checksum:
                self.conflicts.add(name)
            return False
        self.batch.at = max(self.batch.at, at)
        for run in runs:
            stage.add(run)
        return True


def runs_of(entries: Sequence[tuple[Topic, Sequence[NewEntry]]]) -> Runs:
    """The entries of a part by their topics, which are checked. Raises BAD_PARAMETER, and what a topic refuses."""
    for topic, _ in entries:
        check_kept(topic.name)
        topic.check_open()
    return [(str(topic.name), run) for topic, run in entries if run]


def repeated(
    last: Commit, targets: Targets, held: Batch | StagedParts, stages: Sequence[Expected]
) -> tuple[Commit, list[str]]:
    """The last commit once more: itself, where nothing is to be stored, and which stages are there, which go with it.

    Raises BATCH_CONFLICT where something else is staged.
    """
    there = [each.stage for each in stages if each.stage in held.stages]
    # The stages of a commit, or of a repeat, are gone with it: the same request again finds none of them.
    digest = digest_of(stages)
    if there or digest != last.stages:
        check_same(last, targets, counts_of(held.won(stages)))
        last = msgspec.structs.replace(last, stages=digest)
    return last, there


def to_abort(
    writer: str, batch: int, held: Batch, stage: str | None, targets: Iterable[Target], caller: Caller
) -> list[str]:
    """The stages that an abort drops. Raises STAGE_CONFLICT where they were committed, and FORBIDDEN."""
    names = [name for name in held.stages if stage in (None, name)]
    if not names and any(target.batch >= batch for target in targets):
        raise PenstockError(ErrorKind.STAGE_CONFLICT, f"batch {batch} of {writer} is committed")
    for topic in sorted(held.topics) if names else ():
        caller.may_produce(TopicName.parse(topic))
    return names


def no_writer(writer: str) -> PenstockError:
    """The error of a writer that is not known."""
    return PenstockError(ErrorKind.NOT_FOUND, f"there is no writer {writer}")


def still_staging(writer: str, batches: int, size_bytes: int) -> PenstockError:
    """The error of a writer that cannot be forgotten yet."""
    return PenstockError(
        ErrorKind.STAGE_CONFLICT,
        f"writer {writer} is staging {batches} batches ({size_bytes} bytes); abort them first",
    )

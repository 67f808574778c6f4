"""Staged publishing: what writers have staged, and its commit (DESIGN, decision 8).

A writer's batches are committed in the order of their numbers, each once. What is staged costs room in the store
and a few numbers here; it goes with a commit, an abort, or after `stage_timeout_ms` without a further part.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StagedRun, StageKey, StageRun

from .locks import Locks
from .ports import Clock, Store, Timer
from .settings import BrokerSettings
from .staged import Batch, Expected
from .tasks import finished
from .topic import Topic
from .topics import Topics

WRITERS_MAX: Final = 100_000  # whose last commits are kept, in memory too
BATCHES_MAX: Final = 10_000  # of all writers, each with a stage a task: numbers of them are kept in memory

_BatchKey = tuple[str, int]
MayProduce = Callable[[TopicName], None]


class Staging:
    """The stages and commits of all writers. `spawn` starts a task that lives on."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        clock: Clock,
        settings: BrokerSettings,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._settings = settings
        self._spawn = spawn
        self._batches: dict[_BatchKey, Batch] = {}
        self._commits: dict[str, Commit] = {}
        self._locks: Locks[str] = Locks()
        self._sweep: Timer | None = None

    async def load(self) -> None:
        """Read what a server before this one left."""
        runs, commits = await self._store.load_stages()
        for run in runs:
            self._batch(run.key).add(run)
        self._commits = {commit.writer: commit for commit in commits}
        self._expect_sweep()

    def close(self) -> None:
        """Sweep no more; what is staged stays for the next start."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    # -- what there is

    def last(self, writer: str) -> Commit | None:
        """A writer's last commit, None before the first."""
        return self._commits.get(writer)

    def batches(self, writer: str) -> Mapping[int, Batch]:
        """What a writer has staged, by batch."""
        return {batch: held for (name, batch), held in sorted(self._batches.items()) if name == writer}

    def committed(self, writer: str, batch: int) -> Commit | None:
        """The writer's last commit where it covers `batch`: a repeat of that has nothing to do."""
        last = self._commits.get(writer)
        return last if last is not None and last.batch >= batch else None

    @property
    def size_bytes(self) -> int:
        """How much is staged, by all writers."""
        return sum(batch.size_bytes for batch in self._batches.values())

    # -- staging

    async def stage(
        self, key: StageKey, part: int, checksum: int, entries: Sequence[tuple[Topic, Sequence[NewEntry]]]
    ) -> Commit | None:
        """Stage a part durably; again, where it has come before, without effect.

        Returns the writer's last commit where that covers the batch: then nothing was staged. Raises
        STAGE_CONFLICT for other content under the same number, TOO_LARGE and STORAGE_FULL beyond the bounds,
        BAD_PARAMETER for a topic that keeps nothing, and what the store raises.
        """
        for topic, _ in entries:
            _check_kept(topic)
            topic.check_open()
        async with self._locks.hold(f"{key.writer}\0{key.batch}\0{key.stage}"):
            done = self.committed(key.writer, key.batch)
            if done is not None:
                return done
            held = self._batches.get((key.writer, key.batch))
            known = None if held is None else held.checksum(key.stage, part)
            if known is not None:
                if known != checksum:
                    raise PenstockError(
                        ErrorKind.STAGE_CONFLICT, f"part {part} of stage {key.stage} came before, and differs"
                    )
                return None
            self._check_room(key.writer, sum(len(e.data) for _, run in entries for e in run))
            now = self._clock.now_ms()
            runs = [StageRun(topic.ledger, str(topic.name), run) for topic, run in entries if run]
            await finished(self._store.stage(key, part, checksum, now, runs))
            batch = self._batch(key)
            for run in runs:
                batch.add(_told(key, part, checksum, now, run))
        done = self.committed(key.writer, key.batch)
        if done is not None:  # meanwhile, without this stage
            await self._drop([(key.writer, key.batch)])
        self._expect_sweep()
        return done

    def _check_room(self, writer: str, size: int) -> None:
        if len(self._batches) >= BATCHES_MAX:
            raise PenstockError(ErrorKind.TOO_MANY_REQUESTS, f"{BATCHES_MAX} batches are being staged")
        held = sum(batch.size_bytes for (name, _), batch in self._batches.items() if name == writer)
        if held + size > self._settings.max_staged_bytes_per_writer:
            raise PenstockError(
                ErrorKind.TOO_LARGE,
                f"writer {writer} has staged {held} bytes; broker.max_staged_bytes_per_writer is"
                f" {self._settings.max_staged_bytes_per_writer}",
            )
        if self.size_bytes + size > self._settings.max_staged_bytes:
            raise PenstockError(
                ErrorKind.STORAGE_FULL,
                f"{self.size_bytes} bytes are staged by all writers; broker.max_staged_bytes is"
                f" {self._settings.max_staged_bytes}",
            )

    # -- committing

    async def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        *,
        may_produce: MayProduce,
        owner: str = "",
        keep: bool = True,
    ) -> tuple[Commit, bool]:
        """Append what the stages hold to their topics, in one transaction; whether it was this call that did.

        A batch that the writer has committed, or one before it, changes nothing and returns the last commit.
        Raises STAGE_NOT_FOUND and STAGE_CONFLICT where it is not as `stages` say, FORBIDDEN for what
        `may_produce` refuses and for another's writer, TOPIC_NOT_FOUND, TOPIC_TERMINATED, PRODUCER_BUSY,
        BACKLOG_QUOTA_HOLD, BACKLOG_QUOTA_EXCEPTION, and what the store raises; then nothing has changed.
        """
        async with self._locks.hold(writer):
            self._check_owner(writer, owner)
            done = self.committed(writer, batch)
            if done is not None:
                return done, False
            if writer not in self._commits and len(self._commits) >= WRITERS_MAX:
                raise PenstockError(
                    ErrorKind.TOO_MANY_REQUESTS, f"the last commits of {WRITERS_MAX} writers are kept"
                )
            held = self._batches.get((writer, batch)) or Batch()
            won = held.won(stages)
            topics: dict[int, Topic] = {}
            for run in won:
                if run.ledger not in topics:
                    topics[run.ledger] = await self._topic(run, may_produce)
            names = [each.stage for each in stages if held.parts(each.stage)]
            commit = Commit(writer, batch, self._clock.now_ms(), owner, keep)
            made = await finished(self._store.commit_stages(commit, names))
            self._commits[writer] = made
            for span in made.spans:
                topics[span.ledger].committed(span)
            for key in [k for k in self._batches if k[0] == writer and k[1] <= batch]:
                del self._batches[key]
        self._expect_sweep()
        return made, True

    def _check_owner(self, writer: str, owner: str) -> None:
        last = self._commits.get(writer)
        if last is not None and last.owner and owner and last.owner != owner:
            raise PenstockError(ErrorKind.FORBIDDEN, f"writer {writer} is another role's")

    async def _topic(self, run: StagedRun, may_produce: MayProduce) -> Topic:
        name = TopicName.parse(run.topic)
        may_produce(name)
        topic = await self._topics.get(name, create=False)
        if topic.ledger != run.ledger:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was made anew since it was staged for")
        topic.check_open()
        topic.access.check_shared()
        if not topic.backlog.surely_room:
            await topic.backlog.admit()
            topic.check_open()
        return topic

    async def abort(
        self, writer: str, batch: int, stage: str | None = None, *, may_produce: MayProduce, owner: str = ""
    ) -> int:
        """Drop what is staged for a batch, or one stage of it; returns how many stages that were.

        Raises STAGE_CONFLICT where the batch is committed: that is never undone. Raises FORBIDDEN.
        """
        async with self._locks.hold(writer):
            self._check_owner(writer, owner)
            if self.committed(writer, batch) is not None:
                raise PenstockError(ErrorKind.STAGE_CONFLICT, f"batch {batch} of {writer} is committed")
            held = self._batches.get((writer, batch))
            if held is None:
                return 0
            for topic in sorted(held.topics):
                may_produce(TopicName.parse(topic))
            if stage is None:
                return await self._drop([(writer, batch)])
            if stage not in held.stages:
                return 0
            await self._store.drop_stages([StageKey(writer, batch, stage)])
            held.drop(stage)
            if not held.stages:
                del self._batches[writer, batch]
            return 1

    async def _drop(self, batches: Sequence[_BatchKey]) -> int:
        held = [(key, self._batches[key]) for key in batches if key in self._batches]
        keys = [StageKey(*key, stage) for key, batch in held for stage in batch.stages]
        await self._store.drop_stages(keys)
        for key in batches:
            self._batches.pop(key, None)
        return len(keys)

    # -- what was left behind

    def _expect_sweep(self) -> None:
        """Look again when the first of what is staged, or of the commits not to be kept, may be over."""
        if self._sweep is not None or not (self._batches or not all(c.keep for c in self._commits.values())):
            return
        times = [batch.at for batch in self._batches.values()]
        times += [commit.at for commit in self._commits.values() if not commit.keep]
        wait = min(times) + self._settings.stage_timeout_ms - self._clock.now_ms()
        self._sweep = self._clock.call_later(max(1, wait), self._look)

    def _look(self) -> None:
        self._sweep = None
        self._spawn(self._sweep_out(), "sweep stages")

    async def _sweep_out(self) -> None:
        before = self._clock.now_ms() - self._settings.stage_timeout_ms
        for key in [key for key, batch in self._batches.items() if batch.at <= before]:
            async with self._locks.hold(key[0]):
                held = self._batches.get(key)
                if held is not None and held.at <= before:
                    await self._drop([key])
        over = [c.writer for c in self._commits.values() if not c.keep and c.at <= before]
        await self._store.forget_commits(over)
        for writer in over:
            self._commits.pop(writer, None)
        self._expect_sweep()

    def _batch(self, key: StageKey) -> Batch:
        return self._batches.setdefault((key.writer, key.batch), Batch())


def _check_kept(topic: Topic) -> None:
    if not topic.name.persistent:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{topic.name} keeps nothing: it cannot be staged for")


def _told(key: StageKey, part: int, checksum: int, at: int, run: StageRun) -> StagedRun:
    messages = sum(entry.count for entry in run.entries)
    size = sum(len(entry.data) for entry in run.entries)
    return StagedRun(key, part, checksum, at, run.ledger, run.topic, messages, size)

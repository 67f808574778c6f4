"""The writers of staged batches: whose they are, and the logs of those that this process has."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from penstock.broker.staging import Expected
from penstock.client.entries.transactions import Transactions
from penstock.client.errors import ProducerFenced, PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.staging.ports import Interrupted, Over
from penstock.engines.staging.writers import Claimed
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Target, Targets, Writer
from penstock.runtime.clock import Clock

from .committing import Committing
from .log import WriterLog, read_log
from .part_writers import in_engine_words
from .parts import Staged
from .records import Committed, Forgot, Opened
from .space import StagingSpace

IDLE_MS: Final = 60_000  # then a log is left
TRUSTED_MS: Final = 60_000  # how long it is known whose a writer is
KNOWN_MAX: Final = 10_000


class PulsarWriters:
    """`staging.Writers`: each writer has a log, which says who it is and what it committed."""

    touch_ms = 0

    def __init__(
        self,
        space: StagingSpace,
        transactions: Transactions,
        committing: Committing,
        topics: PulsarTopics,
        clock: Clock,
    ) -> None:
        self._space = space
        self._transactions = transactions
        self._committing = committing
        self._topics = topics
        self._clock = clock
        self._logs: dict[str, WriterLog] = {}
        self._busy: set[str] = set()
        self._known: OrderedDict[str, tuple[int, Writer]] = OrderedDict()

    async def start(self) -> None: ...

    @asynccontextmanager
    async def open(self, name: str, size_bytes: int) -> AsyncIterator["PulsarSession"]:
        self._busy.add(name)
        try:
            session = PulsarSession(await self._open(name), self._committing, self._topics)
            yield session
            if session.writer is not None:
                self._remember(session.writer)
            if session.removed:
                self._known.pop(name, None)
                await self._leave(name)
                await self._space.delete(self._space.log_of(name), force=True)
        except (PulsarException, Interrupted) as error:
            await self._leave(name)
            raise _refusal(name, error) from None
        finally:
            self._busy.discard(name)

    async def _open(self, writer: str) -> WriterLog:
        log = self._logs.get(writer)
        if log is not None and not log.ended:
            # Nobody tells a process that it was fenced off. What is appended shows that it has the log still.
            await log.append(Opened())
        else:
            await self._leave(writer)
            log = WriterLog(self._space, writer, self._transactions, self._clock)
            try:
                await log.open()
            except BaseException:
                await log.close()
                raise
            self._logs[writer] = log
        log.used_ms = self._clock.monotonic_ms()
        return log

    async def _leave(self, writer: str) -> None:
        """Let other processes have a writer."""
        log = self._logs.pop(writer, None)
        if log is not None:
            await log.close()

    # -- what there is

    async def recall(self, name: str) -> Writer | None:
        at, known = self._known.get(name, (0, None))
        if known is None or self._clock.monotonic_ms() - at >= TRUSTED_MS:
            found = await self.find(name)
            if found is None:
                return None
            known = found[0]
            self._remember(known)
        return known

    def _remember(self, writer: Writer) -> None:
        self._known[writer.name] = self._clock.monotonic_ms(), writer
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    @in_engine_words()
    async def find(self, name: str) -> tuple[Writer, Sequence[Target]] | None:
        state = await read_log(self._space, name)
        return None if state is None or not state.exists else (state.writer, state.targets)

    async def listed(
        self, after: str, owner: str | None, writers_max: int
    ) -> AsyncIterator[tuple[Writer, Sequence[Target]]]:
        for name in await self._space.writers():
            found = await self.find(name) if name > after else None
            if found is not None and owner in (None, found[0].owner):
                yield found

    async def idle(self) -> Sequence[Writer]:
        return []  # the cluster deletes logs that nothing is to be kept of

    # -- the end

    async def sweep(self) -> None:
        before = self._clock.monotonic_ms() - IDLE_MS
        for writer, log in list(self._logs.items()):
            if writer not in self._busy and (log.ended or log.used_ms < before):
                await self._leave(writer)

    async def close(self) -> None:
        await asyncio.gather(*map(self._leave, list(self._logs)))


class PulsarSession:
    """`staging.Session` on a writer's log. A process that lost the log cannot append to it."""

    def __init__(self, log: WriterLog, committing: Committing, topics: PulsarTopics) -> None:
        self.removed = False
        self._log = log
        self._committing = committing
        self._topics = topics

    @property
    def writer(self) -> Writer | None:
        return self._log.state.writer if self._log.state.exists else None

    async def last(self, targets: Targets) -> Commit | None:
        return self._log.state.commits.get(targets)

    async def targets(self) -> Sequence[Target]:
        return self._log.state.targets

    async def claim(self, writer: Writer) -> None:
        await self._log.append(Claimed(writer.owner, writer.origin, writer.at))

    async def admit(self, name: TopicName, ledger: int) -> None:
        await self._topics.learn(name)  # another process may have staged for it
        (await self._topics.get(name, create=False)).check_open()

    async def append(
        self,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        over: Over[Staged],
        tried: list[Commit],
    ) -> Commit:
        return await self._committing.append(self._log, wanted, held, stages, tried)

    async def repeat(self, commit: Commit, over: Over[Staged]) -> None:
        await self._log.append(Committed(commit))

    async def ledger_of(self, name: TopicName) -> int | None:
        await self._topics.get(name, create=False)
        return None

    async def forget(self, targets: Targets | None) -> bool:
        if targets is None:
            self.removed = True
        elif targets in self._log.state.commits:
            await self._log.append(Forgot(targets))
        else:
            return False
        return True


def _refusal(writer: str, error: PulsarException | Interrupted) -> Interrupted:
    """Why nothing could be done with a log. To try again later is what helps where others are at it."""
    if isinstance(error, Interrupted):
        return error
    if isinstance(error, ProducerFenced):
        return Interrupted(
            ErrorKind.UNAVAILABLE, f"other processes work for writer {writer} at the same time"
        )
    refusal = engine_error(error)
    if refusal.kind is ErrorKind.INTERNAL:  # what coordinators say
        return Interrupted(ErrorKind.UNAVAILABLE, f"the transaction failed: {refusal.message}")
    return Interrupted(refusal.kind, refusal.message)

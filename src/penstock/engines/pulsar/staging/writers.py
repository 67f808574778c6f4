"""Staged publishing over the cluster's transactions (docs/decisions/0062): the writers, and what they commit.

Stages are in topics that no client reads. A commit copies them to their topics in one transaction, with a record
in the log of the writer: so the record says whether the batch is there, whatever ends when.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from penstock.broker.staging import Expected
from penstock.client.aio.context import Context
from penstock.client.entries.transactions import TransactionId, Transactions
from penstock.client.errors import ProducerFenced, PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.staging.commits import counts_of
from penstock.engines.staging.ports import Interrupted, Over
from penstock.engines.staging.staging import Staging
from penstock.engines.staging.writers import Claimed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Target, Targets, Writer
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .copying import Copying
from .log import Began, Committed, Forgot, Opened, WriterLog, read_log
from .parts import PulsarParts, Staged, in_engine_words
from .space import StagingSpace

IDLE_MS: Final = 60_000  # then a log is left
SWEEP_MS: Final = 5_000
# While a transaction is open, readers of its topics see nothing behind its first entry: it is as short as its size allows.
TRANSACTION_MS: Final = 60_000
BYTES_PER_MS: Final = 1000
ABORT_S: Final = 5.0  # for an answer; the next commit of the writer asks again
TRUSTED_MS: Final = 60_000  # how long it is known whose a writer is
KNOWN_MAX: Final = 10_000


logger = logging.getLogger(__name__)


def open_staging(
    space: StagingSpace,
    topics: PulsarTopics,
    schemas: Schemas,
    context: Callable[[], Context],
    clock: Clock,
    tasks: Tasks,
) -> Staging[Staged]:
    """Staging of a server; `context` as in `PulsarWriters`."""
    writers = PulsarWriters(space, topics, schemas, context, clock)
    # The cluster deletes uncommitted stages.
    return Staging(PulsarParts(space, clock), writers, clock, tasks, timeout_ms=0, sweep_ms=SWEEP_MS)


class PulsarWriters:
    """`staging.Writers`: each writer has a log with its identity and its commits."""

    touch_ms = 0

    def __init__(
        self,
        space: StagingSpace,
        topics: PulsarTopics,
        schemas: Schemas,
        context: Callable[[], Context],
        clock: Clock,
    ) -> None:
        """`context` has the connections for the caller that is served."""
        self.space = space
        self.topics = topics
        self.transactions = Transactions(space.cluster.context)
        self._schemas = schemas
        self._context = context
        self._clock = clock
        self._logs: dict[str, WriterLog] = {}
        self._busy: set[str] = set()
        self._known: OrderedDict[str, tuple[int, Writer]] = OrderedDict()

    async def start(self) -> None: ...

    @asynccontextmanager
    async def open(self, name: str, size_bytes: int) -> AsyncIterator["PulsarSession"]:
        self._busy.add(name)
        try:
            session = PulsarSession(self, await self._open(name))
            yield session
            if session.writer is not None:
                self._remember(session.writer)
            if session.removed:
                self._known.pop(name, None)
                await self._leave(name)
                await self.space.delete(self.space.log_of(name), force=True)
        except (PulsarException, Interrupted) as error:
            await self._leave(name)
            raise _refusal(name, error) from None
        finally:
            self._busy.discard(name)

    async def _open(self, writer: str) -> WriterLog:
        log = self._logs.get(writer)
        if log is not None and not log.ended:
            # A process is not notified when it is fenced off. A successful append shows that it still has the log.
            await log.append(Opened())
        else:
            await self._leave(writer)
            log = WriterLog(self.space, writer, self.transactions, self._clock)
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

    async def copy(
        self,
        wanted: Commit,
        held: Staged,
        stages: Collection[str],
        names: Sequence[TopicName],
        transaction: TransactionId,
    ) -> tuple[Span, ...]:
        """Send what the stages hold. Errors are of the topics: trying again at once would not help."""
        attempts = {attempt for attempt, stage in held.attempts.items() if stage in stages}
        numbered = self.space.cluster.numbered
        copying = Copying(self._context(), self._schemas, transaction, numbered=numbered)
        try:
            await copying.open(names)
            batch = self.space.batch_of(wanted.writer, wanted.batch)
            await copying.copy(self.space, batch, attempts, wanted.at)
            return tuple(copying.spans)
        finally:
            await copying.close()

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
        state = await read_log(self.space, name)
        return (state.writer, state.targets) if state.exists else None

    async def listed(
        self, after: str, owner: str | None, writers_max: int
    ) -> AsyncIterator[tuple[Writer, Sequence[Target]]]:
        for name in await self.space.writers():
            found = await self.find(name) if name > after else None
            if found is not None and owner in (None, found[0].owner):
                yield found

    async def idle(self) -> Sequence[Writer]:
        return []  # the cluster deletes logs without a lasting commit

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

    def __init__(self, writers: PulsarWriters, log: WriterLog) -> None:
        self.removed = False
        self._writers = writers
        self._log = log

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
        await self._writers.topics.learn(name)  # another process may have staged for it
        (await self._writers.topics.get(name, create=False)).check_open()

    async def append(
        self,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        over: Over[Staged],
        tried: list[Commit],
    ) -> Commit:
        log, transactions, shares = self._log, self._writers.transactions, held.won(stages)
        names = [TopicName.parse(topic) for topic in sorted({share.topic for share in shares})]
        if wanted.keep:
            await log.keep()
        if not names:
            await log.append(Committed(wanted))
            return wanted
        size = sum(share.size_bytes for share in shares)
        transaction = await transactions.begin(TRANSACTION_MS + size // BYTES_PER_MS)
        try:
            await log.append(Began(transaction))
            await transactions.add(transaction, [*map(str, names), str(log.topic)])
            spans = await self._writers.copy(
                wanted, held, {each.stage for each in stages}, names, transaction
            )
            if counts_of(spans) != counts_of(shares):
                raise PenstockError(ErrorKind.STAGE_CONFLICT, "what is staged changed while it was committed")
            made = msgspec.structs.replace(wanted, spans=spans)
            tried.append(made)
            await log.append(Committed(made), transaction)
            await transactions.end(transaction, commit=True)
        except BaseException:
            await self._abort(transaction)
            raise
        log.state.apply(Committed(made))
        return made

    async def _abort(self, transaction: TransactionId) -> None:
        """End a transaction that failed. What a commit without an answer did, the log says when it is opened next."""
        try:
            async with asyncio.timeout(ABORT_S):
                await self._writers.transactions.end(transaction, commit=False)
        except (PulsarException, TimeoutError) as error:
            logger.warning("a transaction could not be aborted: %s", error)

    async def repeat(self, commit: Commit, over: Over[Staged]) -> None:
        await self._log.append(Committed(commit))

    async def ledger_of(self, name: TopicName) -> int | None:
        await self._writers.topics.get(name, create=False)
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
    """Why nothing could be done with a log. A later retry helps if other processes use it."""
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

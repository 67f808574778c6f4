"""Commits of batches: what is staged goes to its topics in one transaction, with the record that says so."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.staging import Caller, Expected
from penstock.client.aio.context import Context
from penstock.client.entries.transactions import TransactionId, Transactions
from penstock.client.errors import PulsarException
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.shared.batches import (
    below,
    check_targets,
    counts_of,
    deleted_since,
    digest_of,
    skipped,
    superseded,
)
from penstock.engines.shared.staged import repeated
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span, Targets
from penstock.runtime.clock import Clock

from .copying import Copying
from .log import WriterLog
from .part_writers import PartWriters
from .parts import Staged, read_batch
from .records import Began, Committed
from .space import StagingSpace
from .writers import Writers

# While a transaction is open, readers of its topics see nothing behind its first entry: it is as short as its size allows.
TRANSACTION_MS: Final = 60_000
BYTES_PER_MS: Final = 1000
ABORT_S: Final = 5.0  # for an answer; the next commit of the writer asks again
_GONE: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.PARTITION_NOT_FOUND, ErrorKind.BAD_PARAMETER)

log = logging.getLogger(__name__)


class Committing:
    """For one who holds the writer's lock. `context` has the connections for the caller that is served."""

    def __init__(
        self,
        space: StagingSpace,
        transactions: Transactions,
        writers: Writers,
        parts: PartWriters,
        topics: PulsarTopics,
        schemas: Schemas,
        context: Callable[[], Context],
        clock: Clock,
    ) -> None:
        self._space = space
        self._transactions = transactions
        self._writers = writers
        self._parts = parts
        self._topics = topics
        self._schemas = schemas
        self._context = context
        self._clock = clock

    async def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[Expected],
        caller: Caller,
        targets: Targets,
        *,
        keep: bool,
    ) -> tuple[Commit, bool]:
        """As `broker.Staging.commit`."""
        wanted = Commit(writer, batch, self._clock.now_ms(), targets, keep, digest_of(stages))
        reads: list[Staged] = []
        tried: list[Commit] = []

        async def attempt(found: WriterLog) -> tuple[Commit, bool]:
            caller.check(found.state.writer)
            last = found.state.commits.get(targets)
            if last is not None and last in tried:
                return last, True  # an attempt before was committed, and its answer got lost
            if last is not None and batch < last.batch:
                raise below(last, batch, targets)
            held = await read_batch(self._space, writer, batch)
            reads.append(held)
            if last is not None and batch == last.batch:
                return await self._repeated(found, last, held, stages), False
            if last is None:
                check_targets(writer, len(found.state.commits))
            return await self._append(found, wanted, held, stages, caller, tried), True

        made, new = await self._writers.on_log(writer, attempt)
        if new and reads:
            await self._clear(writer, batch, reads[-1], [each.stage for each in stages], targets)
        return made, new

    async def _append(
        self,
        found: WriterLog,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        caller: Caller,
        tried: list[Commit],
    ) -> Commit:
        """Append what the stages hold; `tried` gets the commit before it is known to be one."""
        shares = held.won(stages)
        names = [TopicName.parse(topic) for topic in sorted({share.topic for share in shares})]
        for name in names:
            await self._topics.learn(name)  # another process may have staged it
            caller.may_produce(name)
            (await self._topics.get(name, create=False)).check_open()
        await self._writers.claim_held(found, caller)
        if wanted.keep:
            await found.keep()
        if not names:
            await found.append(Committed(wanted))
            return wanted
        size = sum(share.size_bytes for share in shares)
        transaction = await self._transactions.begin(TRANSACTION_MS + size // BYTES_PER_MS)
        try:
            await found.append(Began(transaction))
            await self._transactions.add(transaction, [*map(str, names), str(found.topic)])
            spans = await self._copy(wanted, held, {each.stage for each in stages}, names, transaction)
            if counts_of(spans) != counts_of(shares):
                raise PenstockError(ErrorKind.STAGE_CONFLICT, "what is staged changed while it was committed")
            made = msgspec.structs.replace(wanted, spans=spans)
            tried.append(made)
            await found.append(Committed(made), transaction)
            await self._transactions.end(transaction, commit=True)
        except BaseException:
            await self._abort(transaction)
            raise
        found.state.apply(Committed(made))
        return made

    async def _copy(
        self,
        wanted: Commit,
        held: Staged,
        stages: set[str],
        names: Sequence[TopicName],
        transaction: TransactionId,
    ) -> tuple[Span, ...]:
        """Send what the stages hold. Errors are of the topics: trying again at once would not help."""
        attempts = {attempt for attempt, stage in held.attempts.items() if stage in stages}
        numbered = self._space.cluster.numbered
        copying = Copying(self._context(), self._schemas, transaction, numbered=numbered)
        try:
            await copying.open(names)
            batch = self._space.batch_of(wanted.writer, wanted.batch)
            await copying.copy(self._space, batch, attempts, wanted.at)
            return tuple(copying.spans)
        finally:
            await copying.close()

    async def _abort(self, transaction: TransactionId) -> None:
        """End a transaction that failed. What a commit without an answer did, the log says when it is opened next."""
        try:
            async with asyncio.timeout(ABORT_S):
                await self._transactions.end(transaction, commit=False)
        except (PulsarException, TimeoutError) as error:
            log.warning("a transaction could not be aborted: %s", error)

    async def _repeated(
        self, found: WriterLog, last: Commit, held: Staged, stages: Sequence[Expected]
    ) -> Commit:
        """The last commit again. Raises BATCH_CONFLICT where something else is staged, or its topics are gone."""
        targets = last.topics or ()
        await self._check_there(last, targets)
        again, there = repeated(last, targets, held, stages)
        if again is not last:
            await found.append(Committed(again))
            await self._clear(last.writer, last.batch, held, there, targets)
        skipped(again, targets)
        return again

    async def _check_there(self, last: Commit, targets: Targets) -> None:
        """Raise BATCH_CONFLICT unless each topic that the commit appended to still exists: else its messages are gone."""
        gone: set[str] = set()
        for span in last.spans:
            name = TopicName.parse(span.topic)
            try:
                await self._topics.get(name, create=False)
            except PenstockError as error:
                if error.kind not in _GONE:
                    raise
                gone.add(str(name.base))
        if gone:
            raise deleted_since(last, targets, gone)

    # -- what is not wanted any more

    async def _clear(
        self, writer: str, batch: int, held: Staged, taken: Sequence[str], targets: Targets
    ) -> None:
        """Drop the stages that a commit took, and those for its topics that no commit will take. What fails here is left to
        the cluster, which deletes what nobody uses."""
        over = superseded(held.batch, taken, targets)
        if not over:
            return
        try:
            await self._parts.drop(writer, batch, held, over)
        except PenstockError as error:
            log.warning("batch %d of writer %s could not be cleared away: %s", batch, writer, error.message)

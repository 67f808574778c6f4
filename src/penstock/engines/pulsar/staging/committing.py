"""Commits of batches: what is staged goes to its topics in one transaction, with the record that says so."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.staging import Expected
from penstock.client.aio.context import Context
from penstock.client.entries.transactions import TransactionId, Transactions
from penstock.client.errors import PulsarException
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.staging.commits import counts_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, Span

from .copying import Copying
from .log import WriterLog
from .parts import Staged
from .records import Began, Committed
from .space import StagingSpace

# While a transaction is open, readers of its topics see nothing behind its first entry: it is as short as its size allows.
TRANSACTION_MS: Final = 60_000
BYTES_PER_MS: Final = 1000
ABORT_S: Final = 5.0  # for an answer; the next commit of the writer asks again

log = logging.getLogger(__name__)


class Committing:
    """`context` has the connections for the caller that is served."""

    def __init__(
        self,
        space: StagingSpace,
        transactions: Transactions,
        schemas: Schemas,
        context: Callable[[], Context],
    ) -> None:
        self._space = space
        self._transactions = transactions
        self._schemas = schemas
        self._context = context

    async def append(
        self,
        found: WriterLog,
        wanted: Commit,
        held: Staged,
        stages: Sequence[Expected],
        tried: list[Commit],
    ) -> Commit:
        """Append what the stages hold, with the record of the commit in the writer's log; as `staging.Session.append`."""
        shares = held.won(stages)
        names = [TopicName.parse(topic) for topic in sorted({share.topic for share in shares})]
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

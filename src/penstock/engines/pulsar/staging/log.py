"""The log of a writer: read by any process, appended to by the one that opened it last.

A process opens a log with a producer that fences off all others, writes a record, and reads up to it. The cluster shows
nothing behind the first entry of a transaction that has not ended, so that what is read is complete. It does not tell a process that it was
fenced off, and a last entry of it may just be on its way: a transaction that was begun, and whose record is not
there, is aborted. Where it has ended before, its record shows before another record of the new owner's, or never.
"""

import asyncio
import contextlib
from typing import Final

from penstock.client.entries.pending import Outgoing, Placed
from penstock.client.entries.producer import EntryProducer
from penstock.client.entries.transactions import TransactionId, Transactions, has_ended
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.pulsar.reader import Reader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.wire.contents import in_transaction

from .records import Opened, Record, WriterState, packed, record_of
from .space import READ_S, StagingSpace

SETTLE_S: Final = 30.0  # for a transaction that another process left to be over
LOOK_S: Final = 0.3  # without a record, before it is asked to end
TRIM_RECORDS: Final = 2000  # then the log is begun anew


class WriterLog:
    """One writer's log, while this process has it."""

    def __init__(self, space: StagingSpace, writer: str, transactions: Transactions, clock: Clock) -> None:
        self.topic = space.log_of(writer)
        self.state = WriterState(writer)
        self.used_ms = clock.monotonic_ms()
        self._space = space
        self._transactions = transactions
        self._clock = clock
        self._sequence_id = 0
        self._keeps = False
        self._producer: EntryProducer | None = None

    async def open(self) -> None:
        """Take exclusive ownership of the log, and read all of it. Raises UNAVAILABLE if a transaction does not end, and
        NEWER_FORMAT."""
        await self._space.create(self.topic)
        how = Publication(
            topic=str(self.topic), access_mode=ProducerAccessMode.ExclusiveWithFencing, transactions=True
        )
        self._producer = EntryProducer(self._space.cluster.context, how, once=True)
        await self._producer.start()
        until = await self.append(Opened())
        await self._read(until)
        if self.state.open is not None:
            await self._settle(self.state.open)
            self.state.open = None

    @property
    def ended(self) -> bool:
        """Whether another process has the log, or the connection broke."""
        return self._producer is None or self._producer.error is not None

    async def append(self, record: Record, transaction: TransactionId | None = None) -> Placed:
        """Append a record; one in a transaction counts when that is committed, which its caller applies."""
        assert self._producer is not None, "it is open"
        number, now = self._sequence_id, self._clock.now_ms()
        self._sequence_id += 1
        data = packed(record, producer=self._producer.name, sequence_id=number, at=now)
        if transaction is not None:
            data = in_transaction(data, transaction, now)
        placed = await self._producer.send(Outgoing(data, number, number, transaction=transaction))
        if transaction is None:
            self.state.apply(record)
        return placed

    async def keep(self) -> None:
        """Have the cluster keep the log, and let it begin anew where it is long."""
        if not self._keeps:
            await self._space.keep(self.topic)
            self._keeps = True
        if self.state.records >= TRIM_RECORDS and self.state.open is None:
            live = self.state.live
            places = [await self.append(record) for record in live]
            self.state.records = len(live)
            await self._space.trim(self.topic, *places[0])

    async def close(self) -> None:
        """Let other processes have it."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(PulsarException):
                await producer.close()

    async def _read(self, until: Placed) -> None:
        """Read the whole log up to a record of this process."""
        self.state = WriterState(self.state.name)
        reader = _reader(self._space, self.topic)
        await reader.open()
        loop = asyncio.get_running_loop()
        end = loop.time() + SETTLE_S
        try:
            while True:
                if not await reader.wait(LOOK_S):
                    if loop.time() > end:
                        raise PenstockError(
                            ErrorKind.UNAVAILABLE,
                            f"a commit of writer {self.state.name} is under way in another process, and does not end",
                        )
                    await self._end_blocking()
                    continue
                entry = reader.take()
                if entry is None:
                    continue
                self.state.apply(record_of(entry, self.state.name))
                if (entry.ledger, entry.entry_id) >= until:
                    return
        finally:
            await reader.close()

    async def _end_blocking(self) -> None:
        """Abort what another process left, which hides what follows; one that is being committed shows soon."""
        if self.state.open is not None:
            with contextlib.suppress(PulsarException):  # the cluster aborts it when its time is over
                await self._transactions.end(self.state.open, commit=False)

    async def _settle(self, left: TransactionId) -> None:
        """Abort a transaction whose record is not in what was read, or see what became of it."""
        try:
            await self._transactions.end(left, commit=False)
        except PulsarException as error:
            if not has_ended(error):
                raise
            # Its record, if it was committed, came behind ours, and before its end: before another one.
            await self._read(await self.append(Opened()))


async def read_log(space: StagingSpace, writer: str) -> WriterState | None:
    """A writer's state by its log, None if there is no log. Open commits are not included. Raises NEWER_FORMAT."""
    state = WriterState(writer)
    reader = _reader(space, space.log_of(writer))
    try:
        await reader.open()
    except PenstockError as error:
        if error.kind in (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND):
            return None
        raise
    try:
        last = await reader.last_message_id()
        place = (-1, -1)
        while last.entry >= 0 and place < (last.ledger, last.entry):
            if not await reader.wait(READ_S):
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"the cluster did not deliver the log of writer {writer} in time"
                )
            entry = reader.take()
            if entry is not None:
                place = entry.ledger, entry.entry_id
                state.apply(record_of(entry, writer))
        return state
    finally:
        await reader.close()


def _reader(space: StagingSpace, topic: TopicName) -> Reader:
    return Reader(space.cluster.context, topic, EARLIEST, inclusive=True, numbered=False)

"""The log of a writer: read by any process, appended to by the one that opened it last.

A process opens a log with a producer that fences off all others, writes a record, and reads up to it. The cluster shows
nothing behind the first entry of a transaction that has not ended, so that reads are complete. It does not notify a process that it was
fenced off, and a last entry of it may just be on its way: a transaction that was begun, and whose record is not
there, is aborted. If it has ended before, its record shows before another record of the new owner's, or never.
"""

import asyncio
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from penstock.client.entries.pending import Outgoing, Placed
from penstock.client.entries.producer import EntryProducer
from penstock.client.entries.transactions import TransactionId, Transactions, has_ended
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.staging.writers import Claimed, KnownWriter
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import VERSION, WRITERS
from penstock.model.message import OutMessage
from penstock.model.stage import Commit, Targets
from penstock.runtime.clock import Clock
from penstock.wire import entry as wire
from penstock.wire.contents import in_transaction

from .space import StagingSpace

SETTLE_S: Final = 30.0  # for a transaction that another process left to be over
LOOK_S: Final = 0.3  # without a record, before it is asked to end
TRIM_RECORDS: Final = 2000  # then the log is begun again


class Opened(msgspec.Struct, frozen=True, tag=True):
    """A process has the writer now: no other one appends behind this."""


class Began(msgspec.Struct, frozen=True, tag=True):
    """A commit is under way in a transaction."""

    transaction: TransactionId


class Committed(msgspec.Struct, frozen=True, tag=True):
    """The last batch committed to a set of topics. It is stored in the transaction of the batch's messages, so that it is there
    with them or not at all."""

    commit: Commit


class Forgot(msgspec.Struct, frozen=True, tag=True):
    """The last batch committed to a set of topics counts no more."""

    topics: Targets


Record = Opened | Claimed | Began | Committed | Forgot


_decoder: Final[msgspec.json.Decoder[Record]] = msgspec.json.Decoder(Record)


def packed(record: Record, *, producer: str, sequence_id: int, at: int) -> bytes:
    """The entry of a record."""
    message = OutMessage(payload=msgspec.json.encode(record), properties=WRITERS.properties())
    entry = wire.encode(
        [message], producer=producer, sequence_id=sequence_id, publish_time=at, schema_version=None
    )
    return entry.data


def record_of(entry: Entry, writer: str) -> Record:
    """The record in an entry of a writer's log. Raises NEWER_FORMAT."""
    message = wire.decode(entry)[0]
    WRITERS.check(message.properties.get(VERSION), writer)
    return _decoder.decode(message.payload)


class WriterState(KnownWriter):
    """A writer as its log has it. `open` is a transaction whose outcome the log does not show."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.open: TransactionId | None = None
        self.records = 0

    def apply(self, record: Record) -> None:
        """A record follows."""
        self.records += 1
        if isinstance(record, Claimed):
            self.claimed = record
        elif isinstance(record, Began):
            self.open = record.transaction
        elif isinstance(record, Committed):
            self.open = None
            topics = record.commit.topics or ()
            known = self.commits.get(topics)
            # Of a process that was fenced off, a record without a transaction may come late.
            if known is None or known.batch <= record.commit.batch:
                self.commits[topics] = record.commit
        elif isinstance(record, Forgot):
            self.commits.pop(record.topics, None)

    @property
    def live(self) -> list[Record]:
        """The records that all follows from."""
        records: list[Record] = [] if self.claimed is None else [self.claimed]
        return records + [Committed(commit) for commit in self.commits.values()]


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
        """Let the cluster keep the log, and begin it again if it is long."""
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
            with suppress(PulsarException):
                await producer.close()

    async def _read(self, until: Placed) -> None:
        """Read the whole log up to a record of this process."""
        self.state = WriterState(self.state.name)
        reader = self._space.reader(self.topic)
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
            with suppress(PulsarException):  # the cluster aborts it after its timeout
                await self._transactions.end(self.state.open, commit=False)

    async def _settle(self, left: TransactionId) -> None:
        """Abort a transaction whose record was not read, or learn its outcome."""
        try:
            await self._transactions.end(left, commit=False)
        except PulsarException as error:
            if not has_ended(error):
                raise
            # Its record, if it was committed, came behind ours, and before its end: before another one.
            await self._read(await self.append(Opened()))


async def read_log(space: StagingSpace, writer: str) -> WriterState:
    """A writer's state by its log. Open commits are not included. Raises NEWER_FORMAT."""
    state = WriterState(writer)
    async with aclosing(space.entries_of(space.log_of(writer))) as entries:
        async for entry in entries:
            state.apply(record_of(entry, writer))
    return state

"""Copies stages to their topics, as entries of a transaction."""

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from penstock.client.aio.context import Context
from penstock.client.entries.pending import Outcome, Outgoing, Placed
from penstock.client.entries.producer import EntryProducer
from penstock.client.entries.transactions import TransactionId
from penstock.client.errors import IncompatibleSchema, PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.schemas import Schemas
from penstock.model.names import TopicName
from penstock.model.stage import Span
from penstock.runtime.tasks import Slices
from penstock.wire.contents import in_transaction

from .parts import pieces_of, split_batch
from .space import StagingSpace

BYTES_MAX: Final = 8 << 20  # without a receipt, all topics together
_OPENING_MAX: Final = 32  # topics at once


class _Sending(msgspec.Struct):
    """One call in flight to a topic: entries with `count` messages each."""

    target: "_Target"
    count: int
    size: int
    future: asyncio.Future[list[Outcome]]


class _Target:
    """One topic or partition."""

    def __init__(self, topic: TopicName, producer: EntryProducer) -> None:
        self.topic = topic
        self.producer = producer
        self.sequence_id = producer.last_sequence_id + 1
        self._first: Placed | None = None
        self._last: Placed = (-1, -1)
        self._entries = self._messages = self._bytes = 0

    def send(self, entries: Sequence[bytes], count: int, transaction: TransactionId) -> _Sending:
        """Send entries with `count` messages each."""
        outgoing: list[Outgoing] = []
        for data in entries:
            first = self.sequence_id
            self.sequence_id += count
            outgoing.append(Outgoing(data, first, self.sequence_id - 1, count, transaction=transaction))
        size = sum(len(data) for data in entries)
        return _Sending(self, count, size, self.producer.send_all(outgoing))

    def stored(self, sending: _Sending, outcomes: Sequence[Outcome]) -> None:
        """The broker answered."""
        for outcome in outcomes:
            if isinstance(outcome, PulsarException):
                raise engine_error(outcome, str(self.topic))
            if self._first is None:
                self._first = outcome
            self._last = outcome
        self._entries += len(outcomes)
        self._messages += len(outcomes) * sending.count
        self._bytes += sending.size

    @property
    def span(self) -> Span:
        """The sent entries. The cluster does not report offsets."""
        assert self._first is not None, "something was"
        ledger, entry = self._first
        counts = (self._entries, -1, self._messages, self._bytes)
        return Span(str(self.topic), ledger, entry, *counts, last=self._last)


class Copying:
    """Producers for the topics of one commit, which end with their connections: nothing is sent twice.

    `numbered`: brokers number entries, so that each goes with one message.
    """

    def __init__(
        self, context: Context, schemas: Schemas, transaction: TransactionId, *, numbered: bool
    ) -> None:
        self._context = context
        self._numbered = numbered
        self._schemas = schemas
        self._transaction = transaction
        self._targets: dict[str, _Target] = {}
        self._sending: deque[_Sending] = deque()
        self._size = 0

    async def open(self, topics: Sequence[TopicName]) -> None:
        """Connect to each topic. Raises the error that prevents it."""
        for start in range(0, len(topics), _OPENING_MAX):
            some = [self._open(topic) for topic in topics[start : start + _OPENING_MAX]]
            for error in await asyncio.gather(*some, return_exceptions=True):
                if isinstance(error, BaseException):
                    raise error

    async def _open(self, topic: TopicName) -> None:
        how = Publication(topic=str(topic), transactions=True)
        try:
            producer = await self._start(how)
        except IncompatibleSchema as error:
            newest = self._schemas.latest(topic.base)
            if newest is None:
                raise engine_error(error, str(topic)) from None
            # The namespace takes only producers with a schema: entries name their own versions.
            producer = await self._start(msgspec.structs.replace(how, schema=newest.schema))
        self._targets[str(topic)] = _Target(topic, producer)

    async def _start(self, how: Publication) -> EntryProducer:
        producer = EntryProducer(self._context, how, once=True)
        try:
            await producer.start()
        except BaseException as error:
            self._context.tasks.spawn(producer.close(), f"leave {how.topic}")
            if isinstance(error, PulsarException) and not isinstance(error, IncompatibleSchema):
                raise engine_error(error, how.topic) from None
            raise
        return producer

    async def copy(self, space: StagingSpace, batch: TopicName, attempts: Collection[str], at: int) -> None:
        """Send the entries of these attempts, in the order in which they are stored; all have a receipt then."""
        slices = Slices()
        async with aclosing(pieces_of(space, batch)) as pieces:
            async for piece, _, data in pieces:
                if piece.attempt not in attempts:
                    continue
                while self._size >= BYTES_MAX:
                    await self._settle()
                entries = split_batch(data, at) if self._numbered and piece.messages > 1 else [data]
                count = piece.messages if len(entries) == 1 else 1
                entries = [in_transaction(entry, self._transaction, at) for entry in entries]
                try:
                    sending = self._targets[piece.topic].send(entries, count, self._transaction)
                except PulsarException as error:
                    raise engine_error(error, piece.topic) from None
                await slices.step()
                self._size += sending.size
                self._sending.append(sending)
        while self._sending:
            await self._settle()

    async def _settle(self) -> None:
        sending = self._sending.popleft()
        self._size -= sending.size
        sending.target.stored(sending, await sending.future)

    @property
    def spans(self) -> Iterable[Span]:
        """The entries sent to each topic."""
        return [target.span for _, target in sorted(self._targets.items())]

    async def close(self) -> None:
        """Leave the topics."""
        producers = [target.producer for target in self._targets.values()]
        await asyncio.gather(*(producer.close() for producer in producers), return_exceptions=True)

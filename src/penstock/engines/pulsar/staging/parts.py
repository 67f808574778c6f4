"""The topic of a batch that is staged: the entries of its parts, each in a message that says what it is of.

A part may come more than once, by different processes: each attempt to store it has a name of its own, and the first that is
complete counts.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

import msgspec

from penstock.client.entries.arrived import Place
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.errors import PulsarException
from penstock.client.session.commands import Publication
from penstock.engines.attached.errors import engine_error
from penstock.engines.attached.positions import BEFORE_ALL
from penstock.engines.pulsar.reader import Reader
from penstock.engines.staging.batches import Batch, Share
from penstock.engines.staging.ports import Runs
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import PARTS, VERSION
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.wire import entry as wire

from .space import READ_S, StagingSpace

_PIECE: Final = "piece"  # the property


class Piece(msgspec.Struct, frozen=True):
    """What a message in a batch's topic is: entry `number` of `count` of a part, for a topic. `count` 0: the stage is dropped."""

    stage: str
    part: int = 0
    checksum: int = 0
    attempt: str = ""
    number: int = 0
    count: int = 0
    topic: str = ""
    messages: int = 0


_pieces: Final = msgspec.json.Decoder(Piece)


class Staged(Batch):
    """A batch as far as its topic was read; `last` is the last message of that."""

    def __init__(self, writer: str, number: int) -> None:
        super().__init__(writer, number)
        self.last: Place = BEFORE_ALL
        self.attempts: dict[str, str] = {}  # that count, with their stages
        self._open: dict[
            str, tuple[str, list[Share]]
        ] = {}  # attempts that are not complete, with their stages

    def add(self, piece: Piece, entry: Entry, size: int) -> None:
        """A message follows."""
        self.last = entry.ledger, entry.entry_id
        if not piece.count:
            self._drop(piece.stage)
            return
        _, shares = self._open.setdefault(piece.attempt, (piece.stage, []))
        shares.append(Share(0, piece.topic, piece.messages, size))
        if len(shares) < piece.count:
            return
        del self._open[piece.attempt]
        if self.add_part(piece.stage, piece.part, piece.checksum, entry.publish_time, shares):
            self.attempts[piece.attempt] = piece.stage

    def _drop(self, stage: str) -> None:
        self.stages.pop(stage, None)
        self.attempts = {attempt: name for attempt, name in self.attempts.items() if name != stage}
        self._open = {attempt: held for attempt, held in self._open.items() if held[0] != stage}


class PartWriter:
    """Stores the parts of one batch that come to this process."""

    def __init__(self, space: StagingSpace, topic: TopicName, clock: Clock) -> None:
        self.topic = topic
        self.busy = 0
        self.used_ms = clock.monotonic_ms()
        self._space = space
        self._clock = clock
        self._producer = EntryProducer(space.cluster.context, Publication(topic=str(topic)), once=True)
        self._sequence_id = 0

    async def open(self) -> None:
        """Make the topic, and connect."""
        await self._space.create(self.topic)
        await self._producer.start()

    @property
    def ended(self) -> bool:
        """Whether its connection broke, or the topic is gone."""
        return self._producer.error is not None

    async def put(self, stage: str, part: int, checksum: int, runs: Runs) -> None:
        """Store a part."""
        attempt, count = secrets.token_hex(8), sum(len(entries) for _, entries in runs)
        number = 0
        waiting: list[asyncio.Future[object]] = []
        for topic, entries in runs:
            for entry in entries:
                piece = Piece(stage, part, checksum, attempt, number, count, str(topic.name), entry.count)
                waiting.append(await self._send(piece, entry.data))
                number += 1
        for outcomes in await asyncio.gather(*waiting):
            _check(outcomes)

    async def drop(self, stage: str) -> None:
        """Say that a stage counts no more."""
        _check(await (await self._send(Piece(stage), b"")))

    async def _send(self, piece: Piece, data: bytes) -> "asyncio.Future[object]":
        await self._producer.room()
        number, self._sequence_id = self._sequence_id, self._sequence_id + 1
        properties = {_PIECE: msgspec.json.encode(piece).decode(), **PARTS.properties()}
        message = OutMessage(payload=data, properties=properties)
        entry = wire.encode(
            [message],
            producer=self._producer.name,
            sequence_id=number,
            publish_time=self._clock.now_ms(),
            schema_version=None,
        )
        return self._producer.send_all([Outgoing(entry.data, number, number)])  # type: ignore[return-value]

    async def close(self) -> None:
        """Leave the topic."""
        await self._producer.close()


def _check(outcomes: object) -> None:
    """Raise why an entry was not stored."""
    assert isinstance(outcomes, list)
    for outcome in outcomes:
        if isinstance(outcome, PulsarException):
            raise engine_error(outcome)


async def read_batch(space: StagingSpace, writer: str, batch: int) -> Staged:
    """What is staged for a batch; of one without a topic, nothing."""
    staged = Staged(writer, batch)
    async with aclosing(pieces_of(space, space.batch_of(writer, batch))) as pieces:
        async for piece, entry, data in pieces:
            staged.add(piece, entry, len(data))
    return staged


async def pieces_of(space: StagingSpace, topic: TopicName) -> AsyncGenerator[tuple[Piece, Entry, bytes]]:
    """The messages in a batch's topic, with the entries in them. Raises NEWER_FORMAT."""
    reader = Reader(space.cluster.context, topic, EARLIEST, inclusive=True, numbered=False)
    try:
        await reader.open()
    except PenstockError as error:
        if error.kind in (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND):
            return
        raise
    try:
        last = await reader.last_message_id()
        place = BEFORE_ALL
        while last.entry >= 0 and place < (last.ledger, last.entry):
            if not await reader.wait(READ_S):
                raise PenstockError(ErrorKind.UNAVAILABLE, f"the cluster did not deliver {topic} in time")
            entry = reader.take()
            if entry is None:
                continue
            place = entry.ledger, entry.entry_id
            message = wire.decode(entry)[0]
            PARTS.check(message.properties.get(VERSION), topic.local)
            yield _pieces.decode(message.properties[_PIECE]), entry, message.payload
    finally:
        await reader.close()


async def has_grown(space: StagingSpace, topic: TopicName, beyond: Place) -> bool:
    """Whether a batch's topic has messages behind a place. Raises TOPIC_NOT_FOUND."""
    reader = Reader(space.cluster.context, topic, LATEST, inclusive=False, numbered=False)
    await reader.open(permit=False)
    try:
        last = await reader.last_message_id()
        return last.entry >= 0 and (last.ledger, last.entry) > beyond
    finally:
        await reader.close()

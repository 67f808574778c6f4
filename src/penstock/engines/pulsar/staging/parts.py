"""The topics of staged batches: the entries of their parts, each in a message that says what it is of.

A part may come more than once, by different processes: each attempt to store it has a separate name, and the first that is
complete counts.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec

from penstock.broker.staging import StagedBatch
from penstock.client.entries.arrived import Place
from penstock.client.entries.pending import Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.client.session.commands import Publication
from penstock.engines.attached.errors import engine_error
from penstock.engines.attached.positions import BEFORE_ALL
from penstock.engines.staging.batches import Batch, Share
from penstock.engines.staging.ports import Interrupted, Outline, Runs
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import PARTS, VERSION
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks
from penstock.wire import entry as wire
from penstock.wire.contents import compressed, is_sealed, parse, parse_head
from penstock.wire.messages import read_messages
from penstock.wire.pulsar_pb2 import NONE

from .space import MISSING, StagingSpace

log = logging.getLogger(__name__)

COMPRESSED_BYTES_MIN: Final = 1024  # of a message that was in a compressed batch, to be worth it alone
_PIECE: Final = "piece"  # the property
IDLE_MS: Final = 5_000  # then the topic of a batch is left, so that it can be deleted
DELETING_MS: Final = 120_000  # of attempts; later the cluster deletes it, as it is unused
ATTEMPTS: Final = 3


def check_splits(entry: NewEntry) -> None:
    """Raise BAD_PARAMETER for a batch that only its receiver can open."""
    if entry.count > 1 and is_sealed(parse_head(entry.data)[0]):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            "a batch that is encrypted cannot be staged here, as the cluster numbers entries: encrypt messages one by one",
        )


def split_batch(data: bytes, publish_time: int) -> list[bytes]:
    """An entry of each message of a batch.

    Brokers number an entry of a transaction as one message, whatever it holds (Pulsar 4.0: `TopicTransactionBuffer` appends it
    without its count). The numbers of a batch's messages would be those of earlier messages.
    """
    messages = read_messages(data, 0)
    outgoing = [message.again() for message in messages]
    made = wire.encode_each(outgoing, producer=messages[0].producer_name, publish_time=publish_time)
    kind = parse(data)[0].compression
    if kind == NONE:
        return [entry.data for entry in made]
    return [
        compressed(entry.data, kind) if len(message.payload) >= COMPRESSED_BYTES_MIN else entry.data
        for entry, message in zip(made, messages, strict=True)
    ]


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
    """The stages of a batch; empty without a topic."""
    staged = Staged(writer, batch)
    async with aclosing(pieces_of(space, space.batch_of(writer, batch))) as pieces:
        async for piece, entry, data in pieces:
            staged.add(piece, entry, len(data))
    return staged


async def pieces_of(space: StagingSpace, topic: TopicName) -> AsyncGenerator[tuple[Piece, Entry, bytes]]:
    """The messages in a batch's topic, none if there is no topic, with the entries in them. Raises NEWER_FORMAT."""
    async with aclosing(space.entries_of(topic)) as entries:
        async for entry in entries:
            message = wire.decode(entry)[0]
            PARTS.check(message.properties.get(VERSION), topic.local)
            yield _pieces.decode(message.properties[_PIECE]), entry, message.payload


async def has_grown(space: StagingSpace, topic: TopicName, beyond: Place) -> bool:
    """Whether a batch's topic has messages behind a place. Raises TOPIC_NOT_FOUND."""
    reader = space.reader(topic)
    await reader.open(permit=False)
    try:
        last = await reader.last_message_id()
        return last.entry >= 0 and (last.ledger, last.entry) > beyond
    finally:
        await reader.close()


@asynccontextmanager
async def in_engine_words() -> AsyncIterator[None]:
    """The errors of the cluster as those of this server."""
    try:
        yield
    except PulsarException as error:
        refusal = engine_error(error)
        raise Interrupted(refusal.kind, refusal.message) from None


class PulsarParts:
    """`staging.Parts`: nothing is known but by reading. There is a producer for each batch while parts of it come."""

    def __init__(self, space: StagingSpace, clock: Clock) -> None:
        self._space = space
        self._clock = clock
        self._open: dict[TopicName, PartWriter] = {}
        self._locks: Locks[TopicName] = Locks()
        self._deleting: dict[TopicName, tuple[Place, int]] = {}

    async def start(self) -> None: ...

    def known(self, writer: str) -> Mapping[int, Staged]:
        return {}

    def expired(self, before: int) -> Sequence[Staged]:
        return []  # the cluster deletes topics that are not used

    @in_engine_words()
    async def batch(self, writer: str, number: int) -> Staged:
        return await read_batch(self._space, writer, number)

    async def batches(self, writer: str) -> Mapping[int, Staged]:
        return {number: await self.batch(writer, number) for number in await self._space.batches(writer)}

    async def outlines(self, writers: Sequence[str]) -> Sequence[Outline]:
        return [await self._outline(writer) for writer in writers]

    async def _outline(self, writer: str) -> Outline:
        batches = await self._space.batches(writer)
        sizes = [await self._space.size_of(self._space.batch_of(writer, batch)) for batch in batches]
        return {batch: StagedBatch(0, ()) for batch in batches}, sum(sizes)

    @in_engine_words()
    async def put(self, key: StageKey, part: int, checksum: int, runs: Runs, origin: str) -> None:
        if self._space.cluster.numbered:
            for _, run in runs:
                for entry in run:
                    check_splits(entry)
        writer = await self._take(self._space.batch_of(key.writer, key.batch))
        try:
            await writer.put(key.stage, part, checksum, runs)
        finally:
            self._give_back(writer)

    async def _take(self, topic: TopicName) -> PartWriter:
        """One that stays until it is given back."""
        async with self._locks.hold(topic):
            found = self._open.get(topic)
            if found is None or found.ended:
                found = self._open[topic] = await self._connect(topic)
            found.busy += 1
            return found

    async def _connect(self, topic: TopicName) -> PartWriter:
        for left in reversed(range(ATTEMPTS)):
            made = PartWriter(self._space, topic, self._clock)
            try:
                await made.open()
            except BaseException as error:
                await made.close()
                if not left or not isinstance(error, TopicNotFound):  # deleted just now, after another commit
                    raise
            else:
                return made
        raise AssertionError("the last attempt returns or raises")

    def _give_back(self, writer: PartWriter) -> None:
        """It is not used by this caller any more."""
        writer.busy -= 1
        writer.used_ms = self._clock.monotonic_ms()

    async def _leave(self, topic: TopicName) -> None:
        """Leave a batch's topic, unless parts of it are coming."""
        found = self._open.get(topic)
        if found is not None and not found.busy:
            del self._open[topic]
            await found.close()

    @in_engine_words()
    async def drop(self, held: Staged, stages: Collection[str]) -> None:
        """With the last stage the topic is deleted, at once or when it is unused."""
        topic = self._space.batch_of(held.writer, held.number)
        every = set(stages) >= set(held.stages)
        if every:
            await self._leave(topic)
            if await self._delete(topic, held.last):
                return
        parts = await self._take(topic)
        try:
            for name in stages:
                await parts.drop(name)
        finally:
            self._give_back(parts)
        if every:
            left = await read_batch(self._space, held.writer, held.number)
            if not left.stages:
                self._deleting[topic] = left.last, self._clock.monotonic_ms() + DELETING_MS

    async def _delete(self, topic: TopicName, last: Place) -> bool:
        """Delete a batch's topic, unless something came after `last` or it is in use; whether it is gone."""
        try:
            return not await has_grown(self._space, topic, last) and await self._space.delete(topic)
        except PenstockError as error:
            if error.kind not in MISSING:
                raise
            return True

    async def sweep(self) -> None:
        """Leave topics for which no part came lately, and delete what can be deleted now."""
        now = self._clock.monotonic_ms()
        for topic, writer in list(self._open.items()):
            if writer.used_ms < now - IDLE_MS or writer.ended:
                await self._leave(topic)
        for topic, (last, until) in list(self._deleting.items()):
            if topic in self._open:
                continue
            try:
                over = await self._delete(topic, last)
            except PenstockError as error:
                log.warning("%s could not be deleted: %s", topic, error.message)
                over = False
            if over or now > until:
                del self._deleting[topic]

    async def close(self) -> None:
        """Leave all."""
        writers = list(self._open.values())
        self._open.clear()
        await asyncio.gather(*(writer.close() for writer in writers))

"""Publishing to one log: repeats are dropped, the rest is appended at once, and everything gets its id."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.model.message_id import MessageId

from .requests import Request
from .topic import Topic

BATCH_MESSAGES_MAX: Final = 1000  # Pulsar's batchingMaxMessages
BATCH_BYTES_MAX: Final = 1 << 20  # keeps one entry a reasonable unit of reading and delivery

Result = MessageId | PenstockError
T = TypeVar("T", OutMessage, NewEntry)


class Item(msgspec.Struct, Generic[T], gc=False):
    """A message to publish, or an entry that a client made, and what became of it.

    With a `producer` the sequence id is remembered under that name; one that the client has `given` tells repeats.
    `chunk_of`: the entry is not the last chunk of the message with that sequence id.
    """

    content: T
    producer: str | None = None
    sequence_id: int = -1
    given: bool = True
    request: Request | None = None  # waits for a reply to it
    chunk_of: int = -1
    result: Result | None = None

    def settle(self, result: Result) -> None:
        """Set the result, and tell the request that waits for a reply."""
        self.result = result
        if self.request is not None:
            if isinstance(result, PenstockError):
                self.request.fail(result)
            else:
                self.request.placed(result)


class Published(msgspec.Struct, frozen=True, gc=False):
    """What a publish did. `placed`: where the first entry lies, None where all items were repeats or failed."""

    placed: AppendResult | None
    messages: int
    repeats: int


Packed = Sequence[tuple[NewEntry, Sequence[Item[T]]]]


async def publish(
    topic: Topic, items: Sequence[Item[T]], pack: Callable[[list[Item[T]]], Packed[T]]
) -> Published:
    """Store items in order and set the result of each. What is new is stored all or none.

    `pack` makes entries of the items that are new. A repeat gets the id of the first, or `UNKNOWN_ID` where that is
    not known any more. Raises only what is no PenstockError; then the items that are new have failed.
    """
    new: list[Item[T]] = []
    repeats: list[tuple[Item[T], asyncio.Future[MessageId]]] = []
    sequences = topic.sequences
    for item in items:
        if item.producer is not None and item.given:
            earlier = sequences.admit(item.producer, item.sequence_id)
            if earlier is not None:
                repeats.append((item, earlier))
                continue
        new.append(item)
    placed, messages = await _append(topic, new, pack) if new else (None, 0)
    for item, earlier in repeats:
        try:
            item.settle(await asyncio.shield(earlier))
        except PenstockError as error:
            item.settle(error)
    return Published(placed, messages, len(repeats))


async def _append(
    topic: Topic, items: list[Item[T]], pack: Callable[[list[Item[T]]], Packed[T]]
) -> tuple[AppendResult | None, int]:
    error: PenstockError | None = internal_error()
    try:
        packed = pack(items)
        placed = await topic.append([entry for entry, _ in packed])
        error = None
    except PenstockError as refused:
        error = refused
        return None, 0
    finally:
        if error is not None:
            for item in items:
                item.settle(error)
                if item.producer is not None:
                    topic.sequences.failed(item.producer, item.sequence_id, error)
    ledger, number, messages = topic.ledger, topic.name.partition, 0
    for entry_id, (entry, run) in enumerate(packed, placed.entry_id):
        messages += entry.count
        for at, item in enumerate(run):
            made = (
                MessageId(ledger, entry_id, number)
                if len(run) == 1
                else MessageId(ledger, entry_id, number, at, len(run))
            )
            item.settle(made)
            if item.producer is not None:
                topic.sequences.stored(item.producer, item.sequence_id, made)
    return placed, messages


def whole(items: list[Item[NewEntry]]) -> Packed[NewEntry]:
    """Entries as they came, for `publish`."""
    return [(item.content, (item,)) for item in items]


async def publish_bulk(
    topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
) -> tuple[AppendResult | None, int]:
    """Append entries of any producers in order, all or none; where the first went, and how many were repeats.

    With `deduplicate` an entry whose producer has stored its highest sequence id is passed over, whatever the
    namespace says. Raises what `Topic.append` raises, and EXCLUSIVE_PRODUCER.
    """
    topic.access.check_shared()
    items = [Item(one, one.producer if deduplicate else None, one.sequence_id) for one in entries]
    if not deduplicate:
        for entry in entries:
            entry.producer = ""
    done = await publish(topic, items, whole)
    for item in items:
        if isinstance(item.result, PenstockError):
            raise item.result
    return done.placed, done.repeats


def entries_of(items: Sequence[Item[OutMessage]], *, batch: bool) -> list[list[Item[OutMessage]]]:
    """Cut messages into entries: where the schema version changes, round one that goes alone, at the bounds."""
    runs: list[list[Item[OutMessage]]] = []
    size = 0
    last: OutMessage | None = None
    for item in items:
        message = item.content
        alone = batch and _goes_alone(message)
        joins = (
            batch
            and last is not None
            and not alone
            and message.schema_version == last.schema_version
            and message.replicate_to == last.replicate_to
            and len(runs[-1]) < BATCH_MESSAGES_MAX
            and size + len(message.payload) <= BATCH_BYTES_MAX
        )
        if joins:
            runs[-1].append(item)
            size += len(message.payload)
        else:
            runs.append([item])
            size = len(message.payload)
        last = None if alone else message
    return runs


def _goes_alone(message: OutMessage) -> bool:
    properties = message.properties
    return (
        message.deliver_at != 0
        or message.encryption is not None
        or (properties is not None and REQUEST_TIMEOUT_PROPERTY in properties)
    )


def internal_error() -> PenstockError:
    """The error of what failed for a reason that is not the caller's."""
    return PenstockError(ErrorKind.INTERNAL, "the message could not be published")

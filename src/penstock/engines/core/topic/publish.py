"""Publishing to one log: repeats are dropped, the rest is appended at once, and everything gets its id."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

import msgspec

from penstock.broker.producer import Item, T
from penstock.engines.shared.producer import internal_error
from penstock.model.entry import AppendResult, NewEntry, NewRun
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId

from .topic import Topic


class Published(msgspec.Struct, frozen=True, gc=False):
    """The result of a publish. `placed`: the position of the first entry, None if all items were repeats or failed."""

    placed: AppendResult | None
    messages: int
    repeats: int


class Packed(NamedTuple, Generic[T]):
    """Entries, and the items that each of them has; None: one each, in order."""

    entries: Sequence[NewEntry]
    items: Sequence[Sequence[Item[T]]] | None = None


async def publish(
    topic: Topic, items: Sequence[Item[T]], pack: Callable[[Sequence[Item[T]]], Packed[T]]
) -> Published:
    """Store items in order and set the result of each. New items are stored all or none.

    `pack` makes entries of the items that are new. A repeat gets the id of the first, or `UNKNOWN_ID` if that is
    not known any more. Raises only exceptions other than PenstockError; then the new items have failed.
    """
    placed: AppendResult | None = None
    messages = 0
    if len(items) == 1 and items[0].producer is None and isinstance(entry := items[0].content, NewEntry):
        try:  # the fast lane: an id that the producer chose itself cannot be a repeat
            placed = await topic.append((entry,))
        except PenstockError as refused:
            _failed(topic, items, refused)
        else:
            messages, item = entry.count, items[0]
            made = MessageId(topic.ledger, placed.entry_id, topic.name.partition)
            item.settle(made)
        return Published(placed, messages, 0)
    new, repeats = _admit(topic, items)
    if new:
        try:
            packed = pack(new)
            placed = await topic.append(packed.entries)
        except PenstockError as refused:
            _failed(topic, new, refused)
        except BaseException:
            _failed(topic, new, internal_error())
            raise
        else:
            messages = _placed(topic, placed.entry_id, new, packed)
    for item, earlier in repeats:
        try:
            item.settle(await asyncio.shield(earlier))
        except PenstockError as error:
            item.settle(error)
    return Published(placed, messages, len(repeats))


def _admit(
    topic: Topic, items: Sequence[Item[T]]
) -> tuple[Sequence[Item[T]], Sequence[tuple[Item[T], asyncio.Future[MessageId]]]]:
    """The items that are new, and the others with the ids that the first got, or will."""
    if all(item.producer is None for item in items):
        return items, ()
    new: list[Item[T]] = []
    repeats: list[tuple[Item[T], asyncio.Future[MessageId]]] = []
    for item in items:
        if item.producer is not None:
            earlier = topic.sequences.admit(item.producer, item.sequence_id)
            if earlier is not None:
                repeats.append((item, earlier))
                continue
        new.append(item)
    return new, repeats


def _failed(topic: Topic, items: Sequence[Item[T]], error: PenstockError) -> None:
    for item in items:
        item.settle(error)
        if item.producer is not None:
            topic.sequences.failed(item.producer, item.sequence_id, error)


def _settled(topic: Topic, item: Item[T], made: MessageId) -> None:
    item.settle(made)
    if item.producer is not None:
        topic.sequences.stored(item.producer, item.sequence_id, made)


def _placed(topic: Topic, entry_id: int, new: Sequence[Item[T]], packed: Packed[T]) -> int:
    """Set the ids of the items appended from `entry_id` on; returns their number of messages."""
    ledger, number, messages = topic.ledger, topic.name.partition, 0
    if packed.items is None:
        for at, item in enumerate(new, entry_id):
            made = MessageId(ledger, at, number)
            if item.request is None and item.producer is None:
                item.result = made
            else:
                _settled(topic, item, made)
        if type(packed.entries) is NewRun:
            return len(new)
        return sum([entry.count for entry in packed.entries])
    for run in packed.items:
        count = len(run)
        messages += count
        for at, item in enumerate(run):
            made = (
                MessageId(ledger, entry_id, number)
                if count == 1
                else MessageId(ledger, entry_id, number, at, count)
            )
            _settled(topic, item, made)
        entry_id += 1
    return messages


def whole(items: Sequence[Item[NewEntry]]) -> Packed[NewEntry]:
    """Entries as they came, for `publish`."""
    return Packed([item.content for item in items])


async def publish_bulk(
    topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
) -> tuple[AppendResult | None, int]:
    """Append entries of any producers in order, all or none; returns the position of the first, and the number of repeats.

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

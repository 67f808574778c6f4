"""Publishing entries at once that were made elsewhere, in bulk: no connection, no producer that stays."""

import asyncio
from collections.abc import Sequence

from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .topic import Topic


async def append_bulk(
    topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
) -> tuple[AppendResult | None, int]:
    """Append entries in order, all or none; where the first went, and how many were repeats.

    With `deduplicate` an entry whose producer has stored its highest sequence id is passed over, whatever the
    namespace says. Raises what `Topic.append` raises, and EXCLUSIVE_PRODUCER.
    """
    topic.access.check_shared()
    repeats: list[asyncio.Future[MessageId]] = []
    new: list[NewEntry] = []
    for entry in entries:
        earlier = topic.sequences.admit(entry.producer, entry.sequence_id) if deduplicate else None
        if earlier is not None:
            repeats.append(earlier)
            continue
        if not deduplicate:
            entry.producer = ""
        new.append(entry)
    placed = await _append(topic, new, deduplicate=deduplicate) if new else None
    for earlier in repeats:
        await asyncio.shield(earlier)  # on its way by another request: what that meets is this one's end, too
    return placed, len(repeats)


async def _append(topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool) -> AppendResult:
    error = PenstockError(ErrorKind.INTERNAL, "the message could not be published")
    try:
        placed = await topic.append(entries)
    except BaseException as refused:
        if deduplicate:
            told = refused if isinstance(refused, PenstockError) else error
            for entry in entries:
                topic.sequences.failed(entry.producer, entry.sequence_id, told)
        raise
    if deduplicate:
        for entry_id, entry in enumerate(entries, placed.entry_id):
            made = MessageId(topic.ledger, entry_id, topic.name.partition)
            topic.sequences.stored(entry.producer, entry.sequence_id, made)
    return placed

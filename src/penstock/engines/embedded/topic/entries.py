"""Publishing entries as they came: what the binary endpoint does, where the client made batches and counted.

Repeats are told by the highest sequence id in an entry (docs/architecture.md).
"""

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.engines.embedded.log.sequences import UNKNOWN_ID
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .producer import Producer, Result
from .requests import Request


class Submitted(msgspec.Struct, gc=False):
    """An entry to append. `request` waits for a reply to it; `chunk_of`: it is not the last chunk of the
    message with that sequence id."""

    entry: NewEntry
    request: Request | None = None
    chunk_of: int = -1


async def append_entries(producer: Producer, submitted: Sequence[Submitted]) -> list[Result]:
    """Append entries to the producer's one topic in one go; a result each, in order.

    A repeat gets the id of the first, or `UNKNOWN_ID` where that is not known any more. Raises why the
    producer was closed by others.
    """
    producer.check()
    (topic,) = producer.topics
    results: list[Result | None] = [None] * len(submitted)
    repeats: list[tuple[int, asyncio.Future[MessageId]]] = []
    tracked = producer.deduplicate()
    new: list[int] = []
    for index, item in enumerate(submitted):
        if not tracked:
            item.entry.producer = ""
        elif item.chunk_of >= 0:
            if item.chunk_of <= topic.sequences.last(producer.name):
                results[index] = UNKNOWN_ID
                continue
        else:
            earlier = topic.sequences.admit(producer.name, item.entry.sequence_id)
            if earlier is not None:
                repeats.append((index, earlier))
                continue
        new.append(index)
    if new:
        await _append(producer, submitted, new, results, tracked=tracked)
    for index, earlier in repeats:
        try:
            results[index] = await asyncio.shield(earlier)
        except PenstockError as error:
            results[index] = error
    for item, result in zip(submitted, results, strict=True):
        if item.request is not None:
            if isinstance(result, PenstockError):
                item.request.fail(result)
            elif result is not None:
                item.request.placed(result)
    return [_internal() if result is None else result for result in results]


async def _append(
    producer: Producer,
    submitted: Sequence[Submitted],
    chosen: list[int],
    results: list[Result | None],
    *,
    tracked: bool,
) -> None:
    (topic,) = producer.topics
    error: PenstockError | None = _internal()
    try:
        placed = await topic.append([submitted[index].entry for index in chosen])
        error = None
    except PenstockError as refused:
        error = refused
        for index in chosen:
            results[index] = refused
        return
    finally:
        if tracked and error is not None:
            for index in chosen:
                if submitted[index].chunk_of < 0:
                    topic.sequences.failed(producer.name, submitted[index].entry.sequence_id, error)
    count = 0
    for entry_id, index in enumerate(chosen, placed.entry_id):
        entry = submitted[index].entry
        made = MessageId(topic.ledger, entry_id, topic.name.partition)
        results[index] = made
        count += entry.count
        if tracked and submitted[index].chunk_of < 0:
            topic.sequences.stored(producer.name, entry.sequence_id, made)
    producer.published += count


def _internal() -> PenstockError:
    return PenstockError(ErrorKind.INTERNAL, "the message could not be published")

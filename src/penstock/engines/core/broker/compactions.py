"""The compaction of topics: finding and keeping the last value of each key."""

import asyncio
from typing import Final

from penstock.engines.core.ports import Batches, MetaStore
from penstock.engines.core.topic import Topic
from penstock.engines.shared.documents import DocumentReader
from penstock.engines.subscription.compaction import Compaction, Kept
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks

READ_ENTRIES: Final = 16  # read at once; others have their turn after each entry
_KIND: Final = "compaction"
_HORIZON: Final = "horizon"


class Compactions:
    """The compaction of every topic, durable with the topics."""

    def __init__(self, store: MetaStore, batches: Batches, tasks: Tasks, reader: DocumentReader) -> None:
        self._store = store
        self._batches = batches
        self._tasks = tasks
        self._reader = reader
        self._kept: dict[str, Kept] = {}
        self._stored: dict[str, set[str]] = {}

    async def load(self) -> None:
        """Read the stored state."""
        self._reader.read_all(_KIND, await self._store.load_meta(_KIND), self._learn)

    def _learn(self, key: str, document: bytes | None) -> None:
        name, _, part = key.rpartition("\0")
        kept = self._kept.setdefault(name, Kept(0))
        self._stored.setdefault(name, set()).add(key)
        if part == _HORIZON:
            kept.horizon = int(document or b"")
        else:
            kept.blocks[int(part)] = bytearray(document or b"")

    def of(self, name: TopicName) -> Compaction:
        """The stored compaction of a topic that is being opened."""
        return Compaction.of(self._kept.get(str(name)))

    def start(self, topic: Topic) -> None:
        """Compact the current messages, in the background; raises ALREADY_EXISTS during a run."""
        if topic.compaction.status == "RUNNING":
            raise PenstockError(ErrorKind.ALREADY_EXISTS, f"compaction of {topic.name} is under way already")
        topic.compaction.status = "RUNNING"
        self._tasks.spawn(self._run(topic), f"compact {topic.name}")

    async def _run(self, topic: Topic) -> None:
        compaction = topic.compaction
        compaction.status, compaction.last_error = "ERROR", "interrupted"
        try:
            compaction.status = "RUNNING"
            kept = await self._left(topic)
            await self._keep(topic, kept)
            compaction.kept, compaction.status, compaction.last_error = kept, "SUCCESS", ""
        except PenstockError as error:
            compaction.status, compaction.last_error = "ERROR", error.message

    async def _left(self, topic: Topic) -> Kept:
        """What compaction leaves: of each key the last message, unless that deletes it; of messages without a
        key nothing, as in Pulsar; of entries that cannot be opened everything."""
        kept = Kept(topic.next_offset)
        last: dict[bytes, int] = {}
        next_entry, end = topic.first_entry, topic.next_entry
        while next_entry < end:
            entries = await topic.read(next_entry, READ_ENTRIES)
            if not entries:
                break
            for entry in entries:
                if entry.entry_id >= end:
                    break
                _apply(self._batches.changes(entry), entry.offset, entry.count, last, kept)
                await asyncio.sleep(0)
            next_entry = entries[-1].entry_id + 1
        for offset in last.values():
            kept.add(offset)
        return kept

    async def _keep(self, topic: Topic, kept: Kept) -> None:
        name = str(topic.name)
        documents: list[tuple[str, str, bytes | None]] = [
            (_KIND, f"{name}\0{_HORIZON}", b"%d" % kept.horizon)
        ]
        documents += [(_KIND, f"{name}\0{number}", bytes(block)) for number, block in kept.blocks.items()]
        keys = {key for _, key, _ in documents}
        documents += [(_KIND, key, None) for key in self._stored.get(name, set()) - keys]
        if topic.name.persistent and not topic.deleted:
            await self._store.save_meta(documents)
            self._stored[name] = keys
        self._kept[name] = kept

    async def forget(self, topic: Topic) -> None:
        """The topic is deleted."""
        name = str(topic.name)
        self._kept.pop(name, None)
        keys = self._stored.pop(name, set())
        if keys:
            await self._store.save_meta([(_KIND, key, None) for key in keys])


def _apply(
    changes: list[tuple[bytes | None, bool]] | None,
    offset: int,
    count: int,
    last: dict[bytes, int],
    kept: Kept,
) -> None:
    if changes is None:
        for at in range(count):
            kept.add(offset + at)
        return
    for at, (key, deletes) in enumerate(changes):
        if key is None:
            continue
        if deletes:
            last.pop(key, None)
        else:
            last[key] = offset + at

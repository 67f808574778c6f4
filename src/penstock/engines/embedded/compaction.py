"""Compaction: of each key only the last value, for consumers that ask for that (Pulsar's topic compaction).

Nothing is rewritten: what stays is a set of offsets up to a horizon, kept beside the log and laid over it when a
`compacted` subscription reads. What was published after the horizon is read as it is.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from penstock.model.errors import ErrorKind, PenstockError

from .ports import EntryFormat, MetaStore
from .tasks import Tasks

if TYPE_CHECKING:
    from .topic import Topic

BLOCK: Final = 1 << 16  # offsets in one block of the set: 8 KiB
READ_ENTRIES: Final = 16  # read at once; others have their turn after each entry
_KIND: Final = "compaction"
_HORIZON: Final = "horizon"


class Kept:
    """The offsets below `horizon` that compaction left."""

    def __init__(self, horizon: int, blocks: dict[int, bytearray] | None = None) -> None:
        self.horizon = horizon
        self.blocks = blocks or {}

    def add(self, offset: int) -> None:
        number, at = divmod(offset, BLOCK)
        block = self.blocks.get(number)
        if block is None:
            block = self.blocks[number] = bytearray(BLOCK // 8)
        block[at >> 3] |= 1 << (at & 7)

    def mask(self, offset: int, count: int) -> int:
        """Which of the `count` messages from `offset` on are to be seen, as bits."""
        found = 0
        done = 0
        known = min(count, max(0, self.horizon - offset))
        while done < known:
            number, at = divmod(offset + done, BLOCK)
            taken = min(BLOCK - at, known - done)
            block = self.blocks.get(number)
            if block is not None:
                data = block[at >> 3 : (at + taken + 7) >> 3]
                bits = int.from_bytes(data, "little") >> (at & 7) & ((1 << taken) - 1)
                found |= bits << done
            done += taken
        return found | ((1 << count) - 1) >> known << known

    def next(self, offset: int) -> int:
        """The first offset from `offset` on that is to be seen."""
        at = offset
        while at < self.horizon:
            number, first = divmod(at, BLOCK)
            block = self.blocks.get(number)
            bits = 0 if block is None else int.from_bytes(block, "little") >> first
            if bits:
                return at + (bits & -bits).bit_length() - 1
            at = (number + 1) * BLOCK
        return max(offset, self.horizon)

    @property
    def last(self) -> int:
        """The last offset that was left, -1 where none was."""
        if not self.blocks:
            return -1
        number = max(self.blocks)
        return number * BLOCK + int.from_bytes(self.blocks[number], "little").bit_length() - 1


class Compaction:
    """The compaction of one topic: what is left, and how the last run went, in Pulsar's words."""

    def __init__(self, kept: Kept | None) -> None:
        self.kept = kept
        self.status = "NOT_RUN" if kept is None else "SUCCESS"
        self.last_error = ""


class Compactions:
    """The compaction of every topic, durable with the topics."""

    def __init__(self, store: MetaStore, encoder: EntryFormat, tasks: Tasks) -> None:
        self._store = store
        self._encoder = encoder
        self._tasks = tasks
        self._kept: dict[str, Kept] = {}
        self._stored: dict[str, set[str]] = {}

    async def load(self) -> None:
        """Read what is stored."""
        for key, document in (await self._store.load_meta(_KIND)).items():
            name, _, part = key.rpartition("\0")
            kept = self._kept.setdefault(name, Kept(0))
            self._stored.setdefault(name, set()).add(key)
            if part == _HORIZON:
                kept.horizon = int(document)
            else:
                kept.blocks[int(part)] = bytearray(document)

    def of(self, topic: "Topic") -> Compaction:
        """What is known of a topic that is being opened."""
        return Compaction(self._kept.get(str(topic.name)))

    def start(self, topic: "Topic") -> None:
        """Compact what is there now, in the background; raises ALREADY_EXISTS while a run is under way."""
        if topic.compaction.status == "RUNNING":
            raise PenstockError(ErrorKind.ALREADY_EXISTS, f"compaction of {topic.name} is under way already")
        topic.compaction.status = "RUNNING"
        self._tasks.spawn(self._run(topic), f"compact {topic.name}")

    async def _run(self, topic: "Topic") -> None:
        compaction = topic.compaction
        compaction.status, compaction.last_error = "ERROR", "interrupted"
        try:
            compaction.status = "RUNNING"
            kept = await self._left(topic)
            await self._keep(topic, kept)
            compaction.kept, compaction.status, compaction.last_error = kept, "SUCCESS", ""
        except PenstockError as error:
            compaction.status, compaction.last_error = "ERROR", error.message

    async def _left(self, topic: "Topic") -> Kept:
        """What compaction leaves: of each key the last message, unless that deletes it; of messages without a
        key nothing, as in Pulsar; of what cannot be told apart everything."""
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
                _apply(self._encoder.changes(entry), entry.offset, entry.count, last, kept)
                await asyncio.sleep(0)
            next_entry = entries[-1].entry_id + 1
        for offset in last.values():
            kept.add(offset)
        return kept

    async def _keep(self, topic: "Topic", kept: Kept) -> None:
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

    async def forget(self, topic: "Topic") -> None:
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

"""A producer's entries from `add` to their receipts, over any number of connections; no I/O.

Entries are settled in the order in which they were sent, but for repeats that a broker recognises. If one has waited too
long, it fails with all that follow it, as in Pulsar's clients. They stay in the queue without their data until their
receipts or the next connection: a receipt names only a sequence id, which clients may use twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from penstock.client.errors import PulsarException
from penstock.client.session import commands

DUPLICATE: Final = (-1, -1)  # the position of an entry that the broker recognised as a repeat

Placed = tuple[int, int]  # ledger and entry
Outcome = Placed | PulsarException


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """An entry to send, with the lowest and the highest of its sequence ids. `chunk`: a part of a larger message."""

    data: bytes
    sequence_id: int
    highest: int
    count: int = 1
    chunk: bool = False
    transaction: tuple[int, int] | None = None  # that it is stored in, whose id its metadata name
    each: bool = False  # a batch whose messages are stored as an entry each; its place is that of the first


class Group:
    """Entries that were sent with one call. `future` gets an outcome for each, in their order, when all have one."""

    __slots__ = ("future", "left", "outcomes")

    def __init__(self, count: int, future: asyncio.Future[list[Outcome]]) -> None:
        self.outcomes: list[Outcome] = [DUPLICATE] * count
        self.left = count
        self.future = future

    def settle(self, at: int, outcome: Outcome) -> None:
        """What became of entry `at`."""
        self.outcomes[at] = outcome
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(self.outcomes)


class _Entry(msgspec.Struct, eq=False):
    sequence_id: int
    highest: int
    frames: tuple[bytes, bytes]
    group: Group | None  # None: it has failed already
    at: int
    born: float


class PendingEntries:
    """Entries without a receipt. `size` is their bytes, `last_sequence_id` the highest that the broker has."""

    def __init__(self, producer_id: int) -> None:
        self.size = 0
        self.last_sequence_id = -1
        self._producer_id = producer_id
        self._queue: deque[_Entry] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, entries: Sequence[Outgoing], group: Group, now: float) -> list[bytes]:
        """Entries to send now; returns their frames."""
        frames: list[bytes] = []
        queue, producer_id = self._queue, self._producer_id
        for at, one in enumerate(entries):
            data = one.data
            head = commands.send(
                *(producer_id, one.sequence_id, one.highest, one.count, data),
                chunk=one.chunk,
                transaction=one.transaction,
                entry_each=one.each,
            )
            queue.append(_Entry(one.sequence_id, one.highest, (head, data), group, at, now))
            self.size += len(data)
            frames += (head, data)
        return frames

    def receipt(self, sequence_id: int, ledger: int, entry: int) -> bool:
        """The broker has an entry. False: an entry before it was passed over, which must be sent again."""
        queue = self._queue
        if not queue:
            return True  # of an entry that was given up on another connection
        if queue[0].sequence_id == sequence_id:
            self._stored(queue.popleft(), ledger, entry)
            return True
        if ledger < 0:  # a repeat is answered at once, before entries that are still being stored
            for one in queue:
                if one.sequence_id == sequence_id:
                    queue.remove(one)
                    self._stored(one, ledger, entry)
                    break
            return True
        return all(one.sequence_id != sequence_id for one in queue)

    def _stored(self, one: _Entry, ledger: int, entry: int) -> None:
        if one.highest > self.last_sequence_id:
            self.last_sequence_id = one.highest
        self._settle(one, (ledger, entry))

    def refused(self, sequence_id: int, error: PulsarException) -> None:
        """The broker will not have the entry with this highest sequence id; those after it are not concerned."""
        for one in self._queue:
            if one.highest == sequence_id:
                self._queue.remove(one)
                self._settle(one, error)
                return

    def again(self) -> list[bytes]:
        """The frames of all that wait, for a new connection."""
        self._queue = deque(one for one in self._queue if one.group is not None)
        return [part for one in self._queue for part in one.frames]

    def expire(self, before: float, error: PulsarException) -> float | None:
        """Fail everything if the oldest was sent before `before`; else returns its time, None without entries.

        If what follows were stored without it, a broker that deduplicates would take its next attempt for a repeat.
        """
        waiting = [one for one in self._queue if one.group is not None]
        if waiting and waiting[0].born > before:
            return waiting[0].born
        for one in waiting:
            self._settle(one, error)
            one.group, one.frames = None, (b"", b"")
        return None

    def fail(self, error: PulsarException) -> None:
        """Nothing more will be sent."""
        queue, self._queue = self._queue, deque()
        for one in queue:
            self._settle(one, error)

    def _settle(self, one: _Entry, outcome: Outcome) -> None:
        if one.group is not None:
            self.size -= len(one.frames[1])
            one.group.settle(one.at, outcome)

"""Where a log of the cluster begins and ends, as it was learned last."""

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.client.entries.arrived import Place
from penstock.engines.attached.positions import BEFORE_ALL, opaque_end
from penstock.engines.shared.tail import Followers
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster
from .readers import Readers

FIRST_MS: Final = 10_000  # how long it is trusted where the log begins
KNOWN_MAX: Final = 4096  # places of entries that were read, by the positions after them


class LogEnds:
    """The first and the next position of one log, and places of entries that were read."""

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self.first_offset = 0
        self.next_offset = 0
        self.followers: set[Callable[[], None]] = Followers(self._follow)
        self.used_ms = clock.monotonic_ms()
        self._cluster = cluster
        self._numbered = cluster.numbered
        self._last: Place = BEFORE_ALL  # of the last entry
        self._first_ms: int | None = None  # when it was learned where the log begins
        self._known: dict[int, Place] = {}  # by the position after an entry
        self._readers = Readers(name, cluster, clock)
        self._learning = asyncio.Lock()

    def _follow(self) -> None:
        """There is a follower: look whether the log grows."""

    async def refresh(self) -> None:
        """Ask the broker for the last entry; raises UNAVAILABLE, TOPIC_NOT_FOUND, and what the cluster refuses."""
        if not self.name.persistent:
            return
        async with self._learning:
            self.used_ms = self.clock.monotonic_ms()
            last = await self._readers.last_message_id()
            if last.entry < 0:
                self._last = BEFORE_ALL
            elif (last.ledger, last.entry) != self._last:
                await self._learn_last(last)
            await self._learn_first()

    async def _learn_last(self, last: MessageId) -> None:
        end = opaque_end(last)
        if self._numbered:
            entry = await self.entry_at_place((last.ledger, last.entry))
            if entry is None:
                raise self._silent()
            end = entry.end
        place = last.ledger, last.entry
        if place > self._last and end < self.next_offset:
            self._begin_again()
        self._last = place
        self._grew(end)

    def _begin_again(self) -> None:
        """The topic was deleted and made again: what was learned is of another log, though under the same name."""
        self._readers.end()
        self._known.clear()
        self.first_offset = self.next_offset = 0
        self._first_ms = None

    def _silent(self) -> PenstockError:
        return PenstockError(
            ErrorKind.UNAVAILABLE, f"the cluster did not deliver the entries of {self.name} in time"
        )

    async def _learn_first(self, *, again: bool = False) -> None:
        """Offsets of a log that is trimmed begin later; opaque positions may begin anywhere."""
        now = self.clock.monotonic_ms()
        fresh = self._first_ms is not None and now - self._first_ms < FIRST_MS and not again
        if not self._numbered or fresh:
            return
        if self._last == BEFORE_ALL:
            self.first_offset = self.next_offset
        else:
            entry = await self._readers.first_from(EARLIEST)
            if entry is not None:
                self.first_offset = entry.offset
        self._first_ms = now

    def _grew(self, end: int) -> None:
        if end > self.next_offset:
            self.next_offset = end
            for follower in list(self.followers):
                follower()

    async def entry_at_place(self, place: Place, *, exact: bool = True) -> Entry | None:
        """The entry of an id, or (unless `exact`) the first after it; None where there is none."""
        found = await self._readers.first_from(MessageId(*place))
        if found is None or (exact and (found.ledger, found.entry_id) != place):
            return None
        self._remember(found)
        return found

    def place_before(self, position: int) -> Place | None:
        """The entry that ends at a position, where it was read lately."""
        return self._known.get(position)

    def _remember(self, entry: Entry) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[entry.end] = entry.ledger, entry.entry_id

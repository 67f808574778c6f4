"""A topic or partition as this server uses it: its log, and its producers and consumers here.

Positions, and entries by position, are found through short-lived readers.
Its bounds are those learned last (`refresh`). A log has many ledgers, so that ids of entries alone say
nothing: what the contract calls an entry's id is its position here.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.broker.log import LogBounds
from penstock.client.entries.arrived import Place
from penstock.client.errors import PulsarException
from penstock.engines.attached.positions import BEFORE_ALL, opaque, opaque_end, place_of
from penstock.engines.shared.cluster_topic import ClusterTopic
from penstock.engines.shared.tail import Followers
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import InForce
from penstock.model.target import Target
from penstock.runtime.clock import Clock

from .cluster import PulsarCluster
from .readers import QUIET_S, Reader, Readers
from .search import bytes_from, find_offset, ledger_sizes, place_with

FIRST_MS: Final = 10_000  # how long a learned start of the log is trusted
KNOWN_MAX: Final = 4096  # places of entries that were read, by the positions after them
READ_BYTES: Final = 1 << 20
TIME_MAX: Final = 2**63 - 1  # Pulsar's
STATS_MS: Final = 500  # a request of many steps asks once
FOLLOW_S: Final = 0.2  # poll interval for growth of followed logs


class PulsarTopic(ClusterTopic):
    """`broker.Topic`."""

    documents = None
    ledger = -1
    dense = False

    def __init__(self, name: TopicName, cluster: PulsarCluster, clock: Clock, policies: InForce) -> None:
        super().__init__(clock, policies)
        self.name = name
        self.clock = clock
        self.partition = max(0, name.partition)
        self.size_bytes = 0
        self.terminated = False
        self.deleted = False
        self.first_offset = 0
        self.next_offset = 0
        self.read_bytes_max = READ_BYTES
        self.followers: set[Callable[[], None]] = Followers(self._follow)
        self.used_ms = clock.monotonic_ms()
        self._cluster = cluster
        self._numbered = cluster.numbered
        self._last: Place = BEFORE_ALL  # of the last entry
        self._first_ms: int | None = None  # when the start of the log was learned
        self._known: dict[int, Place] = {}  # by the position after an entry
        self._readers = Readers(name, cluster, clock)
        self._learning = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._stats: Mapping[str, Any] | None = None  # internalStats, and when it was asked for
        self._stats_ms = 0

    def check_open(self) -> None:
        if self.terminated:
            raise PenstockError(ErrorKind.TOPIC_TERMINATED, f"{self.name} is terminated")
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def check_shared(self) -> None:
        """Nothing is known of other producers: the cluster refuses a producer that may not be there."""

    # -- the ends

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
        """The topic was recreated: learned positions are of another log, under the same name."""
        self._readers.end()
        self._known.clear()
        self.first_offset = self.next_offset = 0
        self._first_ms = self._stats = None
        self.terminated = False

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
        """The entry of an id, or (unless `exact`) the first after it; None if there is none."""
        found = await self._readers.first_from(MessageId(*place))
        if found is None or (exact and (found.ledger, found.entry_id) != place):
            return None
        self._remember(found)
        return found

    def place_before(self, position: int) -> Place | None:
        """The entry that ends at a position, if it was read lately."""
        return self._known.get(position)

    def _remember(self, entry: Entry) -> None:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[entry.end] = entry.ledger, entry.entry_id

    @property
    def first_entry(self) -> int:
        return self.first_offset

    @property
    def next_entry(self) -> int:
        return self.next_offset

    @property
    def bounds(self) -> LogBounds:
        return LogBounds(
            self.first_entry,
            self.next_entry,
            self.first_offset,
            self.next_offset,
            self.size_bytes,
            self.terminated,
        )

    # -- positions

    async def entry_at(self, offset: int) -> int:
        return min(max(offset, self.first_offset), self.next_offset)

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id == EARLIEST:
            return self.first_offset
        if message_id == LATEST:
            return self.next_offset
        if message_id.ledger >= 0 and message_id.entry == -1:  # before the first entry of a ledger
            return await self.offset_after(
                MessageId(message_id.ledger, 0, message_id.partition), inclusive=True
            )
        if min(message_id.ledger, message_id.entry) < 0 or message_id.partition not in (
            -1,
            self.name.partition,
        ):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"message id {message_id} is not of {self.name}")
        place = message_id.ledger, message_id.entry
        index = message_id.batch_index
        after = 0 if inclusive else 1
        if not self._numbered:
            if index >= 0:
                return opaque(place, index + after)
            return opaque((place[0], place[1] + after))
        if place > self._last:
            await self.refresh()
        entry = None if place > self._last else await self.entry_at_place(place, exact=False)
        if entry is None:
            return self.next_offset
        if (entry.ledger, entry.entry_id) != place:
            return entry.offset  # it was trimmed: what follows it
        if index >= 0:
            return min(entry.end, entry.offset + index + after)
        return entry.end if after else entry.offset

    async def offset_at_time(self, publish_time: int) -> int:
        target = Target.of_topic(self.name, "messageid", str(min(max(0, publish_time), TIME_MAX)))
        found = await self._cluster.admin.get(target, missing=ErrorKind.TOPIC_NOT_FOUND)
        place = int(found["ledgerId"]), int(found["entryId"])
        if place > self._last:
            return self.next_offset
        if place[1] < 0:
            return self.first_offset
        if not self._numbered:
            return opaque(place)
        entry = await self.entry_at_place(place, exact=False)
        return self.next_offset if entry is None else entry.offset

    async def size_since(self, entry_id: int) -> int:
        """As `broker.Log.size_since`, estimated: within a ledger, entries are taken for equally large."""
        if entry_id >= self.next_offset or self._last == BEFORE_ALL:
            return 0
        stats = await self._internal_stats()
        if entry_id <= self.first_offset:
            return sum(one.bytes for one in ledger_sizes(stats))
        return bytes_from(ledger_sizes(stats), await self._place_at(entry_id, stats))

    async def find_size(self, size_bytes: int) -> Entry | None:
        """As `broker.Log.find_size`, estimated in the same way."""
        place = place_with(ledger_sizes(await self._internal_stats()), size_bytes)
        return None if place is None else await self.entry_at_place(place, exact=False)

    async def _place_at(self, position: int, stats: Mapping[str, Any]) -> Place:
        """The id of the entry that holds a position, or of one near it."""
        known = self._known.get(position)
        if known is not None:
            return known[0], known[1] + 1
        if not self._numbered:
            return place_of(position)
        return await find_offset(position, stats, self.entry_at_place) or BEFORE_ALL

    async def _internal_stats(self) -> Mapping[str, Any]:
        """What the cluster counts of the log's ledgers, at most STATS_MS old."""
        now = self.clock.monotonic_ms()
        if self._stats is None or now - self._stats_ms >= STATS_MS:
            target = Target.of_topic(self.name, "internalStats")
            self._stats = await self._cluster.admin.get(target, missing=ErrorKind.TOPIC_NOT_FOUND)
            self._stats_ms = now
        return self._stats

    def id_of(self, entry: Entry, index: int) -> MessageId:
        if index < 0:
            return MessageId(entry.ledger, entry.entry_id, self.name.partition)
        return MessageId(entry.ledger, entry.entry_id, self.name.partition, index, entry.count)

    # -- entries

    def gap_end(self, entry_id: int) -> int:
        return entry_id

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        if offset >= self.next_offset or self._last == BEFORE_ALL:
            return []
        reader = await self._reader_at(offset)
        found: list[Entry] = []
        size = 0
        try:
            if reader.last is not None and reader.last.offset <= offset < reader.last.end:
                found.append(reader.last)
                size = len(reader.last.data)
            while len(found) < entries_max and size < bytes_max:
                if found and found[-1].end >= self.next_offset:
                    break
                if not await reader.wait(QUIET_S):
                    if not found:
                        raise self._silent()
                    break
                if found and size + len(reader.next_data) > bytes_max:
                    break
                entry = reader.take()
                if entry is None or entry.end <= offset:
                    continue
                found.append(entry)
                size += len(entry.data)
        except BaseException:
            await reader.close()
            raise
        self._readers.keep(reader)
        for entry in found:
            self._remember(entry)
        if found and found[0].offset > offset >= self.first_offset:
            await self._learn_first(again=True)  # it was trimmed, or nothing has that offset
        return found

    read = read_runs = read_at

    async def entry(self, entry_id: int) -> Entry:
        found = await self.read_at(entry_id, 1)
        if not found:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds nothing at {entry_id}")
        return found[0]

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        if self.next_offset > beyond or self.terminated or self.deleted:
            return self.next_offset > beyond
        reader = await self._reader_at(beyond)
        try:
            await reader.wait(timeout_ms / 1000)
        except BaseException:
            await reader.close()
            raise
        entry = reader.peek()
        if reader.end_reached_once:
            self.terminated = True
        self._readers.keep(reader)
        if entry is not None:
            place = entry.ledger, entry.entry_id
            self._last = max(self._last, place)
            self._grew(entry.end)
        return self.next_offset > beyond

    def has_read(self, size: int) -> None:
        self.read_bytes_max = max(self.read_bytes_max, size)

    # -- readers

    async def _reader_at(self, position: int) -> Reader:
        """A reader whose next entries hold `position`, or follow it."""
        self.used_ms = self.clock.monotonic_ms()
        reader = self._readers.take(position)
        if reader is None:
            start, inclusive = await self._start_of(position)
            reader = await self._readers.open(start, inclusive=inclusive, position=position)
        return reader

    async def _start_of(self, position: int) -> tuple[MessageId, bool]:
        """From which id on to read, and whether with it, so that what comes holds `position` or is a little before."""
        if position <= self.first_offset:
            return EARLIEST, True
        known = self._known.get(position)
        if known is not None:
            return MessageId(*known), False
        if position >= self.next_offset:
            return (EARLIEST, True) if self._last == BEFORE_ALL else (MessageId(*self._last), False)
        if not self._numbered:
            return MessageId(*place_of(position)), True
        place = await find_offset(position, await self._internal_stats(), self.entry_at_place)
        return (EARLIEST if place is None else MessageId(*place)), True

    def sweep(self) -> None:
        """Close readers that are not used, and forget subscriptions without consumers here."""
        self._readers.sweep()
        for name, subscription in list(self.subscriptions.items()):
            if not subscription.consumers:
                del self.subscriptions[name]

    def end(self, *, deleted: bool) -> None:
        """The log is used no more."""
        self.deleted = self.deleted or deleted
        self._readers.end()
        for follower in list(self.followers):
            follower()

    # -- followers

    def _follow(self) -> None:
        if self._following is None or self._following.done():
            self._following = self._cluster.context.tasks.spawn(self._look(), f"follow {self.name}")

    async def _look(self) -> None:
        """Look whether the log grew, as long as there are followers."""
        while self.followers and not self.deleted:
            try:
                await self.refresh()
            except (PenstockError, PulsarException):
                await asyncio.sleep(1)  # followers wait until their own timeouts
            await asyncio.sleep(FOLLOW_S)

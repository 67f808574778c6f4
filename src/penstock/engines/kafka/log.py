"""The log of a topic or partition of Kafka: a record is an entry of one message, whose id and offset are Kafka's offset.

Ids rise and may skip, as transactions and compaction leave gaps: what a read returns has none, and what lies between the id
that was asked for and the first entry is no record. A log with followers is followed itself, and its newest entries are held
in memory; other positions are read by readers that all logs share. Its bounds are those learned last.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, TypeVar, cast

from penstock.broker.log import LogBounds
from penstock.engines.shared.tail import Followers, Tail, follow_until
from penstock.model.entry import Entry, RecordRun, Stretch
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .driver.fetcher import Fetcher
from .driver.reader import OutOfRange
from .driver.record import At, Record, contiguous
from .framing import Framing, UnknownSchemas
from .naming import Place, ledger_of
from .records import entries_of, runs_of
from .schema_registry.formats import FramedSchemas

log = logging.getLogger(__name__)

AGAIN_S: Final = 1.0  # after the cluster could not be asked
IDLE_MS: Final = 10_000  # a log without followers is followed so long: the next one often comes soon
RECENT_MS: Final = 1000  # a log that was asked for so lately is followed from there
BEHIND_MAX: Final = 100  # offsets before the end of a log from which it may be followed
GAPS_MAX: Final = 1024  # that are remembered
LOOKS: Final = 3  # AGAIN_S apart, that do not find a topic: then it is gone
LOOK_MS: Final = (
    60_000  # between checks whether a followed topic exists; deletions are mostly learned earlier
)
READ_BYTES: Final = 1 << 20
TAIL_WAIT_MS: Final = 1000  # for an entry that the log is known to have, and that is on its way here
TRIES: Final = 3  # of a read that retention overtakes
TIME_MAX: Final = 2**63 - 1  # Kafka's
SAMPLE: Final = 100  # entries that sizes are estimated by

T = TypeVar("T", bound=Stretch)
_Made: TypeAlias = Callable[
    [Sequence[Record], int, int, Framing | None], list[T]
]  # what a read makes of records


class KafkaLog:
    """`broker.Log`, and what a subscription reads: entries, positions, followers and the tail of one log."""

    terminated = False
    dense = False

    def __init__(
        self,
        name: TopicName,
        place: Place,
        fetcher: Fetcher,
        clock: Clock,
        framings: FramedSchemas | None = None,
    ) -> None:
        self.name = name
        self.place = place
        self.partition = place.partition
        self.read_bytes_max = READ_BYTES
        self.clock = clock
        self.ledger = place.ledger
        self.first_offset = 0
        self.next_offset = 0
        self.deleted = False
        self.followers: set[Callable[[], None]] = Followers(self._follow)
        self.on_truncated: Callable[[], None] = lambda: None
        # The lowest end of the log since it was truncated. Cursors beyond it do not fit, however long the log is by now. None once
        # all cursors fit.
        self.cut_at: int | None = None
        self.used_ms = clock.monotonic_ms()
        self.framings = framings  # None without a schema registry
        self._fetcher = fetcher
        self._at: At = (place.topic, place.partition)
        self._tail = Tail()
        self._live = False  # whether what comes to the log comes here
        self._expected = 0  # the offset that comes next
        self._beginning = False
        self._wanted_from: int | None = (
            None  # the lowest offset that followers need, if it is close to the end
        )
        self._behind_until = 0  # the end of the log as following began
        self._idle_since_ms: int | None = None
        self._looked_ms = clock.monotonic_ms()
        self._refreshed_ms: int | None = None
        self._gaps: dict[int, int] = {}  # offsets without records: the first, and the one after the last
        self._count = self._bytes = 0  # of entries that were seen

    # -- positions

    async def refresh(self) -> None:
        """Ask for the bounds of the log; raises UNAVAILABLE, TOPIC_NOT_FOUND, and refusals of the cluster."""
        self.used_ms = asked_ms = self.clock.monotonic_ms()
        known = self.next_offset
        first, following = await self._fetcher.ends(self._at)
        if following < known:
            await self._look_whose()
            # It was truncated, or the rest is in open transactions.
            if await self._fetcher.last_end(self._at) < known:
                self._cut(following)
            self.next_offset = following
        self.first_offset = first
        self._refreshed_ms = asked_ms
        self._grow(following)

    async def end_now(self) -> int:
        """The present end of the log; the learned bounds stay. Raises as `refresh`."""
        return (await self._fetcher.ends(self._at))[1]

    async def _look_whose(self) -> None:
        """The log ends before the known end: raise TOPIC_NOT_FOUND if the topic was made again."""
        if not self._is_same(await self._fetcher.topic_id(self.place.topic)):
            self.end(deleted=True)
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.name} was deleted")

    def _cut(self, end: int) -> None:
        extra = {"topic": self._at[0], "partition": self._at[1], "end_before": self.next_offset, "end": end}
        log.warning("a log was truncated", extra=extra)
        self._gaps.clear()
        self._tail.clear()
        began = self.cut_at is None
        self.cut_at = end if self.cut_at is None else min(end, self.cut_at)
        if began:
            self.on_truncated()
        if self._live:
            self.lost()

    async def _look(self) -> None:
        """Check that the topic exists, and its start: arriving records do not show it."""
        try:
            await self.refresh()
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                return
        await self._look_whether()

    def _is_same(self, topic_id: str | None) -> bool:
        """Whether the topic of that id has this log."""
        return topic_id is not None and ledger_of(topic_id, self.place.partition) == self.ledger

    async def _look_whether(self) -> None:
        """The topic was not found, or another one of its name. A new one may not be known everywhere yet: it is looked for a few times."""
        for left in range(LOOKS - 1, -1, -1):
            try:
                found = await self._fetcher.topic_id(self.place.topic)
            except PenstockError:
                return  # unknown
            if self._is_same(found):
                return
            if found is not None:
                break
            if left:
                await asyncio.sleep(AGAIN_S)
        self.end(deleted=True)

    def _grow(self, end: int) -> None:
        if end > self.next_offset:
            self.next_offset = end
            self.wake()

    def stored(self, end: int) -> None:
        """A record was stored before `end`. A followed log grows when the record arrives: then it can be delivered, too."""
        if not self._live:
            self._grow(end)

    def wake(self) -> None:
        """The log grew or ended: notify its followers."""
        for follower in list(self.followers):
            follower()

    def gap_end(self, entry_id: int) -> int:
        """The id that follows the gap that begins at `entry_id`, as far as it was seen; `entry_id` if there is none."""
        while (end := self._gaps.get(entry_id)) is not None:  # one may have been seen in parts
            entry_id = end
        return entry_id

    def _gap(self, start: int, end: int) -> None:
        if start < end:
            if len(self._gaps) >= GAPS_MAX:
                self._gaps.clear()
            self._gaps[start] = end

    def _measure(self, found: Sequence[Stretch]) -> int:
        """The bytes of entries; the mean of recent ones estimates the rest."""
        size = sum([one.size_bytes if isinstance(one, RecordRun) else len(one.data) for one in found])
        if self._count > 10_000:
            self._count, self._bytes = self._count // 2, self._bytes // 2
        self._count += sum([one.count for one in found])
        self._bytes += size
        return size

    # -- following

    def need_from(self, offset: int) -> None:
        """The next follower reads from an offset on. If few records are missing, the log is followed from there: many logs share the
        requests for them, as when a process gets the slots of another one."""
        if not self._live and self.next_offset - BEHIND_MAX <= offset < self.next_offset:
            self._wanted_from = offset if self._wanted_from is None else min(offset, self._wanted_from)

    def _follow(self) -> None:
        """There is a follower."""
        if not (self._live or self._beginning or self.deleted):
            self._beginning = True
            self._fetcher.tasks.spawn(self._begin(), f"follow {self.name}")

    async def _begin(self, delay_s: float = 0.0) -> None:
        """Have what comes to the log come here, as soon as the cluster can be asked."""
        try:
            await asyncio.sleep(delay_s)
            asked_ms = self._refreshed_ms
            is_known = (
                not delay_s and asked_ms is not None and self.clock.monotonic_ms() - asked_ms <= RECENT_MS
            )
            while self.followers and not self.deleted:
                try:
                    if not is_known:
                        await self.refresh()
                    is_known = False
                    if delay_s:  # reading failed: the topic may be another one, and longer
                        await self._look_whose()
                    self._tail.clear()
                    self._expected = self._start()
                    self._live = True
                    await self._fetcher.follow(self._at, self._expected, self)
                    if self._live:
                        return
                except PenstockError as error:
                    self._live = False
                    if error.kind is ErrorKind.TOPIC_NOT_FOUND:
                        await self._look_whether()
                await asyncio.sleep(AGAIN_S)
        finally:
            self._beginning = False

    def _start(self) -> int:
        """The offset from which the log is followed."""
        wanted, self._wanted_from = self._wanted_from, None
        self._behind_until = end = self.next_offset
        if wanted is None or wanted < end - BEHIND_MAX:  # the log has grown since
            return end
        return max(self.first_offset, min(wanted, end))

    def _is_coming(self, entry_id: int) -> bool:
        """Whether an entry that the log has comes here soon. A free reader brings those that are older than the following sooner."""
        if self._live:
            is_new = entry_id >= self._behind_until
            return entry_id >= self._expected and (is_new or self._fetcher.busy)
        return (
            self._beginning
            and self._wanted_from is not None
            and entry_id >= self._wanted_from
            and self._fetcher.busy
        )

    def arrived(self, records: Sequence[Record]) -> None:
        """As `driver.tail.Follower.arrived`."""
        if not self._live:
            return
        first = records[0].offset()
        if first < self._expected:
            records = [record for record in records if record.offset() >= self._expected]
        while records:
            first = records[0].offset()
            count = contiguous(records, first)
            try:
                framing = None if self.framings is None else self.framings.framing(self.name)
                entries = entries_of(records[:count], first, self.ledger, framing)
            except UnknownSchemas as unknown:
                self._learn_first(unknown, records[-1].offset() + 1)
                return
            self._gap(self._expected, first)
            self._fetcher.tails.put(self._tail, entries, self._measure(entries))
            self._expected = first + count
            records = records[count:]
        self.next_offset = max(self.next_offset, self._expected)
        self.wake()

    def _learn_first(self, unknown: UnknownSchemas, end: int) -> None:
        """Records name unknown schemas: they, and records that arrive until then, are read like older ones."""
        self._live = False
        self._beginning = True
        self._fetcher.tasks.spawn(self._learn_and_begin(unknown), f"learn the schemas of {self.name}")
        self.next_offset = max(self.next_offset, end)
        self.wake()

    async def _learn_and_begin(self, unknown: UnknownSchemas) -> None:
        try:
            await self._fetcher.leave(self._at)
            if self.framings is not None:
                await self.framings.learn_ids(self.name, unknown)
        finally:
            self._beginning = False
            if self.followers:
                self._follow()

    def reached(self, offset: int) -> None:
        """As `driver.tail.Follower.reached`."""
        if self._live and offset > self._expected:
            self._gap(self._expected, offset)
            self._expected = offset
            self.next_offset = max(self.next_offset, offset)
            self.wake()

    def truncated(self) -> None:
        """As `driver.tail.Follower.truncated`. The end of the log is not known: it may have grown since."""
        if self._live:
            self._cut(self.first_offset)

    def lost(self) -> None:
        """As `driver.tail.Follower.lost`: missed records are read like older ones."""
        self._live = False
        self.wake()  # waiting readers read it another way
        if not self._beginning:
            self._beginning = True
            self._fetcher.tasks.spawn(self._begin(AGAIN_S), f"follow {self.name}")

    # -- the end

    def sweep(self) -> None:
        """To be called every second or so. Look after a log that is followed; leave it when it had no followers for some time."""
        now = self.clock.monotonic_ms()
        if not self._live:
            return
        if self.followers:
            self._idle_since_ms = None
            if now - self._looked_ms >= LOOK_MS:
                self._looked_ms = now
                self._fetcher.tasks.spawn(self._look(), f"look at {self.name}")
        elif self._idle_since_ms is None:
            self._idle_since_ms = now
        elif now - self._idle_since_ms >= IDLE_MS:
            self._quit()

    def end(self, *, deleted: bool) -> None:
        """The log is used no more."""
        self.deleted = self.deleted or deleted
        self._quit()
        self.wake()

    def _quit(self) -> None:
        self._idle_since_ms = None
        if self._live:
            self._live = False
            self._tail.clear()
            self._fetcher.tasks.spawn(self._fetcher.leave(self._at), f"leave {self.name}")

    @property
    def first_entry(self) -> int:
        return self.first_offset

    @property
    def next_entry(self) -> int:
        return self.next_offset

    @property
    def size_bytes(self) -> int:
        """Estimated by the entries that were seen here."""
        return (self.next_offset - self.first_offset) * self._bytes // max(1, self._count)

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

    # -- entries

    def peek(self, entry_id: int) -> Entry | None:
        return self._tail.get(entry_id)

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        return self._tail.slice(entry_id, entries_max, READ_BYTES)

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        return await self._read(entries_of, entry_id, entries_max, bytes_max)

    async def read_runs(
        self, entry_id: int, entries_max: int, bytes_max: int = READ_BYTES
    ) -> Sequence[Stretch]:
        return await self._read(runs_of, entry_id, entries_max, bytes_max)

    async def _read(self, made: _Made[T], entry_id: int, entries_max: int, bytes_max: int) -> list[T]:
        self.used_ms = self.clock.monotonic_ms()
        entry_id = max(entry_id, self.first_offset)
        if entry_id >= self.next_offset:
            return []
        if self._is_coming(entry_id):
            await follow_until(
                self.followers, lambda: self.deleted or not self._is_coming(entry_id), TAIL_WAIT_MS
            )
        held = self._tail.slice(self.gap_end(entry_id), entries_max, bytes_max)
        return cast(list[T], held) or await self._fetch(made, entry_id, entries_max, bytes_max)

    async def _fetch(self, made: _Made[T], entry_id: int, entries_max: int, bytes_max: int) -> list[T]:
        for _ in range(TRIES):
            try:
                found = await self._fetcher.read(self._at, entry_id, entries_max, bytes_max, self.next_offset)
            except OutOfRange:
                await self.refresh()
                entry_id = max(entry_id, self.first_offset)
                if entry_id >= self.next_offset:
                    return []
                continue
            if not found.records:
                self._gap(entry_id, found.end)
                return []
            first = found.records[0].offset()
            self._gap(entry_id, first)
            opened = await self._opened(made, found.records, first)
            self._measure(opened)
            return opened
        raise PenstockError(ErrorKind.UNAVAILABLE, f"entries of {self.name} are deleted as they are read")

    async def _opened(self, made: _Made[T], records: Sequence[Record], first: int) -> list[T]:
        """The entries of records; schemas that they name are learned first."""
        framings = self.framings
        if framings is None:
            return made(records, first, self.ledger, None)
        while True:
            try:
                return made(records, first, self.ledger, framings.framing(self.name))
            except UnknownSchemas as unknown:
                await framings.learn_ids(self.name, unknown)

    async def read_at(self, offset: int, entries_max: int, bytes_max: int = READ_BYTES) -> list[Entry]:
        return await self.read(offset, entries_max, bytes_max)

    async def entry(self, entry_id: int) -> Entry:
        if entry_id >= self.next_offset:
            await self.refresh()
        found = await self.read(entry_id, 1) if entry_id >= self.first_offset else []
        if not found or found[0].entry_id != entry_id:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, f"{self.name} holds no entry {entry_id}")
        return found[0]

    async def grown(self, beyond: int, timeout_ms: float) -> bool:
        await follow_until(self.followers, lambda: self.deleted or self.next_offset > beyond, timeout_ms)
        return self.next_offset > beyond

    def has_read(self, size: int) -> None:
        self.read_bytes_max = max(self.read_bytes_max, size)

    # -- search

    async def entry_at(self, offset: int) -> int:
        return min(max(offset, self.first_offset), self.next_offset)

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id == EARLIEST:
            return self.first_offset
        if message_id == LATEST:
            return self.next_offset
        if message_id.ledger != self.ledger:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"message id {message_id} is not of {self.name}")
        if message_id.entry >= self.next_offset:
            await self.refresh()
        # An entry that a client made of a batch became several records: their ids count from the first one's.
        offset = message_id.entry + max(0, message_id.batch_index) + (0 if inclusive else 1)
        return min(max(offset, self.first_offset), self.next_offset)

    async def offset_at_time(self, publish_time: int) -> int:
        found = await self._fetcher.at_time(self._at, min(max(0, publish_time), TIME_MAX))
        return self.next_offset if found < 0 else found

    async def size_since(self, entry_id: int) -> int:
        """As `broker.Log.size_since`, estimated by the entries that were seen here."""
        count = self.next_offset - max(entry_id, self.first_offset)
        if count <= 0:
            return 0
        await self._sample()
        return count * self._bytes // max(1, self._count)

    async def find_size(self, size_bytes: int) -> Entry | None:
        """As `broker.Log.find_size`, estimated in the same way."""
        await self._sample()
        count = size_bytes * self._count // max(1, self._bytes)
        found = await self.read(self.next_offset - count, 1) if count else []
        return found[0] if found else None

    async def _sample(self) -> None:
        if not self._count and self.next_offset > self.first_offset:
            await self.read(max(self.first_offset, self.next_offset - SAMPLE), SAMPLE)

    def id_of(self, entry: Entry, index: int) -> MessageId:
        return MessageId(self.ledger, entry.entry_id, self.name.partition)

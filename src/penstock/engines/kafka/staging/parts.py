"""Stages: the entries of a part as records of one topic, and a row of a table with their positions.

A part may come more than once, by different processes: each attempt to store it has a separate row, written when its entries
are stored, and the first one counts. A row names one version for itself and for the records of the part.
"""

import logging
import secrets
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

import msgspec

from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.fetcher import Fetcher
from penstock.engines.kafka.driver.producer import RecordProducer
from penstock.engines.kafka.driver.reader import RECORDS_MAX, OutOfRange
from penstock.engines.kafka.driver.record import At, NewRecord, Record
from penstock.engines.kafka.driver.shared_log import CompactedTopic, Row
from penstock.engines.kafka.internal import COMMITS, PARTS, STAGED
from penstock.engines.shared.documents import UnknownVersion
from penstock.engines.staging.batches import Batch, Share, outline_of
from penstock.engines.staging.ports import Outline, Runs
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import PARTS as PART_FORMAT
from penstock.model.formats import Format
from penstock.model.stage import StageKey
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import finished

log = logging.getLogger(__name__)

PARTITIONS: Final = 8  # of the topic of stages
WAIT_MS: Final = 50  # until it is known that a table ends with the marker of a transaction
SEGMENT_MS: Final = 3_600_000
SEGMENT_BYTES: Final = 128 << 20
_TABLE: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
READ_BYTES: Final = 1 << 20
SETTLED_MS: Final = 600_000  # after its entries a part has its row, or never: its process was stopped
_COUNT: Final = Struct(">I")  # of messages, before an entry


class Space:
    """Names begin with `prefix`; stages expire after `timeout_ms`."""

    def __init__(self, cluster: KafkaCluster, prefix: str, timeout_ms: int, message_bytes_max: int) -> None:
        self.cluster = cluster
        self.entries = prefix + STAGED  # the entries of parts
        self.parts = prefix + PARTS  # the positions of the parts' entries
        self.commits = prefix + COMMITS  # written in the transactions of the batches
        self.transactional_prefix = f"{prefix}-"
        self._timeout_ms = timeout_ms
        self._message_bytes_max = message_bytes_max

    async def create(self) -> None:
        """Create missing topics. Raises UNAVAILABLE, also if this server may not."""
        await self._create(self.parts, 1, _TABLE)
        await self._create(self.commits, 1, _TABLE)
        entries = {
            "cleanup.policy": "delete",
            "retention.ms": str(2 * self._timeout_ms),  # no part of a batch is gone before the batch
            "retention.bytes": "-1",
            "segment.ms": str(max(60_000, min(self._timeout_ms, SEGMENT_MS))),
            "segment.bytes": str(SEGMENT_BYTES),
            "max.message.bytes": str(self._message_bytes_max + (64 << 10)),
        }
        await self._create(self.entries, PARTITIONS, entries)

    async def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        try:
            await self.cluster.have(topic, partitions, config)
        except PenstockError as error:
            if error.kind is not ErrorKind.FORBIDDEN:
                raise
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"this server needs the topic {topic} for what is staged: {error.message}",
            ) from None

    async def start_table(
        self, topic: str, changed: Callable[[list[Row]], None], format: Format
    ) -> CompactedTopic:
        """Read one of the two tables, and follow it. Raises UNAVAILABLE."""
        table = CompactedTopic(self.cluster.admin, topic, changed, lambda _: format, WAIT_MS)
        try:
            await table.start()
        except BaseException:
            await table.close()
            raise
        return table


_keys: Final = msgspec.json.Decoder(tuple[str, int, str, int, str])  # writer, batch, stage, part, attempt


class Run(msgspec.Struct, frozen=True, array_like=True):
    """Entries of a part for one topic, in order."""

    topic: str
    entries: int
    messages: int
    size_bytes: int


class Part(msgspec.Struct, frozen=True):
    """A part that is stored: records of a partition from `first` to `last` whose key is the attempt's."""

    checksum: int
    at: int  # ms since the epoch
    partition: int
    first: int
    last: int
    runs: tuple[Run, ...]


_parts: Final = msgspec.json.Decoder(Part)


class Staged(Batch):
    """The parts of a batch, by their rows, as they came."""

    def __init__(self, writer: str, number: int) -> None:
        super().__init__(writer, number)
        self.rows: dict[str, tuple[str, int, Part]] = {}  # stage, number and part

    def add(self, row: str, name: str, number: int, part: Part) -> None:
        """A row came."""
        self.rows[row] = name, number, part
        shares = (Share(0, run.topic, run.messages, run.size_bytes) for run in part.runs)
        self.add_part(name, number, part.checksum, part.at, shares)

    def parts_of(self, stage: str) -> list[tuple[str, Part]]:
        """The attempts that count of a stage's parts, in the order of the parts."""
        first: dict[int, tuple[str, Part]] = {}
        for row, (name, number, part) in self.rows.items():
            if name == stage:
                first.setdefault(number, (_keys.decode(row)[4], part))
        return [first[number] for number in sorted(first)]


class KafkaParts:
    """`staging.Parts`: every process has the table of all writers."""

    def __init__(self, space: Space, records: RecordProducer, fetcher: Fetcher, clock: Clock) -> None:
        self._space = space
        self._records = records
        self._fetcher = fetcher
        self._clock = clock
        self._batches: defaultdict[str, dict[int, Staged]] = defaultdict(dict)
        self._newer: dict[str, UnknownVersion] = {}  # rows of unknown versions
        self._table: CompactedTopic | None = None
        self._ends: deque[tuple[int, dict[At, int]]] = deque()  # the ends of the partitions, by time

    async def start(self) -> None:
        if self._table is None:
            await self._space.create()
            self._table = await self._space.start_table(self._space.parts, self._changed, PART_FORMAT)

    async def close(self) -> None:
        if self._table is not None:
            await self._table.close()

    async def _catch_up(self) -> None:
        """Know what all processes have stored until now. Raises UNAVAILABLE."""
        await self._there.catch_up(committed=False)

    @property
    def _there(self) -> CompactedTopic:
        assert self._table is not None, "it was started"
        return self._table

    def _changed(self, rows: list[Row]) -> None:
        again: set[tuple[str, int]] = set()
        for row, value in rows:
            if isinstance(value, UnknownVersion):
                if not self._newer:  # logged once
                    log.error("a staged part has an unknown version", extra={"reason": value.error.message})
                self._newer[row] = value
                continue
            if self._newer.pop(row, None) is not None and value is None:
                continue  # a newer process has deleted it
            writer, batch, stage, number, _ = _keys.decode(row)
            batches = self._batches[writer]
            if value is not None:
                found = batches.setdefault(batch, Staged(writer, batch))
                if row not in found.rows:
                    found.add(row, stage, number, _parts.decode(value))
            elif batch in batches and batches[batch].rows.pop(row, None) is not None:
                again.add((writer, batch))
        for writer, batch in again:
            self._count_again(writer, batch)

    def _count_again(self, writer: str, batch: int) -> None:
        """Some rows of a batch are gone."""
        left = Staged(writer, batch)
        for row, (stage, number, part) in self._batches[writer].pop(batch).rows.items():
            left.add(row, stage, number, part)
        if left.rows:
            self._batches[writer][batch] = left
        elif not self._batches[writer]:
            del self._batches[writer]

    # -- what there is

    def known(self, writer: str) -> Mapping[int, Staged]:
        return self._batches.get(writer, {})

    def _check(self, writer: str, batch: int | None = None) -> None:
        """Raise NEWER_FORMAT if a batch of a writer, or any of its batches, has parts of unknown versions."""
        for row, unknown in self._newer.items():
            of, number = _batch_of(row)
            if of == writer and batch in (None, number):
                raise unknown.new_error()

    def held(self, writer: str, batch: int) -> Staged:
        """A batch as far as the table was read. Raises NEWER_FORMAT."""
        self._check(writer, batch)
        return self.known(writer).get(batch) or Staged(writer, batch)

    async def batch(self, writer: str, number: int) -> Staged:
        await self._catch_up()
        return self.held(writer, number)

    async def batches(self, writer: str) -> Mapping[int, Staged]:
        await self._catch_up()
        self._check(writer)
        return dict(self.known(writer))

    async def outlines(self, writers: Sequence[str]) -> Sequence[Outline]:
        await self._catch_up()
        return [outline_of(self.known(writer)) for writer in writers]

    # -- changes

    async def put(self, key: StageKey, part: int, checksum: int, runs: Runs, origin: str) -> None:
        if self.held(key.writer, key.batch).has_part(key.stage, part, checksum):
            return
        attempt = secrets.token_hex(8)
        place: At = (self._space.entries, crc32(msgspec.json.encode(key)) % PARTITIONS)
        if self._records.full:
            await self._records.room()
        records = [NewRecord(_stored(entry), attempt.encode()) for _, entries in runs for entry in entries]
        offsets = []
        for outcome in await finished(self._records.send(place, records).future):
            if isinstance(outcome, PenstockError):
                raise outcome
            offsets.append(outcome)
        stored = tuple(_run_of(str(topic.name), entries) for topic, entries in runs)
        value = Part(checksum, self._clock.now_ms(), place[1], min(offsets), max(offsets), stored)
        row = msgspec.json.encode((key.writer, key.batch, key.stage, part, attempt)).decode()
        await self._there.append([(row, msgspec.json.encode(value))])

    async def drop(self, held: Staged, stages: Collection[str]) -> None:
        rows = self.held(held.writer, held.number).rows
        gone = [row for row, (stage, *_) in rows.items() if stage in stages]
        if gone:
            await self._there.append([(row, None) for row in gone])

    def expired(self, before: int) -> Sequence[Staged]:
        newer = set(map(_batch_of, self._newer))
        staged = [held for batches in self._batches.values() for held in batches.values()]
        return [held for held in staged if held.at <= before and (held.writer, held.number) not in newer]

    async def sweep(self) -> None:
        """Have Kafka delete the entries that no part refers to any more; none while rows of unknown versions may refer to them."""
        await self._catch_up()
        if self._newer:
            return
        now, admin = self._clock.monotonic_ms(), self._space.cluster.admin
        places: list[At] = [(self._space.entries, number) for number in range(PARTITIONS)]
        self._ends.append((now, await admin.ends(places)))
        if self._ends[0][0] > now - SETTLED_MS:
            return
        while len(self._ends) > 1 and self._ends[1][0] <= now - SETTLED_MS:
            self._ends.popleft()
        bounds = dict(self._ends[0][1])
        for batches in self._batches.values():
            for staged in batches.values():
                for _, _, part in staged.rows.values():
                    at = (self._space.entries, part.partition)
                    bounds[at] = min(bounds[at], part.first)
        begins = await admin.begins(places)
        more = {at: bound for at, bound in bounds.items() if bound > begins[at]}
        if more:
            await admin.delete_records(more)

    # -- entries

    async def entries_of(self, attempt: str, part: Part) -> AsyncGenerator[tuple[str, Sequence[NewEntry]]]:
        """The entries of a part, in order, each run of them with its topic. Raises STAGE_NOT_FOUND, UNAVAILABLE."""
        at, key, offset = (self._space.entries, part.partition), attempt.encode(), part.first
        runs = [run for run in part.runs if run.entries]
        left = [run.entries for run in runs]
        while offset <= part.last:
            try:
                found = await self._fetcher.read(at, offset, RECORDS_MAX, READ_BYTES, part.last + 1)
            except OutOfRange:
                raise PenstockError(
                    ErrorKind.STAGE_NOT_FOUND, "what was staged is gone: it is not kept for so long"
                ) from None
            offset = found.records[-1].offset() + 1 if found.records else found.end
            own = _own(found.records, key)
            while own:
                topic, count = runs[0].topic, min(left[0], len(own))
                yield topic, own[:count]
                del own[:count]
                left[0] -= count
                if not left[0]:
                    del left[0], runs[0]
        if left:
            raise PenstockError(ErrorKind.STAGE_NOT_FOUND, "a part of what was staged is gone")


def _batch_of(row: str) -> tuple[str, int]:
    """The writer and batch of a row; "" and -1 if its key cannot be decoded."""
    try:
        return _keys.decode(row)[:2]
    except msgspec.DecodeError:
        return "", -1


def _stored(entry: NewEntry) -> bytes:
    return _COUNT.pack(entry.count) + entry.data


def _own(records: Sequence[Record], key: bytes) -> list[NewEntry]:
    values = [record.value() or b"" for record in records if record.key() == key]
    return [NewEntry(value[_COUNT.size :], _COUNT.unpack_from(value)[0], 0) for value in values]


def _run_of(topic: str, entries: Sequence[NewEntry]) -> Run:
    return Run(
        topic,
        len(entries),
        sum([entry.count for entry in entries]),
        sum([len(entry.data) for entry in entries]),
    )

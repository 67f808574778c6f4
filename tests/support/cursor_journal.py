"""A journal without a broker: one log, and a reader and writer of it for each process, which move when a test says so."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.engines.kafka.driver.record import Header
from penstock.engines.kafka.driver.shared_log import JournalReader, JournalRecord
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.state import JournalState
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

SLOTS = 2


class Log:
    """All records that were ever stored, and the first one that is left."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.begin = 0

    def append(self, key: bytes, value: bytes, headers: Sequence[Header]) -> int:
        self.records.append(JournalRecord(len(self.records), key, value, headers))
        return len(self.records) - 1

    def state(self, begin: int, slots: int = SLOTS) -> JournalState:
        """What a process knows that reads from an offset on."""
        state = JournalState(slots)
        for record in self.records[begin:]:
            state.apply(record)
        return state


class _Write(msgspec.Struct, eq=False):
    record: tuple[bytes, bytes, Sequence[Header]]
    stored: "asyncio.Future[int]"


class FakeJournal:
    """`JournalPort`. `auto` stores and reads at once; otherwise `store` and `read_on` do."""

    topic = "journal"

    def __init__(self, log: Log, reader: JournalReader, *, auto: bool = True) -> None:
        self.log = log
        self.begin = log.begin
        self.position = log.begin
        self.auto = auto
        self.trims: list[int] = []
        self._reader = reader
        self.late: list[_Write] = []
        self._writes: deque[_Write] = deque()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        self.read_on(len(self.log.records))

    async def append(self, key: bytes, value: bytes, headers: Sequence[Header] = ()) -> int:
        future = asyncio.get_running_loop().create_future()
        self._writes.append(_Write((key, value, headers), future))
        if self.auto:
            self.store()
        offset = await future
        if self.auto:
            self.read_on(len(self.log.records))
        if self.position <= offset:
            read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, read))
            await read
        return offset

    async def trim(self, offset: int) -> None:
        self.log.begin = max(self.log.begin, offset)
        self.begin = self.log.begin
        self.trims.append(offset)

    async def close(self) -> None:
        """Nothing runs."""

    @property
    def writes(self) -> int:
        """Records under way."""
        return len(self._writes)

    def store(self) -> None:
        """The oldest record under way is stored."""
        write = self._writes.popleft()
        offset = self.log.append(*write.record)
        if not write.stored.done():
            write.stored.set_result(offset)

    def lose(self) -> None:
        """The oldest record under way is never stored."""
        self._fail(self._writes.popleft())

    def give_up(self) -> None:
        """The writer of each record under way is told that nobody knows what becomes of it; it may be stored late."""
        while self._writes:
            write = self._writes.popleft()
            self._fail(write)
            self.late.append(write)

    def store_late(self, number: int = 0) -> None:
        """One of those is stored after all, after others that were sent later."""
        self.log.append(*self.late.pop(number).record)

    @staticmethod
    def _fail(write: _Write) -> None:
        if not write.stored.done():
            write.stored.set_exception(PenstockError(ErrorKind.UNAVAILABLE, "timed out"))

    def read_on(self, count: int) -> None:
        """Read so many records; what was trimmed before it was read is noticed."""
        if self.position < self.log.begin:
            self.position = self.begin = self.log.begin
            self._reader.restarted()
        records = self.log.records[self.position : self.position + count]
        if records:
            self._reader.read(records)
            self.position += len(records)
        for offset, future in [one for one in self._waiting if one[0] < self.position]:
            self._waiting.remove((offset, future))
            if not future.done():
                future.set_result(None)


class Told:
    """What a listener was told."""

    def __init__(self) -> None:
        self.gone: list[int] = []
        self.errors: list[PenstockError] = []

    def replaced(self, slots: Sequence[int]) -> None:
        self.gone += slots

    def refused(self, error: PenstockError) -> None:
        self.errors.append(error)


class Process:
    """A process of the service: its `Cursors` over a fake journal."""

    def __init__(
        self,
        log: Log,
        name: str = "a",
        *,
        auto: bool = True,
        listener: Any = None,
        group: str = "penstock-x",
        slots: int = SLOTS,
    ) -> None:
        self.told = Told()
        self.tasks = Tasks()
        self.name = name
        make: Callable[[JournalReader], FakeJournal] = partial(FakeJournal, log, auto=auto)
        self.cursors = Cursors(
            self._keep(make),
            self.tasks,
            Failures(LoopClock()),
            group=group,
            process=name,
        )
        self.cursors.set_slots(slots)
        self.cursors.on_replaced.append((listener or self.told).replaced)
        self.cursors.on_refused.append(self.told.refused)

    def _keep(self, make: Callable[[JournalReader], FakeJournal]) -> Callable[[JournalReader], FakeJournal]:
        def made(reader: JournalReader) -> FakeJournal:
            self.journal = make(reader)
            return self.journal

        return made

    async def close(self) -> None:
        await self.cursors.close()
        await self.tasks.close()

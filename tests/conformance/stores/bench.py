"""A store that the tests of a suite can stop and start again."""

import struct
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.engines.core.ports import Store
from penstock.model.entry import Entry, NewEntry, RecordRun
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import StageKey, StageRun

TOPIC = "persistent://public/default/suite"
ALL = 1 << 30  # a bound that bounds nothing here


def entry(data: bytes = b"data", count: int = 1, publish_time: int = 1000, **more: object) -> NewEntry:
    """An entry to append."""
    return NewEntry(data, count, publish_time, **more)  # type: ignore[arg-type]


class Bench:
    """A running store that can be stopped and started."""

    def __init__(self, suite: "PortSuite", folder: Path) -> None:
        self._suite = suite
        self._folder = folder
        self.store = suite.make(folder)

    async def reopen(self) -> None:
        """Close the store and start one over what it left; one that leaves nothing goes on as it is."""
        if not self._suite.durable:
            return
        await self.store.close()
        self.store = self._suite.make(self._folder)
        await self.store.start()

    async def log(self, topic: str = TOPIC) -> int:
        """The ledger of a topic."""
        return (await self.store.open(topic)).ledger

    async def read(self, ledger: int, start: int = 0) -> list[Entry]:
        """All entries from `start` on."""
        found: list[Entry] = []
        while True:
            more = await self.store.read(ledger, start, 1000, ALL)
            if not more:
                return found
            found += more
            start = more[-1].entry_id + 1

    async def read_runs(
        self, ledger: int, start: int, entries_max: int = 1000
    ) -> list[tuple[int, int, int, bytes]]:
        """Id, offset, messages and data of all entries from `start` on, as they are read in runs."""
        found: list[tuple[int, int, int, bytes]] = []
        while some := await self.store.read_runs(ledger, start, entries_max, ALL):
            for one in some:
                assert not isinstance(one, RecordRun)
                assert one.ledger == ledger
                if isinstance(one, Entry):
                    found.append((one.entry_id, one.offset, one.count, one.data))
                    continue
                sizes = struct.unpack(f"<{one.count}I", one.sizes)
                for n, end in enumerate(accumulate(sizes)):
                    found.append((one.entry_id + n, one.offset + n, 1, one.data[end - sizes[n] : end]))
                assert sum(sizes) == len(one.data)
            start = some[-1].next_entry
        return found

    async def stage(
        self,
        stage: str,
        part: int,
        ledger: int,
        *entries: NewEntry,
        topic: str = TOPIC,
        writer: str = "w",
        batch: int = 0,
    ) -> None:
        """Stage entries for one log."""
        key = StageKey(writer, batch, stage)
        await self.store.stage(key, part, 0, 1, [StageRun(ledger, topic, entries)])

    async def refused(self, ledger: int, entries: Sequence[NewEntry]) -> ErrorKind:
        """The kind of error that an append raises."""
        with pytest.raises(PenstockError) as caught:
            await self.store.append(ledger, entries)
        return caught.value.kind


class PortSuite:
    """Tests of one part of a store; `make` says how one is made."""

    pytestmark = pytest.mark.anyio
    durable: ClassVar[bool] = True

    def make(self, folder: Path) -> Store:
        """A store over `folder`, not yet started."""
        raise NotImplementedError

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = Bench(self, tmp_path)
        await bench.store.start()
        yield bench
        await bench.store.close()

"""A store that the tests of a suite can stop and start again."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.engines.core.ports import Store
from penstock.model.entry import Entry, NewEntry
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

"""The durable log against the one in memory: appends that share rows or not, trims, searches and restarts in any order."""

import asyncio
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.engines.core.ports import Store
from penstock.engines.memory import MemoryStore
from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.check import check
from penstock.engines.sqlite.runs import RUN_ENTRIES_MAX, SMALL_BYTES
from penstock.model.entry import Entry, NewEntry, NewRun

T = TypeVar("T")

TOPICS = ("persistent://public/default/a", "persistent://public/default/b")
LEDGERS = st.integers(0, 1)
# Most entries are small, with one message, and published at the time of the one before: they may share a row.
SIZES = st.sampled_from([0, 1, 10, 100, 100, 100, SMALL_BYTES, SMALL_BYTES + 1, 20_000])
ENTRIES = st.lists(
    st.tuples(
        SIZES,
        st.sampled_from([1, 1, 1, 1, 3]),
        st.sampled_from([0, 0, 0, 0, 1]),
        st.sampled_from([0] * 9 + [5]),
    ),
    max_size=12,
)
MANY = st.tuples(
    st.integers(0, 2 * RUN_ENTRIES_MAX + 2), st.sampled_from([0, 7, 300, SMALL_BYTES, SMALL_BYTES + 1])
)
FRACTION = st.floats(0, 1.1)


class LogMachine(RuleBasedStateMachine):
    """Both stores are asked the same, and say the same."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        self.now = 1
        self.memory = MemoryStore()
        self.sqlite = SqliteStore(Path(self.folder.name))
        self.wait(self.begin())

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def begin(self) -> None:
        for store in self.stores():
            await store.start()
            assert [(await store.open(topic)).ledger for topic in TOPICS] == [0, 1]
        await self.sqlite.save_meta([("topic", topic, b"{}") for topic in TOPICS])

    def stores(self) -> tuple[Store, Store]:
        return self.memory, self.sqlite

    async def append(self, calls: list[tuple[int, Sequence[NewEntry]]]) -> None:
        """At once, so that they are one commit."""
        expected, found = [
            await asyncio.gather(*(store.append(ledger, entries) for ledger, entries in calls))
            for store in self.stores()
        ]
        assert found == expected

    @rule(calls=st.lists(st.tuples(LEDGERS, ENTRIES), min_size=1, max_size=4))
    def append_some(self, calls: list[tuple[int, list[tuple[int, int, int, int]]]]) -> None:
        made: list[tuple[int, Sequence[NewEntry]]] = []
        for ledger, given in calls:
            entries = []
            for number, (size, count, later, deliver_at) in enumerate(given):
                self.now += later
                entries.append(NewEntry(bytes([number]) * size, count, self.now, deliver_at))
            made.append((ledger, entries))
        self.wait(self.append(made))

    @rule(ledger=LEDGERS, many=MANY, by_columns=st.booleans(), times=st.integers(1, 2))
    def append_many(self, ledger: int, many: tuple[int, int], by_columns: bool, times: int) -> None:
        count, size = many
        data = [bytes([number % 256]) * size for number in range(count)]
        entries = NewRun(data, self.now) if by_columns else [NewEntry(one, 1, self.now) for one in data]
        self.wait(self.append([(ledger, entries)] * times))

    @rule(ledger=LEDGERS, fraction=FRACTION)
    def trim(self, ledger: int, fraction: float) -> None:
        async def run() -> None:
            state = await self.memory.open(TOPICS[ledger])
            before = state.first_entry + round(fraction * (state.next_entry - state.first_entry))
            expected, found = [await store.trim(ledger, before) for store in self.stores()]
            assert found == expected

        self.wait(run())

    @rule()
    def reopen(self) -> None:
        async def run() -> None:
            await self.sqlite.close()
            self.sqlite = SqliteStore(Path(self.folder.name))
            await self.sqlite.start()

        self.wait(run())

    @rule(
        ledger=LEDGERS, fraction=FRACTION, entries_max=st.integers(1, 300), bytes_max=st.integers(0, 40_000)
    )
    def read(self, ledger: int, fraction: float, entries_max: int, bytes_max: int) -> None:
        async def run() -> None:
            state = await self.memory.open(TOPICS[ledger])
            expected, found = [
                await store.read(ledger, round(fraction * state.next_entry), entries_max, bytes_max)
                for store in self.stores()
            ]
            assert found == expected

        self.wait(run())

    @rule(ledger=LEDGERS, fraction=FRACTION)
    def search(self, ledger: int, fraction: float) -> None:
        async def run() -> None:
            state = await self.memory.open(TOPICS[ledger])
            offset = round(fraction * state.next_offset)
            time, size = round(fraction * self.now), round(fraction * state.size_bytes)
            expected, found = [
                [
                    await store.find_offset(ledger, offset),
                    await store.find_time(ledger, time),
                    await store.find_size(ledger, size),
                    await store.size_since(ledger, round(fraction * state.next_entry)),
                ]
                for store in self.stores()
            ]
            assert found == expected

        self.wait(run())

    @invariant()
    def both_are_in_the_same_state(self) -> None:
        async def run() -> None:
            for topic in TOPICS:
                assert await self.sqlite.open(topic) == await self.memory.open(topic)

        self.wait(run())

    def teardown(self) -> None:
        self.wait(self.sqlite.close())
        decoded: list[Entry] = []
        report = check(Path(self.folder.name), decoded.append)
        assert report.findings == []

        async def run() -> None:
            stored = [
                entry for ledger in (0, 1) for entry in await self.memory.read(ledger, 0, 1 << 20, 1 << 40)
            ]
            assert decoded == stored

        self.wait(run())
        self.runner.close()
        self.folder.cleanup()


TestLog = LogMachine.TestCase
TestLog.settings = settings(settings(), max_examples=20, stateful_step_count=25)

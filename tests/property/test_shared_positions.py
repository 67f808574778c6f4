"""Positions before a cluster: whatever is published, trimmed or restarted, processes agree, and no position names two messages."""

import asyncio
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.cluster_log import JournalOfProcess, Processes

from penstock.protocols.kafka_rest import positions, shared_positions
from penstock.protocols.kafka_rest.checkpoints import Checkpoints
from penstock.protocols.kafka_rest.framing import HEAD_BYTES
from penstock.protocols.kafka_rest.positions import TrimmedError

PROCESSES = 3


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have many points and checkpoints."""
    for module in (positions, shared_positions):
        monkeypatch.setattr(module, "BLOCK_BYTES", 50)
    monkeypatch.setattr(positions, "BLOCK_ENTRIES", 3)
    monkeypatch.setattr(positions, "POINTS_PER_DOCUMENT", 8)
    monkeypatch.setattr(shared_positions, "STEP_BYTES", 150)
    monkeypatch.setattr(shared_positions, "POINTS_MAX", 9)
    monkeypatch.setattr(shared_positions, "ENTRY_MESSAGES", 2)


PROCESS = st.integers(0, PROCESSES - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("publish"), st.lists(st.integers(0, 80), min_size=1, max_size=5), st.integers(0, 2)
        ),
        st.tuples(st.just("trim"), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("look"), PROCESS, st.just(0)),
        st.tuples(st.just("together"), st.just(0), st.just(0)),
        st.tuples(st.just("keep"), PROCESS, st.just(0)),
        st.tuples(st.just("restart"), PROCESS, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.just(0)),
        st.tuples(st.just("all restart"), st.just(0), st.just(0)),
        st.tuples(st.just("anew"), st.just(0), st.just(0)),
    ),
    min_size=1,
    max_size=30,
)


class Story:
    """What happens, and what every process has told."""

    def __init__(self) -> None:
        self.processes = Processes(PROCESSES)
        self.number = 0
        self.told: dict[int, bytes] = {}
        self.sizes: dict[
            bytes, int
        ] = {}  # by the payload: where it begins, counted from the first message of all
        self.size = 0
        self.first_told: bytes | None = None  # what the positions were counted from
        self.stepped = False

    async def publish(self, sizes: list[int], skip: int) -> None:
        payloads = []
        for size in sizes:
            self.number += 1
            payload = b"%05d" % self.number + b"x" * size
            self.sizes[payload] = self.size
            self.size += len(payload) + HEAD_BYTES
            payloads.append(payload)
        self.processes.log.append(*payloads, skip=skip)

    async def trim(self, share: int) -> None:
        log = self.processes.log
        log.trim(len(log.entries) * share // 100)
        kept = -1
        for one in await Checkpoints(JournalOfProcess(self.processes.records)).read_on():
            kept = one.points[-1][0]
        if 0 <= kept < log.first:
            self.stepped = True

    async def look(self, number: int) -> dict[int, bytes]:
        for attempt in range(5):
            try:
                found = await self.processes.look(number)
                break
            except TrimmedError:
                assert attempt < 4
        for at, payload in found.items():
            assert self.told.setdefault(at, payload) == payload
        for one, other in pairwise(sorted(self.told)):
            assert other >= one + len(self.told[one]) + HEAD_BYTES
        for (one, payload), (other, _) in pairwise(found.items()):
            assert other == one + len(payload) + HEAD_BYTES
        return found

    def check(self, found: dict[int, bytes]) -> None:
        """A process that knows all that others wrote gives what there is, at the positions that all give."""
        log = self.processes.log
        assert len(found) == sum(entry.count for entry in log.entries)
        if self.stepped or not found:
            return
        at, payload = next(iter(found.items()))
        if self.first_told is None:
            first, _ = min(self.told.items())
            self.first_told = self.told[first]
            self.base = self.sizes[self.first_told] - first
        assert self.sizes[payload] - at == self.base

    async def step(self, what: str, given: object, more: int) -> None:
        if what == "publish":
            await self.publish(given, more)  # type: ignore[arg-type]
        elif what == "trim":
            await self.trim(given)  # type: ignore[arg-type]
        elif what == "look":
            self.check(await self.look(given))  # type: ignore[arg-type]
        elif what == "together":
            self.processes.clock.turn(shared_positions.JOURNAL_MS)
            found = await asyncio.gather(*map(self.look, range(PROCESSES)))
            self.processes.clock.turn(shared_positions.JOURNAL_MS)
            found = [await self.look(number) for number in range(PROCESSES)]
            assert all(one == found[0] for one in found)
            self.check(found[0])
        elif what == "keep":
            try:
                await self.processes.positions[given].keep()  # type: ignore[index]
            except TrimmedError:
                pass  # another process was quicker
        elif what == "restart":
            self.processes.restart(given)  # type: ignore[arg-type]
        elif what == "all restart":
            for number in range(PROCESSES):
                self.processes.restart(number)
        elif what == "wait":
            self.processes.clock.turn(shared_positions.JOURNAL_MS)
        elif self.processes.records:  # anew
            self.processes.make_anew()
            self.told, self.sizes, self.size = {}, {}, 0
            self.first_told, self.stepped = None, False
            await self.publish([1, 2], 0)
            found = await self.look(0)
            assert list(found) == [0, 6 + HEAD_BYTES]


@example(
    steps=[("publish", [1], 0), ("look", 0, 0), ("trim", 100, 0), ("publish", [2], 0), ("together", 0, 0)]
)
@example(
    steps=[
        ("publish", [50, 50, 50], 0),
        ("publish", [50, 50, 50], 0),
        ("look", 0, 0),
        ("trim", 50, 0),
        ("restart", 0, 0),
        ("look", 1, 0),
    ]
)
@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_processes_agree(steps: list[tuple[str, object, int]]) -> None:
    async def story() -> None:
        told = Story()
        for step in [*steps, ("together", 0, 0)]:
            await told.step(*step)

    asyncio.run(story())

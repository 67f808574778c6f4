"""Lease and journal together: which slots a process serves while the group and other processes do what they like."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.support.cursor_journal import Log, Process

from penstock.engines.kafka.serving import owner as module
from penstock.engines.kafka.serving.owner import SlotOwner
from penstock.engines.kafka.serving.state import CursorRecord, slot_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

WAIT_S = 30.0
SLOT = slot_of("t", 0, 2)


class Lease:
    """The slots that the group assigns, as the test says."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.sure = True

    def start(self) -> None:
        """Slots come as the test says."""

    def holds(self, slot: int) -> bool:
        return self.sure and slot in self.held


class Member:
    """A process with an owner; `SlotHost`."""

    def __init__(self, log: Log, name: str) -> None:
        self.tasks = Tasks()
        self.process = Process(log, name)
        self.lease = Lease()
        self.owner = SlotOwner(self, self.process.cursors, lambda listener: self.lease, self.tasks)
        self.said: list[object] = []

    def opened(self, slots: Sequence[int]) -> None:
        assert all(slot in self.process.cursors.owned for slot in slots)
        self.said.append(("opened", *slots))

    async def closing(self, slots: Sequence[int]) -> None:
        await self.process.cursors.save([CursorRecord("t", 0, "s", "id", 5)])
        self.said.append(("closing", *slots))

    def closed(self, slots: Sequence[int]) -> None:
        assert not any(self.owner.owns(slot) for slot in slots)
        self.said.append(("closed", *slots))

    def confirmed(self) -> None:
        self.said.append("confirmed")

    def refused(self, error: PenstockError) -> None:
        self.said.append(error.kind)

    def gain(self, *slots: int) -> None:
        self.lease.held.update(slots)
        self.owner.gained(slots)

    async def heard(self, *expected: object) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.said) < len(expected):
                await asyncio.sleep(0.001)
        assert self.said == list(expected)
        self.said.clear()


@pytest.fixture
async def members(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Member, Member]]:
    monkeypatch.setattr(module, "RETRY_S", 0.002)
    log = Log()
    a, b = Member(log, "a"), Member(log, "b")
    yield a, b
    for one in (a, b):
        await one.tasks.close()
        await one.process.close()


async def test_slots_are_served_between_claim_and_release(members: tuple[Member, Member]) -> None:
    a, b = members
    a.gain(0, 1)
    await a.heard(("opened", 0, 1))
    assert a.owner.owns(SLOT)
    a.lease.held.discard(SLOT)
    assert not a.owner.owns(SLOT), "from the moment at which it is taken away"
    await a.owner.releasing([SLOT])
    await a.heard(("closing", SLOT), ("closed", SLOT))
    b.process.journal.read_on(99)
    b.gain(SLOT)
    await b.heard(("opened", SLOT))
    (stored,) = b.process.cursors.load(SLOT).values()
    assert stored.mark == 5, "the last save"
    b.owner.lost([SLOT])
    await b.heard(("closed", SLOT))
    assert not b.process.cursors.owned


async def test_a_claim_of_a_replaced_process_is_answered_by_another(members: tuple[Member, Member]) -> None:
    """The group says who should own the slot: that one claims it again, and its cursors are loaded again."""
    a, b = members
    a.gain(SLOT)
    await a.heard(("opened", SLOT))
    await b.process.cursors.claim([SLOT])
    a.process.journal.read_on(99)
    await a.heard(("closed", SLOT), ("opened", SLOT))
    assert a.process.cursors.owner(SLOT) == "a"


async def test_a_process_in_doubt_claims_nothing(members: tuple[Member, Member]) -> None:
    a, b = members
    a.gain(SLOT)
    await a.heard(("opened", SLOT))
    b.gain(SLOT)
    await b.heard(("opened", SLOT))
    a.lease.sure = False
    await a.owner.confirm()
    await a.heard(("closed", SLOT))
    await asyncio.sleep(0.02)
    assert b.process.cursors.owner(SLOT) == "b"
    a.lease.held.clear()
    a.owner.lost([SLOT])
    a.lease.sure = True
    await asyncio.sleep(0.02)
    assert (a.said, b.owner.owns(SLOT)) == ([], True)


async def test_a_claim_that_fails_is_tried_again(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = members
    claim, times = a.process.cursors.claim, 0

    async def failing(slots: Sequence[int]) -> None:
        nonlocal times
        times += 1
        if times < 3:
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")
        await claim(slots)

    monkeypatch.setattr(a.process.cursors, "claim", failing)
    a.gain(SLOT)
    await a.heard(("opened", SLOT))
    assert times == 3


async def test_the_journal_is_kept_short(
    members: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = members
    monkeypatch.setattr(module, "MAINTAIN_S", 0.001)
    times = 0

    async def maintain() -> None:
        nonlocal times
        times += 1
        raise PenstockError(ErrorKind.FORBIDDEN, "no Delete")

    monkeypatch.setattr(a.process.cursors, "maintain", maintain)
    a.owner.start()
    async with asyncio.timeout(WAIT_S):
        while times < 3:
            await asyncio.sleep(0.001)


async def test_a_refusal_is_handed_on(members: tuple[Member, Member]) -> None:
    a, _ = members
    a.owner.refused(PenstockError(ErrorKind.FORBIDDEN, "no group"))
    await a.heard(ErrorKind.FORBIDDEN)

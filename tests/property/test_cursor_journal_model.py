"""The owners' protocol in random schedules: late and lost writes, slow readers, stale beliefs of who owns a slot, checkpoints and trims
by anybody. No answered acknowledgement is ever lost, and a process that starts knows what all others know."""

import asyncio
import random
from collections import defaultdict

import pytest
from tests.support.cursor_journal import SLOTS, Log, Process

from penstock.engines.kafka.serving.state import CursorKey, CursorRecord, JournalState, deletion_of, slot_of
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import PenstockError

SCHEDULES = 80
STEPS = 300
TURNS = 6  # of the loop, for what a step began
ANSWERED_MIN, TRIMS_MIN, REFUSED_MIN = 500, 8, 100  # of all schedules: else they would show little
KEYS = [CursorKey("t", partition, name) for partition in range(SLOTS) for name in "ab"]


class Schedule:
    """One schedule of three processes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = Log()
        self.processes = [Process(self.log, name, auto=False, listener=self) for name in "abc"]
        self.owners = [Owner(self, process) for process in self.processes]
        self.acked: defaultdict[CursorKey, set[int]] = defaultdict(
            set
        )  # offsets whose acknowledgement was answered
        self.deletes: defaultdict[CursorKey, int] = defaultdict(int)  # that were begun
        self.answered = self.refused = 0

    def replaced(self, slots: list[int]) -> None:
        """Owners look at what they own before each save."""

    async def run(self) -> None:
        for step in range(STEPS):
            self.step(self.random.random(), self.random.choice(self.owners))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if step % 10 == 0:
                self.check()
        self.check()
        for process in self.processes:
            await process.close()

    def step(self, chance: float, owner: "Owner") -> None:
        journal = owner.process.journal
        if chance < 0.35 and journal.writes:
            fate = self.random.random()
            if fate < 0.03:
                journal.lose()
            elif fate < 0.10:
                journal.give_up()
            else:
                journal.store()
        elif chance < 0.38 and journal.late:
            journal.store_late(self.random.randrange(len(journal.late)))
        elif chance < 0.70:
            journal.read_on(self.random.choice((1, 2, 5, STEPS)))
        elif chance < 0.73:
            owner.spawn(owner.claim(self.random.randrange(SLOTS)))
        elif chance < 0.90:
            key = self.random.choice(KEYS)
            owner = self.random.choice([one for one in self.owners if one.serves(key.partition)] or [owner])
            owner.spawn(owner.acknowledge(key, self.random.randrange(60)))
        elif chance < 0.91:
            owner.spawn(owner.delete(self.random.choice(KEYS)))
        elif chance < 0.92:
            owner.process.cursors.forget([self.random.randrange(SLOTS)])
        elif chance < 0.97:
            for one in self.owners:
                one.spawn(one.process.cursors.checkpoint(range(SLOTS)))
        else:
            for one in self.owners:
                one.spawn(one.process.cursors.trim())

    def check(self) -> None:
        whole, rest = self.log.state(0), self.log.state(self.log.begin)
        assert content(whole) == content(rest), "what is left after a trim says the same"
        for key, acked in self.acked.items():
            stored = whole.slots[slot_of(key.topic, key.partition, SLOTS)].cursors.get(key)
            cursor = OffsetSet() if stored is None else stored.offsets()
            assert all(cursor.mask(offset, 1) for offset in acked), (key, acked)


def content(state: JournalState) -> object:
    return [
        {key: (one.mark, one.chunks) for key, one in slot.cursors.items()} if slot.term else {}
        for slot in state.slots
    ]


class Owner:
    """The subscriptions of a process; it believes in its slots until it is told otherwise."""

    def __init__(self, schedule: Schedule, process: Process) -> None:
        self.schedule = schedule
        self.process = process
        self.served: dict[CursorKey, OffsetSet] = {}
        self.claims: defaultdict[int, int] = defaultdict(int)  # of each slot
        self.open: set[int] = set()

    def spawn(self, work: object) -> None:
        async def quietly() -> None:
            try:
                await work  # type: ignore[misc]
            except PenstockError:
                self.schedule.refused += 1

        self.process.tasks.spawn(quietly(), "step")

    async def claim(self, slot: int) -> None:
        self.close(slot)
        self.claims[slot] += 1
        claim = self.claims[slot]
        await self.process.cursors.claim([slot])
        found = self.process.cursors.load(slot)
        if claim == self.claims[slot]:
            self.open.add(slot)
            self.served.update({key: stored.offsets() for key, stored in found.items()})

    def close(self, slot: int) -> None:
        self.open.discard(slot)
        for key in [one for one in self.served if one.partition == slot]:
            del self.served[key]

    def serves(self, slot: int) -> bool:
        if slot not in self.process.cursors.owned:
            self.close(slot)
        return slot in self.open

    async def acknowledge(self, key: CursorKey, offset: int) -> None:
        """As `StoredCursor` of a subscription: what could not be saved goes with the next save."""
        if not self.serves(key.partition):
            return
        cursor = self.served.setdefault(key, OffsetSet())
        cursor.add(offset, 1)
        mark, chunks = cursor.mark, cursor.take_changes()
        deletes = self.schedule.deletes[key]
        record = CursorRecord(key.topic, key.partition, key.subscription, "id", mark, chunks)
        try:
            await self.process.cursors.save([record])
        except PenstockError:
            cursor.touch(chunks)
            raise
        if deletes == self.schedule.deletes[key]:
            self.schedule.acked[key].add(offset)
            self.schedule.answered += 1

    async def delete(self, key: CursorKey) -> None:
        if self.serves(key.partition):
            self.schedule.acked[key].clear()
            self.schedule.deletes[key] += 1
            self.served.pop(key, None)
            await self.process.cursors.save([deletion_of(key)])


def test_slots_of_the_keys_are_their_partitions() -> None:
    """Else the schedules would confuse them."""
    first = slot_of("t", 0, SLOTS)
    if first:
        pytest.fail("choose another topic")
    assert [slot_of(key.topic, key.partition, SLOTS) for key in KEYS] == [0, 0, 1, 1]


async def test_no_answered_acknowledgement_is_lost() -> None:
    answered = refused = trims = 0
    for seed in range(SCHEDULES):
        schedule = Schedule(seed)
        try:
            await schedule.run()
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error
        answered += schedule.answered
        refused += schedule.refused
        trims += schedule.log.begin > 0
    assert answered > ANSWERED_MIN
    assert trims > TRIMS_MIN
    assert refused > REFUSED_MIN

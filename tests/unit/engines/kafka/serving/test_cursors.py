"""Cursors of several processes over one journal: claims, saves, what is refused, unknown outcomes, checkpoints."""

import asyncio

import pytest
from tests.support.cursor_journal import Log, Process

from penstock.engines.kafka.serving import cursors as module
from penstock.engines.kafka.serving.state import CursorKey, CursorRecord, Replaced, slot_of
from penstock.model.errors import ErrorKind, PenstockError

SLOT = slot_of("t", 0, 2)
OTHER = 1 - SLOT
KEY = CursorKey("t", 0, "s")


def change(mark: int, *, partition: int = 0, subscription: str = "s") -> CursorRecord:
    return CursorRecord("t", partition, subscription, "id", mark)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def begin(
    log: Log, name: str, *, auto: bool = True, group: str = "penstock-x", slots: int = 2
) -> Process:
    process = Process(log, name, auto=auto, group=group, slots=slots)
    await process.cursors.start()
    return process


async def test_an_owner_saves_and_the_next_one_goes_on() -> None:
    log = Log()
    a = await begin(log, "a")
    with pytest.raises(Replaced):
        await a.cursors.save([change(1)])
    await a.cursors.claim([SLOT])
    assert (list(a.cursors.owned), a.cursors.owner(SLOT), a.cursors.owner(OTHER)) == ([SLOT], "a", None)
    await a.cursors.save([change(3)])
    b = await begin(log, "b")
    assert b.cursors.owner(SLOT) == "a"
    with pytest.raises(Replaced):
        b.cursors.load(SLOT)
    await b.cursors.claim([SLOT])
    assert b.cursors.load(SLOT)[KEY].mark == 3
    await b.cursors.save([change(5)])
    with pytest.raises(Replaced, match="another process owns"):
        await a.cursors.save([change(4)])
    assert a.told.gone == [SLOT]
    assert not a.cursors.owned
    assert log.state(0).slots[SLOT].cursors[KEY].mark == 5
    await b.cursors.delete_all([KEY])
    assert not b.cursors.load(SLOT)
    await b.cursors.save([])


async def test_saves_that_arrive_meanwhile_go_together() -> None:
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([0, 1])
    await asyncio.gather(
        *(a.cursors.save([change(n, partition=n % 2, subscription=f"s{n}")]) for n in range(50))
    )
    assert len(log.records) < 5
    assert sum(len(slot.cursors) for slot in log.state(0).slots) == 50


async def test_a_save_that_waits_is_void_after_another_owner_was_between() -> None:
    """Its change is one of a cursor that was loaded before the other owner's saves."""
    log = Log()
    a = await begin(log, "a", auto=False)
    b = await begin(log, "b")
    claiming = a.tasks.spawn(a.cursors.claim([SLOT]), "call")
    await turns()
    a.journal.store()
    a.journal.read_on(9)
    await claiming
    first = a.tasks.spawn(a.cursors.save([change(1)]), "call")
    await turns()  # under way
    second = a.tasks.spawn(a.cursors.save([change(2)]), "call")
    await turns()
    again = a.tasks.spawn(a.cursors.claim([SLOT]), "call")  # waits for the first save
    await turns()
    await b.cursors.claim([SLOT])
    await b.cursors.save([change(7)])
    for _ in range(3):
        if a.journal.writes:
            a.journal.store()
        await turns()
        a.journal.read_on(9)
        await turns()
    await again
    for saving in (first, second):
        with pytest.raises(Replaced):
            await saving
    assert a.cursors.load(SLOT)[KEY].mark == 7
    assert len(log.records) == 5, "the second one was not even written"


async def test_an_unknown_outcome_is_settled_by_a_claim() -> None:
    log = Log()
    a = await begin(log, "a", auto=False)
    claiming = a.tasks.spawn(a.cursors.claim([SLOT]), "call")
    await turns()
    a.journal.store()
    a.journal.read_on(9)
    await claiming
    saving = a.tasks.spawn(a.cursors.save([change(1)]), "call")
    await turns()
    a.journal.give_up()
    with pytest.raises(PenstockError) as caught:
        await saving
    assert (caught.value.kind, type(caught.value)) == (ErrorKind.UNAVAILABLE, PenstockError)
    saving = a.tasks.spawn(a.cursors.save([change(9)]), "call")
    await turns()
    for _ in range(2):  # a claim, and the save
        a.journal.store()
        await turns()
        a.journal.read_on(9)
        await turns()
    await saving
    a.journal.store_late()
    assert log.state(0).slots[SLOT].cursors[KEY].mark == 9, "the late one does not count"
    assert not a.told.gone


async def test_a_late_claim_of_its_own_ends_a_term_but_not_the_ownership() -> None:
    log = Log()
    a = await begin(log, "a", auto=False)
    first = a.tasks.spawn(a.cursors.claim([SLOT]), "call")
    await turns()
    a.journal.give_up()
    with pytest.raises(PenstockError):
        await first
    a.journal.auto = True
    await a.cursors.claim([SLOT])
    a.journal.store_late()
    with pytest.raises(PenstockError, match="saved again") as caught:
        await a.cursors.save([change(1)])
    assert not isinstance(caught.value, Replaced)
    await a.cursors.save([change(1)])
    assert log.state(0).slots[SLOT].cursors[KEY].mark == 1


async def test_slots_are_released_once_their_saves_are_answered() -> None:
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([0, 1])
    a.journal.auto = False
    saving = a.tasks.spawn(a.cursors.save([change(1)]), "call")
    await turns()
    releasing = a.tasks.spawn(a.cursors.release([SLOT]), "call")
    await a.cursors.release([OTHER])
    await turns()
    assert not releasing.done()
    a.journal.store()
    await turns()
    a.journal.read_on(9)
    await saving
    await releasing
    assert not a.cursors.owned


async def test_a_process_that_was_stopped_finds_out_what_it_still_owns() -> None:
    log = Log()
    a, b = await begin(log, "a"), await begin(log, "b")
    await a.cursors.confirm()
    assert not log.records
    await a.cursors.claim([0, 1])
    await b.cursors.claim([SLOT])
    await a.cursors.confirm()
    assert (a.told.gone, list(a.cursors.owned)) == ([SLOT], [OTHER])


async def test_a_checkpoint_supersedes_what_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_RECORDS", 20)
    monkeypatch.setattr(module, "CHECKPOINT_CURSORS", 2)
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([0, 1])
    await a.cursors.maintain()
    assert len(log.records) == 1
    for mark in range(25):
        await a.cursors.save([change(mark, partition=mark % 2, subscription=f"s{mark % 5}")])
    before = log.state(0)
    await asyncio.gather(a.cursors.maintain(), a.cursors.save([change(99, subscription="new")]))
    assert log.begin == 26
    assert not a.cursors.due
    whole, rest = log.state(0), log.state(log.begin)
    assert [slot.cursors for slot in whole.slots] == [slot.cursors for slot in rest.slots]
    new = whole.slots[SLOT].cursors.pop(CursorKey("t", 0, "new"))
    assert new.mark == 99
    assert [slot.cursors for slot in whole.slots] == [slot.cursors for slot in before.slots]
    await a.cursors.maintain()
    assert a.journal.trims == [26], "nothing more"


async def test_a_checkpoint_of_many_cursors_is_not_due_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", 1000)
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([0, 1])
    for number in range(100):
        await a.cursors.save([change(1, subscription=f"s{number}")])
    await a.cursors.maintain()
    assert a.cursors.due == []
    written = len(log.records)
    for mark in range(1000):
        await a.cursors.save([change(mark)])
        if a.cursors.due:
            break
    assert a.cursors.due == [0, 1]
    assert len(log.records) - written > 100


async def test_a_slot_without_a_checkpoint_keeps_the_journal() -> None:
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([SLOT])
    await a.cursors.checkpoint([0, 1])
    await a.cursors.trim()
    assert log.begin == 0


async def test_a_reader_that_a_trim_overtook_begins_again() -> None:
    log = Log()
    a, b = await begin(log, "a"), await begin(log, "b")
    await b.cursors.claim([SLOT])
    await b.cursors.save([change(1)])
    await a.cursors.claim([0, 1])
    await a.cursors.checkpoint([0, 1])
    await a.cursors.trim()
    assert log.begin > b.journal.position
    b.journal.read_on(99)
    assert b.told.gone == [SLOT]
    assert b.cursors.owner(SLOT) == "a"
    await b.cursors.claim([SLOT])
    assert b.cursors.load(SLOT)[KEY].mark == 1


async def test_another_service_on_the_same_topics_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([SLOT])
    b = await begin(log, "b", group="penstock-y")
    assert "taken over from another group" in caplog.text
    await b.cursors.claim([SLOT])
    a.journal.read_on(9)
    (error,) = a.told.errors
    assert (error.kind, error.message) == (
        ErrorKind.BAD_PARAMETER,
        "group penstock-y claims slots in journal, which is penstock-x's",
    )
    await b.cursors.claim([OTHER])
    log.begin, b.journal.position = 0, -1  # a trim overtook `b`, and left claims of before its start
    b.journal.read_on(9)
    assert b.told.errors == []
    await b.cursors.claim([SLOT])
    for call in (a.cursors.claim([SLOT]), a.cursors.save([change(1)])):
        with pytest.raises(PenstockError, match="which is penstock-x's"):
            await call
    with pytest.raises(PenstockError, match="those of 2 slots, not of 3"):
        await begin(log, "c", slots=3)


async def test_cursors_of_a_newer_release_are_not_served() -> None:
    log = Log()
    a = await begin(log, "a")
    await a.cursors.claim([SLOT])
    await a.cursors.save([change(1)])
    log.append(b"save", log.records[-1].value, [("penstock-version", b"2")])
    b = await begin(log, "b")
    await b.cursors.claim([SLOT])
    with pytest.raises(PenstockError) as caught:
        b.cursors.load(SLOT)
    assert caught.value.kind is ErrorKind.NEWER_FORMAT


async def test_saves_fail_when_the_process_stops() -> None:
    a = await begin(Log(), "a")
    await a.cursors.claim([SLOT])
    a.journal.auto = False
    savings = [a.tasks.spawn(a.cursors.save([change(n)]), "call") for n in range(2)]
    await turns()
    await a.cursors.close()
    for saving in savings:
        with pytest.raises(PenstockError, match="stopping"):
            await saving
    with pytest.raises(PenstockError, match="stopping"):
        await a.cursors.claim([SLOT])


async def test_too_many_waiting_saves_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 3)
    a = await begin(Log(), "a")
    await a.cursors.claim([SLOT])
    results = await asyncio.gather(*(a.cursors.save([change(n)]) for n in range(5)), return_exceptions=True)
    assert [isinstance(one, PenstockError) for one in results] == [False] * 3 + [True] * 2

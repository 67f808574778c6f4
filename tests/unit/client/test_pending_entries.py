"""Entries of a producer between `add` and their receipts."""

import asyncio

from penstock.client.entries.pending import DUPLICATE, Group, Outcome, Outgoing, PendingEntries
from penstock.client.errors import NotAllowedError, PulsarException, Timeout

from .broker import said


def group(count: int) -> Group:
    return Group(count, asyncio.get_running_loop().create_future())


def add(pending: PendingEntries, *ids: int, now: float = 0.0) -> tuple[Group, list[str]]:
    made = group(len(ids))
    return made, said(pending.add([Outgoing(b"%d" % one, one, one) for one in ids], made, now))


def shown(outcomes: list[Outcome]) -> list[object]:
    return [type(one) if isinstance(one, PulsarException) else one for one in outcomes]


async def test_receipts_settle_in_order_and_the_call_ends_with_its_last_entry() -> None:
    pending = PendingEntries(3)
    batch, frames = add(pending, 0, 1)
    assert frames == ["SEND sequence_id=0", "SEND sequence_id=1"]
    assert (len(pending), pending.size) == (2, 2)

    assert pending.receipt(0, 5, 6)
    assert not batch.future.done()
    assert pending.receipt(1, 5, 7)
    assert shown(batch.future.result()) == [(5, 6), (5, 7)]
    assert (len(pending), pending.size, pending.last_sequence_id) == (0, 0, 1)


async def test_a_batch_names_its_lowest_and_highest_sequence_id() -> None:
    pending, made = PendingEntries(3), group(1)
    frames = pending.add([Outgoing(b"batch", 10, 12, 3)], made, 0.0)
    assert said(frames) == ["SEND sequence_id=10 num_messages=3 highest_sequence_id=12"]
    pending.receipt(10, 1, 1)
    assert pending.last_sequence_id == 12


async def test_an_entry_that_was_passed_over_is_noticed() -> None:
    pending = PendingEntries(3)
    add(pending, 0, 1)
    assert not pending.receipt(1, 5, 6)
    assert pending.receipt(7, 5, 6)  # of none of them: given up on another connection
    assert len(pending) == 2


async def test_a_repeat_may_be_answered_before_what_is_still_being_stored() -> None:
    pending = PendingEntries(3)
    first, _ = add(pending, 5)
    repeat, _ = add(pending, 3)
    assert pending.receipt(3, -1, -1)
    assert shown(repeat.future.result()) == [DUPLICATE]
    assert pending.receipt(5, 1, 1)
    assert shown(first.future.result()) == [(1, 1)]


async def test_a_refused_entry_fails_alone_by_its_highest_sequence_id() -> None:
    pending, made = PendingEntries(3), group(2)
    pending.add([Outgoing(b"a", 0, 4, 5), Outgoing(b"b", 5, 5)], made, 0.0)
    pending.refused(4, NotAllowedError("no"))
    pending.receipt(5, 1, 2)
    assert shown(made.future.result()) == [NotAllowedError, (1, 2)]


async def test_what_has_no_receipt_goes_again_in_order() -> None:
    pending = PendingEntries(3)
    add(pending, 0, 1)
    add(pending, 2)
    pending.receipt(0, 1, 1)
    assert said(pending.again()) == ["SEND sequence_id=1", "SEND sequence_id=2"]


async def test_what_waited_too_long_fails_and_its_late_receipt_is_nobody_elses() -> None:
    pending = PendingEntries(3)
    late, _ = add(pending, 0, now=1.0)
    assert pending.expire(0.5, Timeout("late")) == 1.0
    assert pending.expire(1.5, Timeout("late")) is None
    assert shown(late.future.result()) == [Timeout]
    next_one, _ = add(pending, 0, now=2.0)  # the same sequence id, as clients may give it
    assert pending.expire(1.5, Timeout("late")) == 2.0
    assert pending.size == 1

    assert pending.receipt(0, 1, 1)  # the late one's
    assert not next_one.future.done()
    assert pending.receipt(0, 1, 2)
    assert shown(next_one.future.result()) == [(1, 2)]


async def test_what_failed_does_not_go_again_nor_what_follows_it() -> None:
    """Were 1 stored, a broker that deduplicates would take 0 for a repeat when it is published again."""
    pending = PendingEntries(3)
    add(pending, 0, now=1.0)
    next_one, _ = add(pending, 1, now=2.0)
    pending.expire(1.5, Timeout("late"))
    assert shown(next_one.future.result()) == [Timeout]
    add(pending, 2, now=3.0)
    assert said(pending.again()) == ["SEND sequence_id=2"]
    assert len(pending) == 1


async def test_the_end_fails_everything_once() -> None:
    pending = PendingEntries(3)
    both, _ = add(pending, 0, 1)
    pending.receipt(0, 1, 1)
    pending.fail(Timeout("over"))
    assert shown(both.future.result()) == [(1, 1), Timeout]
    assert (len(pending), pending.size) == (0, 0)


async def test_a_caller_that_left_changes_nothing() -> None:
    pending = PendingEntries(3)
    left, _ = add(pending, 0)
    left.future.cancel()
    assert pending.receipt(0, 1, 1)
    assert len(pending) == 0

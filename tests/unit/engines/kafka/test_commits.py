"""Commits of one group: one at a time, joined, and refused where the partition went before."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.kafka.commits import Commits
from penstock.engines.kafka.cursors import cursor_of
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.kafka.driver.member import Rebalanced
from penstock.engines.kafka.driver.record import At
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import SubscriptionType
from penstock.runtime.tasks import Tasks


class Source(SimpleNamespace):
    """A subscription, as far as it is committed."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def source(partition: int) -> Any:
    lost: list[PenstockError] = []
    return Source(
        at=("t", partition),
        cursor=OffsetSet(),
        type=SubscriptionType.SHARED,
        saved=None,
        commits=True,
        topic=SimpleNamespace(name=f"t-{partition}"),
        lose=lost.append,
        lost=lost,
    )


class Sent:
    """What was sent, each answered when the test says so."""

    def __init__(self) -> None:
        self.sent: list[dict[At, int]] = []
        self.answers: list[asyncio.Future[None]] = []
        self.commits = Commits("g", Tasks(), self.send, lambda source: None)

    async def send(self, changes: Mapping[At, Committed]) -> None:
        self.sent.append({at: one.offset for at, one in changes.items()})
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]

    def save(self, *sources: Any) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self.commits.save(sources))

    async def wait(self, count: int) -> None:
        while len(self.sent) < count:
            await asyncio.sleep(0)


async def test_what_comes_while_one_is_on_its_way_goes_together() -> None:
    told, first, second = Sent(), source(0), source(1)
    first.cursor.add(0, 1)
    one = told.save(first)
    await told.wait(1)
    first.cursor.add(1, 1)
    second.cursor.add(0, 0b111)
    others = [told.save(first), told.save(second)]
    await asyncio.sleep(0)
    assert told.sent == [{("t", 0): 1}]
    told.answers[0].set_result(None)
    await one
    await told.wait(2)
    assert told.sent[1] == {("t", 0): 2, ("t", 1): 3}
    told.answers[1].set_result(None)
    await asyncio.gather(*others)
    await told.save(first, second)  # nothing is new
    assert len(told.sent) == 2


async def test_a_rebalance_is_waited_for_and_what_is_left_is_sent_again() -> None:
    told, stays, goes = Sent(), source(0), source(1)
    for one in (stays, goes):
        one.cursor.add(0, 1)
    waiting = [told.save(stays), told.save(goes)]
    await told.wait(1)
    told.commits.settled.clear()  # partitions are being given back
    told.answers[0].set_exception(Rebalanced(ErrorKind.UNAVAILABLE, "rebalanced"))
    goes.saved = told.commits.changes([goes])[goes]  # by the last commit
    told.commits.end(goes)
    told.commits.settled.set()
    await told.wait(2)
    assert told.sent[1] == {("t", 0): 1}
    told.answers[1].set_result(None)
    await asyncio.gather(*waiting)


async def test_who_waits_for_a_partition_that_was_lost_is_refused() -> None:
    told, lost, stays = Sent(), source(0), source(1)
    for one in (lost, stays):
        one.cursor.add(0, 1)
    refused, other = told.save(lost), told.save(stays)
    await told.wait(1)
    told.commits.end(lost)
    told.answers[0].set_exception(Rebalanced(ErrorKind.UNAVAILABLE, "rebalanced"))
    await told.wait(2)
    told.answers[1].set_result(None)
    await other
    with pytest.raises(PenstockError) as error:
        await refused
    assert error.value.kind is ErrorKind.UNAVAILABLE
    await told.save(lost)  # what is not committed here is forgotten
    assert lost.lost == [error.value]  # also who has not asked yet is told
    assert stays.lost == []
    told.commits.end(stays)  # all of it is committed
    assert stays.lost == []


async def test_what_the_cluster_refuses_is_raised_by_all_who_wait_for_it() -> None:
    told, one = Sent(), source(0)
    one.cursor.add(0, 1)
    waiting = [told.save(one), told.save(one)]
    await told.wait(1)
    told.answers[0].set_exception(PenstockError(ErrorKind.FORBIDDEN, "no"))
    for task in waiting:
        with pytest.raises(PenstockError, match="no"):
            await task
    assert one.saved is None


async def test_what_has_no_room_in_a_commit_is_counted_until_there_is_room() -> None:
    told, one = Sent(), source(0)
    for offset in range(1, 200_000, 2):
        one.cursor.add(offset, 1)
    (change,) = told.commits.changes([one]).values()
    kept = cursor_of(change)
    assert kept is not None
    assert one.acks_left_out == 100_000 - sum(last + 1 - first for first, last in kept.ranges) > 0
    one.cursor.add_range(0, 200_000)
    told.commits.changes([one])
    assert one.acks_left_out == 0

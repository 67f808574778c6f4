"""A process that stood still: what it has is asked before anything is delivered."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines.kafka import group as group_module
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.kafka.driver.member import Rebalanced
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.group import Group
from penstock.engines.kafka.stalls import STALL_S, Stalls
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind
from penstock.model.policy import SubscriptionType
from penstock.runtime.tasks import Tasks


async def test_a_stall_shows_at_once_and_is_told_at_the_next_beat() -> None:
    now, told = [100.0], []

    def noticed() -> None:
        assert stalls.stalled
        told.append(now[0])

    stalls = Stalls(noticed, lambda: now[0])
    stalls.beat()
    now[0] += STALL_S / 2
    assert not stalls.stalled
    now[0] += STALL_S
    assert stalls.stalled
    assert told == []
    stalls.close()
    stalls.beat()
    assert not stalls.stalled
    assert told == [now[0]]
    stalls.close()


class Source(SimpleNamespace):
    """A subscription of one partition with a consumer."""

    def __init__(self, partition: int) -> None:
        super().__init__(
            at=("t", partition),
            consumers=["c"],
            suspended=False,
            doubted=False,
            commits=True,
            cursor=OffsetSet(7),
            type=SubscriptionType.SHARED,
            saved=None,
            acks_left_out=0,
            woken=0,
        )

    __hash__ = object.__hash__

    def wake(self) -> None:
        self.woken += 1


class Member:
    """A member whose commits answer what the test says."""

    id = "m"

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.sent: list[dict[At, int]] = []

    async def commit(self, changes: Mapping[At, Committed]) -> None:
        self.sent.append({at: one.offset for at, one in changes.items()})
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def group_of(member: Member, *sources: Source) -> tuple[Group, Tasks]:
    tasks: Any = Tasks()
    none: Any = None
    group: Any = Group("g", none, none, tasks)
    group._member = member
    group.sources = {one.at: one for one in sources}
    group.assigned_at = dict.fromkeys(group.sources, 1)
    return group, tasks


async def ended(tasks: Tasks, sources: list[Source]) -> None:
    while any(one.doubted for one in sources):
        await asyncio.sleep(0)
    await tasks.close()


async def test_one_commit_ends_the_doubt_of_all_partitions() -> None:
    sources = [Source(0), Source(1)]
    member = Member(None)
    group, tasks = group_of(member, *sources)
    group.doubt()
    assert [one.doubted for one in sources] == [True, True]
    await ended(tasks, sources)
    assert member.sent == [{("t", 0): 7}]
    assert [one.woken for one in sources] == [1, 1]


async def test_who_is_no_member_delivers_nothing_until_it_has_the_partition_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_module, "RETRY_S", 0)
    source = Source(0)
    member = Member(*[Rebalanced(ErrorKind.UNAVAILABLE, "thrown out")] * 3)
    group, tasks = group_of(member, source)
    group.doubt()
    while len(member.sent) < 3:
        assert source.doubted
        await asyncio.sleep(0)
    source.suspended, source.doubted = True, False  # `give_up`
    await asyncio.sleep(0)
    await tasks.close()
    assert len(member.sent) == 3
    assert source.woken == 0

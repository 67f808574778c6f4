"""The lease of slots with a group that the test plays: gains, revocations that are held, losses, and doubt after a stop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from penstock.engines.kafka.driver import lease as module
from penstock.engines.kafka.driver.errors import ClientErrors
from penstock.engines.kafka.driver.lease import STALE_S, Lease
from penstock.model.errors import ErrorKind, PenstockError

WAIT_S = 30.0


class Event:
    def __init__(self, code: int) -> None:
        self._error = KafkaError(code)

    def error(self) -> KafkaError:
        return self._error


class Group:
    """The clients of a process, and what happens in the group: `steps` are called by the thread that polls."""

    def __init__(self) -> None:
        self.generation = 0
        self.errors = ClientErrors()
        self.steps: deque[Callable[[Consumer], Any]] = deque()
        self.assigned: set[int] = set()
        self.paused: set[int] = set()
        self.closed = self.made = 0
        self.broken = False

    def consumer(self, kind: str, own: dict[str, Any]) -> "Consumer":
        if self.broken:
            raise PenstockError(ErrorKind.UNAVAILABLE, "no credentials")
        assert (kind, own["group.id"]) == ("lease", "penstock-x")
        self.made += 1
        return Consumer(self)


class Consumer:
    def __init__(self, group: Group) -> None:
        self._group = group

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        assert topics == ["slots"]
        self._callbacks = callbacks

    def poll(self, timeout_s: float) -> Any:
        return self._group.steps.popleft()(self) if self._group.steps else None

    def tell(self, what: str, *slots: int) -> None:
        self._callbacks[what](self, [TopicPartition("slots", slot) for slot in slots])

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._group.assigned |= {one.partition for one in places}

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self._group.assigned -= {one.partition for one in places}

    def pause(self, places: list[TopicPartition]) -> None:
        self._group.paused |= {one.partition for one in places}

    def close(self) -> None:
        self._group.closed += 1
        if self._group.assigned:
            self.tell("on_revoke", *self._group.assigned)


class Listener:
    def __init__(self) -> None:
        self.said: list[object] = []
        self.group: Group | None = None
        self.failures = 0
        self.hold = asyncio.Event()
        self.hold.set()

    def gained(self, slots: Sequence[int]) -> None:
        self.said.append(("gained", *slots))

    async def releasing(self, slots: Sequence[int]) -> None:
        self.said.append(("releasing", *slots))
        await self.hold.wait()
        assert self.group is not None
        self.said.append(("released", self.group.assigned >= set(slots)))

    def lost(self, slots: Sequence[int]) -> None:
        self.said.append(("lost", *slots))

    async def confirm(self) -> None:
        self.said.append("confirm")
        if self.failures:
            self.failures -= 1
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")

    def confirmed(self) -> None:
        self.said.append("confirmed")

    def refused(self, error: PenstockError) -> None:
        self.said.append(error.kind)


class Case:
    def __init__(self) -> None:
        self.group = Group()
        self.listener = Listener()
        self.listener.group = self.group
        self.now_s = 1000.0
        clients: Any = self.group
        self.lease = Lease(clients, "slots", "penstock-x", self.listener, clock=lambda: self.now_s)

    def happens(self, what: str, *slots: int) -> None:
        self.group.steps.append(lambda consumer: consumer.tell(what, *slots))

    async def said(self, *expected: object) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.listener.said) < len(expected):
                await asyncio.sleep(0.001)
        assert self.listener.said == list(expected)
        self.listener.said.clear()


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    async with running() as made:
        yield made


@asynccontextmanager
async def running() -> AsyncIterator[Case]:
    made = Case()
    made.lease.start()
    yield made
    made.listener.hold.set()
    await made.lease.close()


async def test_slots_come_are_taken_away_and_come_again(case: Case) -> None:
    case.happens("on_assign", 1, 2)
    await case.said(("gained", 1, 2))
    assert case.group.paused == {1, 2}
    assert [slot for slot in range(4) if case.lease.holds(slot)] == [1, 2]
    first = case.lease.held[2]
    case.happens("on_revoke", 2)
    await case.said(("releasing", 2), ("released", True))
    case.happens("on_lost", 1)
    await case.said(("lost", 1))
    assert not case.lease.held
    case.happens("on_assign", 2)
    case.happens("on_assign")  # a rebalance that brings nothing
    await case.said(("gained", 2))
    assert case.lease.held[2] > first, "it is another holding"
    await case.lease.close()
    await case.said(("releasing", 2), ("released", True))
    assert not case.group.assigned


async def test_a_revocation_waits_for_the_listener_but_not_forever(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REVOKE_S", 0.05)
    case.happens("on_assign", 1)
    await case.said(("gained", 1))
    case.listener.hold.clear()
    case.happens("on_revoke", 1)
    await case.said(("releasing", 1))
    assert not case.lease.holds(1), "nothing new is begun"
    async with asyncio.timeout(WAIT_S):
        while case.group.assigned:
            await asyncio.sleep(0.001)
    case.listener.hold.set()
    await case.said(("released", False))


async def test_after_a_stop_slots_are_held_again_when_that_is_confirmed(case: Case) -> None:
    case.happens("on_assign", 1)
    await case.said(("gained", 1))
    case.now_s += STALE_S / 2
    assert case.lease.holds(1)
    case.listener.failures = 2
    case.now_s += STALE_S * 2
    assert not case.lease.holds(1), "before the thread has run again"
    await case.said("confirm", "confirm", "confirm", "confirmed")
    assert case.lease.holds(1)


async def test_a_refusal_is_told_and_other_errors_are_counted(case: Case) -> None:
    case.group.steps.append(lambda consumer: Event(KafkaError._ALL_BROKERS_DOWN))
    case.group.steps.append(lambda consumer: Event(KafkaError.GROUP_AUTHORIZATION_FAILED))
    await case.said(ErrorKind.FORBIDDEN)
    assert sum(case.group.errors.counts().values()) == 2


async def test_new_credentials_make_a_new_member(case: Case) -> None:
    case.happens("on_assign", 1)
    await case.said(("gained", 1))
    case.group.broken = True
    case.group.generation += 1
    case.happens("on_assign", 2)
    await case.said(("gained", 2))
    assert case.group.made == 1, "it keeps the old one as long as they cannot be read"
    case.group.broken = False
    case.group.generation += 1
    await case.said(("releasing", 1, 2), ("released", True))
    case.happens("on_assign", 3)
    await case.said(("gained", 3))
    assert (case.group.made, case.group.closed) == (2, 1)


async def test_a_client_that_cannot_be_made_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    made = Case()
    made.group.broken = True
    made.lease.start()
    await asyncio.sleep(0.01)
    made.group.broken = False
    made.happens("on_assign", 1)
    await made.said(("gained", 1))
    await made.lease.close()

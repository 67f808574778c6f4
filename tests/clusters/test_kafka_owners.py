"""Owners of slots before a real Kafka: what happens to saves while processes and the broker come, go, stop and hang."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.kafka_owner import SUBSCRIPTION, TOPIC, Service

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.cluster import KafkaCluster as Cluster
from penstock.engines.kafka.driver.lease import Lease
from penstock.engines.kafka.internal import have_owner_topics
from penstock.engines.kafka.serving.state import CursorRecord, slot_of
from penstock.model.errors import ErrorKind, PenstockError

WAIT_S = 90.0
FROZEN_S = 8.0  # longer than the session timeout
ROOT = Path(__file__).parents[2]
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker of these tests alone: it is killed and frozen."""
    with standalone(tmp_path_factory.mktemp("owners"), SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def prefix() -> str:
    return f"__{uuid4().hex[:10]}"


class Owner:
    """A process that saves without a pause."""

    def __init__(self, broker: KafkaCluster, prefix: str, name: str, folder: Path) -> None:
        self._output = folder / f"{name}.out"
        command = [sys.executable, "-m", "tests.support.kafka_owner", broker.bootstrap, prefix, name]
        with self._output.open("wb") as out, (folder / f"{name}.err").open("wb") as err:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=err, cwd=ROOT)

    @property
    def events(self) -> list[list[Any]]:
        whole = self._output.read_bytes().rpartition(b"\n")[0]
        return [msgspec.json.decode(line) for line in whole.splitlines()]

    @property
    def open(self) -> set[int]:
        found: set[int] = set()
        for kind, *rest in self.events:
            if kind == "opened":
                found.update(rest[0])
            elif kind == "closed":
                found.difference_update(rest[0])
        return found

    @property
    def saved(self) -> list[tuple[int, int]]:
        return [(slot, offset) for kind, *rest in self.events if kind == "saved" for slot, offset in rest[0]]

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def close(self) -> None:
        """Ask it to leave, and wait until it has."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            self.process.wait(WAIT_S)


@pytest.fixture
def start(broker: KafkaCluster, prefix: str, tmp_path: Path) -> Iterator[Callable[[str], Owner]]:
    started: list[Owner] = []

    def begin(name: str) -> Owner:
        started.append(Owner(broker, prefix, name, tmp_path))
        return started[-1]

    yield begin
    for owner in started:
        owner.process.kill()
        with owner.process:  # closes its stdin, and waits
            pass


def until(what: Callable[[], object], text: str) -> None:
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, text
        time.sleep(0.05)


def share(*owners: Owner) -> None:
    """Wait until these processes have all slots, each of them some."""

    def shared() -> bool:
        sets = [owner.open for owner in owners]
        return all(sets) and sum(map(len, sets)) == 64

    until(shared, f"the slots are not shared out: {[len(owner.open) for owner in owners]}")


def goes_on(*owners: Owner) -> None:
    """Wait until each of them has a save answered that began later."""
    before = {owner: len(owner.saved) for owner in owners}
    until(lambda: all(len(one.saved) > count + 20 for one, count in before.items()), "nothing is saved")


@asynccontextmanager
async def service(broker: KafkaCluster, prefix: str, name: str = "reader") -> AsyncIterator[Service]:
    """What a process has that starts now, without a lease."""
    made = Service(broker.bootstrap, prefix, name)
    await made.cluster.start()
    try:
        yield made
    finally:
        await made.close()


async def check_saved(broker: KafkaCluster, prefix: str, owners: Sequence[Owner]) -> int:
    """Every answered save is known to a process that starts now, and none was made by two owners; returns where its journal
    begins."""
    made = Service(broker.bootstrap, prefix, "reader")
    await made.start()
    try:
        await asyncio.wait_for(_all_open(made), WAIT_S)
        begin: int = made.cursors._journal.begin  # type: ignore[attr-defined]
        answered = Counter(pair for owner in owners for pair in owner.saved)
        assert answered, "nothing was saved"
        twice = [pair for pair, times in answered.items() if times > 1]
        assert not twice, f"acknowledged by two owners: {twice[:5]}"
        lost = [pair for pair in answered if not made.served[pair[0]].mask(pair[1], 1)]
        assert not lost, f"{len(lost)} of {len(answered)} answered saves are lost: {lost[:5]}"
        return begin
    finally:
        await made.close()


async def _all_open(made: Service) -> None:
    while len(made.served) < 64:
        await asyncio.sleep(0.05)


def test_no_answered_save_is_lost_while_processes_come_go_and_hang(
    broker: KafkaCluster, prefix: str, start: Callable[[str], Owner]
) -> None:
    first = start("first")
    share(first)
    second, third = start("second"), start("third")
    share(first, second, third)
    goes_on(first, second, third)
    third.close()
    assert third.events[-1] == ["gone"]
    assert not third.open
    share(first, second)
    second.signal(signal.SIGKILL)
    until(lambda: len(first.open) == 64, "the slots of a killed process are not taken over")
    goes_on(first)
    fourth = start("fourth")
    share(first, fourth)
    for stopped, other in ((first, fourth), (fourth, first)):
        goes_on(stopped, other)
        held = stopped.open
        stopped.signal(signal.SIGSTOP)
        until(lambda other=other: len(other.open) == 64, "the slots of a stopped process are not taken over")  # type: ignore[misc]
        goes_on(other)
        seen = len(stopped.events)
        stopped.signal(signal.SIGCONT)
        until(
            lambda one=stopped, seen=seen, held=held: (
                held  # type: ignore[misc]
                <= {slot for kind, *rest in one.events[seen:] if kind == "closed" for slot in rest[0]}
            ),
            "a process that was stopped does not notice",
        )
        share(stopped, other)
    for owner in (first, fourth):
        owner.close()
    begin = asyncio.run(check_saved(broker, prefix, [first, second, third, fourth]))
    assert begin > 0, "the journal was never trimmed"


def test_no_answered_save_is_lost_when_the_broker_is_killed_or_hangs(
    broker: KafkaCluster, prefix: str, start: Callable[[str], Owner]
) -> None:
    owners = [start("first"), start("second")]
    share(*owners)
    goes_on(*owners)
    broker.kill(signal.SIGKILL)
    broker.restart()
    share(*owners)
    goes_on(*owners)
    broker.kill(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    broker.kill(signal.SIGCONT)
    share(*owners)
    goes_on(*owners)
    for owner in owners:
        owner.close()
    asyncio.run(check_saved(broker, prefix, owners))
    # Offsets and the group itself have expired: nothing depends on them.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def groups() -> set[str]:
        return {one.group_id for one in admin.list_consumer_groups().result().valid}

    until(lambda: f"penstock-{prefix}" not in groups(), "the group does not expire")
    last = start("last")
    share(last)
    goes_on(last)
    last.close()
    asyncio.run(check_saved(broker, prefix, [*owners, last]))


class Listener:
    """`LeaseListener` that releases when it is allowed to."""

    def __init__(self) -> None:
        self.may_release = asyncio.Event()
        self.slots: set[int] = set()
        self.released: list[int] = []

    def gained(self, slots: Sequence[int]) -> None:
        self.slots.update(slots)

    async def releasing(self, slots: Sequence[int]) -> None:
        await self.may_release.wait()
        self.slots.difference_update(slots)
        self.released += slots

    def lost(self, slots: Sequence[int]) -> None:
        raise AssertionError("nothing is lost")

    async def confirm(self) -> None:
        """Nothing to do."""

    def confirmed(self) -> None:
        """Nothing to do."""

    def refused(self, error: PenstockError) -> None:
        raise AssertionError(error)


async def test_a_revocation_waits_until_the_slots_are_released(broker: KafkaCluster, prefix: str) -> None:
    cluster = Cluster(ClusterSettings(url=broker.service_url, documents_topic=prefix))
    await cluster.start()
    await have_owner_topics(cluster)
    topic = f"{prefix}_slots"
    old, new = Listener(), Listener()
    first = Lease(cluster.clients, topic, f"penstock-{prefix}", old)
    second = Lease(cluster.clients, topic, f"penstock-{prefix}", new)
    overlaps: list[int] = []
    new.gained = lambda slots: (overlaps.extend(set(slots) & old.slots), new.slots.update(slots))  # type: ignore[method-assign]
    try:
        async with asyncio.timeout(WAIT_S):
            first.start()
            while len(old.slots) < 64:
                await asyncio.sleep(0.02)
            assert all(first.holds(slot) for slot in range(64))
            second.start()
            while len(first.held) == 64:  # the revocation has begun
                await asyncio.sleep(0.02)
            assert not new.slots
            old.may_release.set()
            while len(old.slots) + len(new.slots) < 64 or not new.slots:
                await asyncio.sleep(0.02)
            assert set(old.released) == new.slots
            assert not overlaps
            new.may_release.set()
            await second.close()
            while len(old.slots) < 64:
                await asyncio.sleep(0.02)
    finally:
        await first.close()
        await second.close()
        await cluster.close()


async def test_a_process_starts_on_a_journal_that_was_trimmed_up_to_its_end(
    broker: KafkaCluster, prefix: str
) -> None:
    change = CursorRecord(TOPIC, 0, SUBSCRIPTION, "id", 7)
    slot = slot_of(TOPIC, 0, 64)
    async with service(broker, prefix, "a") as one:
        await start_without_lease(one)
        await one.cursors.claim([slot])
        await one.cursors.save([change])
        end = one.cursors._journal.position
        await one.cursors._journal.trim(end)
        async with service(broker, prefix, "b") as two:
            await start_without_lease(two)
            assert two.cursors._journal.position == end
            await two.cursors.claim([slot])
            assert two.cursors.load(slot) == {}
            with pytest.raises(PenstockError, match="another process owns"):
                await one.cursors.save([change])


async def test_a_journal_that_would_lose_records_is_refused(broker: KafkaCluster, prefix: str) -> None:
    cluster = Cluster(ClusterSettings(url=broker.service_url, documents_topic=prefix))
    await cluster.start()
    try:
        assert [await have_owner_topics(cluster) for _ in range(2)] == [64, 64]
        await cluster.admin.set_configs(f"{prefix}_cursors", {"retention.ms": "1000"})
        with pytest.raises(PenstockError, match=r"its retention\.ms has to be -1, and is 1000") as caught:
            await have_owner_topics(cluster)
        assert caught.value.kind is ErrorKind.BAD_PARAMETER
    finally:
        await cluster.close()


async def start_without_lease(made: Service) -> None:
    made.set_slots(await have_owner_topics(made.cluster))
    await made.cursors.start()

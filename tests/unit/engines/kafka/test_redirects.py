"""Where clients are sent whose consumers get nothing: documents, which lookups of any process go by."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from tests.unit.engines.kafka.test_calls import Documents

from penstock.broker.cluster import Owner
from penstock.engines.kafka import redirects as module
from penstock.engines.kafka.driver.groups import Member
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.redirects import Redirects
from penstock.model.names import TopicName
from penstock.model.policy import ClientInfo, ConsumerOptions
from penstock.runtime.tasks import Tasks

TOPIC = TopicName.parse("orders-partition-3")
CLIENT = ClientInfo("10.0.0.9:1234")
HERE, THERE = Owner("pulsar://here:1"), Owner("pulsar://there:1")


class Consumer:
    """A consumer of a client, as far as it is asked."""

    waiting = False

    def __init__(self, *, redirected: bool = True) -> None:
        self.options = ConsumerOptions(client=CLIENT, redirected=redirected)
        self.closed = False


class Source:
    """A subscription whose partition is elsewhere."""

    name, at, waiting, taking = "s", ("orders", 3), True, False

    def __init__(self, *consumers: Consumer) -> None:
        self.consumers = list(consumers)


class Group:
    """A group of which the other process has all partitions, or this one."""

    name = "s"

    def __init__(self, *sources: Source) -> None:
        self.sources = {source.at: source for source in sources}
        self.assigned_at: dict[tuple[str, int], int] = {}
        self.looks = 0

    async def elsewhere(self) -> list[Member]:
        self.looks += 1
        return [Member("there-1", "there", "", frozenset(self.sources))]


class Groups:
    """The one group."""

    def __init__(self, group: Group) -> None:
        self.all: Any = [group]


class Cluster:
    """`kafka.cluster.KafkaCluster`, as far as it is asked."""

    def __init__(self, own: Owner) -> None:
        self.own = own
        self.sent: Callable[[TopicName, ClientInfo], Owner] | None = None


class Bench:
    """Two processes: the client's consumer is at `here`, its partition at `there`."""

    def __init__(self) -> None:
        self.documents, self.tasks, self.now = Documents(), Tasks(), 100.0
        self.consumer = Consumer()
        self.group, self.other = Group(Source(self.consumer)), Group()
        self.left: list[Consumer] = []
        self.here, self.there = (
            self.process("here", HERE, self.group),
            self.process("there", THERE, self.other),
        )

    def process(self, name: str, own: Owner, group: Group) -> Redirects:
        async def leave(consumer: Any) -> None:
            self.left.append(consumer)
            del group.sources[Source.at]

        return Redirects(
            Cluster(own),  # type: ignore[arg-type]
            self.documents,  # type: ignore[arg-type]
            Naming({}),
            name,
            Groups(group),
            leave,
            self.tasks.spawn,
        )

    async def later(self, seconds: float) -> None:
        self.now += seconds
        for one in (self.here, self.there):
            one.look()
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    made = Bench()
    monkeypatch.setattr(module, "_now", lambda: made.now)
    await made.here.load()
    await made.there.load()
    yield made
    await made.tasks.close()


async def test_a_client_is_sent_to_the_process_that_has_its_partition(bench: Bench) -> None:
    bench.other.assigned_at[Source.at] = 1
    await bench.later(0)
    await bench.later(1)
    assert (bench.left, bench.here.owner(TOPIC, CLIENT)) == ([], Owner(""))
    await bench.later(module.WAITED_S * module.SPREAD)
    assert bench.left == [bench.consumer]
    assert bench.here.owner(TOPIC, ClientInfo("10.0.0.9:77")) == THERE
    assert bench.there.owner(TOPIC, CLIENT) == Owner("")  # it is there already
    assert bench.here.owner(TopicName.parse("orders-partition-2"), CLIENT) == Owner("")
    assert bench.here.owner(TOPIC, ClientInfo("10.0.0.8:1234")) == Owner("")
    await bench.later(module.COUNTS_S + 1)
    assert bench.here.owner(TOPIC, CLIENT) == Owner("")
    assert [kind for kind, _ in bench.documents.stored] == [module.PROCESSES]


async def test_who_comes_back_to_no_avail_waits_longer_each_time(bench: Bench) -> None:
    bench.other.assigned_at[Source.at] = 1
    times: list[float] = []
    for _ in range(60):
        await bench.later(1)
        if len(bench.left) > len(times):
            times.append(bench.now)
            bench.group.sources[Source.at] = Source(bench.consumer)
    gaps = [later - before for before, later in pairwise(times)]
    assert len(times) >= 2
    assert gaps == sorted(gaps)


async def test_nobody_is_sent_where_the_way_is_not_known_or_no_client_can_go(bench: Bench) -> None:
    for _ in range(20):
        await bench.later(1)
    assert (bench.left, bench.group.looks) == ([], 1)  # the other one has said nothing
    bench.other.assigned_at[Source.at] = 1
    bench.group.sources[Source.at] = Source(Consumer(redirected=False))
    for _ in range(60):
        await bench.later(1)
    assert (bench.left, bench.group.looks) == ([], 1)


async def test_a_process_that_ends_says_so(bench: Bench) -> None:
    bench.other.assigned_at[Source.at] = 1
    await bench.later(1)
    assert bench.documents.stored
    await bench.there.close()
    assert not bench.documents.stored

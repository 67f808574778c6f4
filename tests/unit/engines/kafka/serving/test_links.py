"""Which way a consumer's link takes to the owner of its partition."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import TOPIC, Server
from tests.support.skipping_log import SkippingLog
from tests.support.waiting import until_async

from penstock.broker.cluster import Owner
from penstock.broker.fleet import Process, ProcessGoneError
from penstock.client.authentication import Authentication
from penstock.client.entries.arrived import Arrived
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.errors import ConnectError
from penstock.client.session.connection import Address
from penstock.engines.attached.link import Attachment, Moved
from penstock.engines.attached.local_link import LocalLink
from penstock.engines.attached.moving_link import MovingLink
from penstock.engines.fleet.sessions import Asking, ProcessAuthentication, Proof
from penstock.engines.kafka.serving import links as module
from penstock.engines.kafka.serving.links import OwnerLinks, Owners
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.model.secret import Secret
from penstock.testing.clock import ManualClock, settle

PROOF = Proof(Secret("a secret of sixteen bytes"))
NAME = TopicName.parse(TOPIC)
B = Process(
    id="b", url="http://127.0.0.1:2", pulsar_url="pulsar://queue.example:5", peer_url="pulsar://127.0.0.1:3"
)


class Peers:
    """The processes that are known, and those that a look finds."""

    def __init__(self) -> None:
        self.known: dict[str, Process] = {}
        self.begun: dict[str, Process] = {}
        self.others: set[str] = set()  # of another secret
        self.looks = 0

    def find(self, id: str) -> Process | None:
        return self.known.get(id)

    @property
    def unverified(self) -> set[str]:
        return self.others

    async def look_up(self) -> None:
        self.looks += 1
        self.known |= self.begun


class Pools:
    """Connections that are not made: where they were asked for, and by which credentials."""

    def __init__(self) -> None:
        self.asked: list[tuple[Authentication, Address]] = []
        self.closed: list[Authentication] = []
        self.connection: Any = None

    def __call__(self, authentication: Authentication, *_: object, entry_metadata: bool) -> Any:
        assert entry_metadata, "offsets come with entries"
        pools = self

        class Pool:
            async def link(self, address: Address) -> Any:
                pools.asked.append((authentication, address))
                if pools.connection is None:
                    raise ConnectError("refused by the test")
                return pools.connection

            def __contains__(self, link: object) -> bool:
                return link is pools.connection

            async def close(self) -> None:
                pools.closed.append(authentication)

        return Pool()


class Connection:
    """One on which a broker takes everything."""

    closed = False

    def __init__(self) -> None:
        self.consumers: dict[int, Any] = {}
        self.answers = asyncio.Event()
        self.answers.set()

    async def ask(self, command: Any, timeout_s: float) -> None:
        await self.answers.wait()

    def write(self, frames: list[bytes]) -> None:
        pass


class Sink:
    """What came over a link."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.events: list[object] = []

    def arrived(self, entries: list[Arrived]) -> None:
        self.came += [one.entry_id for one in entries]

    def reset(self) -> None:
        self.events.append("reset")

    def moved(self) -> None:
        self.events.append("moved")

    def active(self, active: bool) -> None:
        self.events.append(active)

    def end_reached(self) -> None:
        self.events.append("end")

    def ended(self, error: PenstockError) -> None:
        self.events.append(error)


class Case:
    """Process `a`, whose consumers are led to owners, and process `b`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        log, journal = SkippingLog(ManualClock()), Log()
        log.grow(0, 3)
        self.a, self.b = Server(journal, "a", log), Server(journal, "b", log)
        self.peers, self.pools = Peers(), Pools()
        monkeypatch.setattr(module, "Pool", self.pools)
        self.credentials: dict[str, ProcessAuthentication] = {}
        self.refusal: Exception | None = None
        self.links = self.made(self.peers)

    def made(self, peers: Peers | None) -> OwnerLinks:
        owners = Owners(self.a.cursors, lambda topic: (TOPIC, 0), peers)
        return OwnerLinks(owners, self.a.consumers, self.a.tasks, self.credential, 20.0)

    async def credential(self, process: str) -> ProcessAuthentication:
        if self.refusal is not None:
            raise self.refusal
        made = self.credentials[process] = ProcessAuthentication(Asking(PROOF, "a", process))
        return made

    async def owned_by_b(self) -> None:
        await self.b.gain()
        self.a.read()

    def wanted(self, type: SubscriptionType = SubscriptionType.SHARED, **options: Any) -> Attachment:
        return Attachment(NAME, "s", "c", ConsumerOptions(type=type, start=EARLIEST, **options), EARLIEST)

    async def close(self) -> None:
        await self.links.close()
        await self.a.close()
        await self.b.close()


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    made = Case(monkeypatch)
    yield made
    await made.close()


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_the_own_partition_is_consumed_without_a_network(case: Case, type: SubscriptionType) -> None:
    await case.a.gain()
    sink = Sink()
    link = await case.links.link_to(case.wanted(type), sink)
    await link.start()
    link.flow(10)
    await settle()
    assert sink.came == [0, 1, 2]
    link.acknowledge([(case.a.topic.ledger, 0)])
    await link.flush()
    assert case.a.cursors.known(TOPIC, 0)["s"].mark == 1
    await case.a.release()
    await settle()
    assert isinstance(sink.events[-1], Moved)
    with pytest.raises(Moved):
        await link.flush()
    await link.close()


async def test_a_partition_of_another_process_is_reached_at_its_address(case: Case) -> None:
    await case.owned_by_b()
    case.peers.begun["b"] = B
    link = await case.links.link_to(case.wanted(), Sink())
    assert isinstance(link, EntryConsumer)
    assert case.peers.looks == 1
    with pytest.raises(ConnectError):
        await case.links.link(str(NAME))
    first = case.credentials["b"]
    with pytest.raises(ConnectError):
        await case.links.link(str(NAME))
    assert case.pools.asked == 2 * [(first, Address("127.0.0.1", 3, False))]
    first.stale = True  # the other process has forgotten the session
    with pytest.raises(ConnectError):
        await case.links.link(str(NAME))
    assert case.pools.asked[2][0] is case.credentials["b"] is not first
    await settle()
    assert case.pools.closed == [first]


async def test_a_process_that_proves_nothing_is_not_connected_to(case: Case) -> None:
    await case.owned_by_b()
    case.peers.known["b"] = B
    case.refusal = ProcessGoneError("another program is at its address")
    with pytest.raises(Moved):
        await case.links.link(str(NAME))
    case.refusal = PenstockError(ErrorKind.UNAVAILABLE, "it does not answer")
    with pytest.raises(ConnectError, match="it does not answer"):
        await case.links.link(str(NAME))
    assert case.pools.asked == []


async def test_a_partition_that_comes_here_is_no_longer_looked_for_elsewhere(case: Case) -> None:
    case.peers.known["b"] = B
    await case.owned_by_b()
    await case.b.release()
    await case.a.gain()
    with pytest.raises(Moved):
        await case.links.link(str(NAME))
    assert isinstance(await case.links.link_to(case.wanted(), Sink()), LocalLink)


async def test_clients_are_led_to_an_owner_whose_address_is_known(case: Case) -> None:
    owners = Owners(case.a.cursors, lambda topic: (TOPIC, 0), case.peers)
    assert owners.address(NAME) == Owner("")  # nobody owns it
    await case.owned_by_b()
    assert owners.address(NAME) == Owner("")
    case.peers.known["b"] = B
    assert owners.address(NAME) == Owner("pulsar://queue.example:5")
    await case.b.release()
    await case.a.gain()
    assert owners.address(NAME) == Owner("")  # it is served here


async def test_readers_are_served_here(case: Case) -> None:
    await case.owned_by_b()
    sink = Sink()
    link = MovingLink(case.links.link_to, case.wanted(durable=False), sink, case.a.tasks)
    await link.start()
    link.flow(10)
    await settle()
    assert (sink.came, case.pools.asked) == ([0, 1, 2], [])
    await link.close()


async def test_an_owner_that_cannot_be_reached_is_named(case: Case) -> None:
    await case.owned_by_b()
    with pytest.raises(PenstockError, match=r"fleet\.secret") as alone:
        await case.made(None).link_to(case.wanted(), Sink())
    assert (alone.value.kind, alone.value.retriable) == (ErrorKind.UNAVAILABLE, True)
    with pytest.raises(Moved):  # it has ended, or has not begun to be known
        await case.links.link_to(case.wanted(), Sink())
    case.peers.others.add("b")
    with pytest.raises(PenstockError, match=r"uses another fleet\.secret"):
        await case.links.link_to(case.wanted(), Sink())
    case.peers.known["b"] = Process(id="b", url="http://10.0.0.1:2")  # a forged document changes nothing
    with pytest.raises(PenstockError, match=r"http\.advertise"):
        await case.links.link_to(case.wanted(), Sink())
    with pytest.raises(Moved):  # a link that exists goes on by `link_to`
        await case.links.link(str(NAME))


async def test_nothing_is_owned_before_the_first_claim(case: Case) -> None:
    with pytest.raises(Moved):
        await case.links.link_to(case.wanted(), Sink())


async def test_connections_to_a_process_that_ended_are_closed(case: Case) -> None:
    await case.owned_by_b()
    case.peers.known["b"] = B
    with pytest.raises(ConnectError):
        await case.links.link(str(NAME))
    old, case.peers.known = (
        case.credentials["b"],
        {"c": Process(id="c", url="", peer_url="pulsar://[::1]:4")},
    )
    c = Server(case.b.process.journal.log, "c", case.b.topic.log)
    await c.gain()
    case.a.read()
    with pytest.raises(ConnectError):
        await case.links.link(str(NAME))
    await settle()
    assert case.pools.closed == [old]
    await c.close()


async def test_a_link_leaves_an_owner_that_another_process_replaced(case: Case) -> None:
    """The one before may have stopped without a word."""
    await case.owned_by_b()
    case.peers.known["b"] = B
    case.pools.connection, sink = Connection(), Sink()
    link = await case.links.link_to(case.wanted(), sink)
    assert isinstance(link, EntryConsumer)
    await link.start()
    await case.owned_by_b()
    assert link.connected
    await case.a.gain()
    assert not link.connected
    assert sink.events == ["reset"]
    await until_async(lambda: len(sink.events) == 2)
    assert isinstance(sink.events[1], Moved)
    assert case.pools.connection.consumers == {}


async def test_no_answer_of_an_owner_that_another_process_replaced_is_waited_for(case: Case) -> None:
    await case.owned_by_b()
    case.peers.known["b"] = B
    case.pools.connection = Connection()
    case.pools.connection.answers.clear()
    link = await case.links.link_to(case.wanted(), Sink())
    starting = case.a.tasks.spawn(link.start(), "start")
    await settle()
    assert case.pools.connection.consumers
    await case.a.gain()
    with pytest.raises(Moved):
        await starting
    assert case.pools.connection.consumers == {}

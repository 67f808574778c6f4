"""Nothing is lost before a real broker: processes are killed, the broker is killed and frozen, connections are cut.

Each fault comes in the middle of publishing and of Shared consumption, in a namespace with deduplication and in one without.
The broker is this file's own.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest
from tests.support.cluster_load import ANSWER_S, Load, ask
from tests.support.pulsar_broker import NUMBERED, PulsarCluster, free_ports, standalone
from tests.support.pulsar_reader import PulsarReader
from tests.support.relay import Relay
from tests.support.waiting import until

from penstock.testing.server import Launched, launch

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
FROZEN_S: Final = 30 if SOAK else 10
ROUNDS: Final = 3 if SOAK else 1  # of each fault
# After how many bytes of the requests or of the answers connections end.
CUTS: Final = ((700, False), (700, True), (5_000, False), (20_000, True))
AGAIN_S: Final = 120
# What sockets are told when the broker stands still for too long (their upgrades are refused without a code), and when
# the broker still has the producer of the socket, or of the requests of that name, before.
NOT_IN_TIME: Final = (
    ("ws", 0, 8),
    ("ws acknowledgement the broker did not answer acknowledgements in time", 0, 0),
    ("ws producer", 503, 0),
    ("ws consumer", 503, 0),
    ("ws producer", 409, 0),
    ("publish", 409, 40904),
)

# What any request may be answered with meanwhile: the cluster does not answer, or a broker that is starting says that its
# bookies are not there yet.
AWAY: Final = ((503, 50301), (503, 50306))

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800 if SOAK else 600)]


class Way:
    """The broker, and the relay that everybody reaches it by."""

    def __init__(self) -> None:
        self.cluster: PulsarCluster
        self.relay: Relay

    def reached_at(self, port: int) -> int:
        self.relay = Relay(port)
        return self.relay.port


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    made = Way()
    settings = {**NUMBERED, "acknowledgmentAtBatchIndexLevelEnabled": "true"}
    try:
        with standalone(tmp_path_factory.mktemp("faults"), settings, reached_at=made.reached_at) as cluster:
            for name in ("once", "plain"):
                cluster.admin("PUT", f"namespaces/public/{name}")
            cluster.admin("POST", "namespaces/public/once/deduplication", json=True)
            made.cluster = cluster
            yield made
    finally:
        made.relay.close()


def flags(cluster: PulsarCluster, *more: str) -> Sequence[str]:
    engine = ("--engine", cluster.service_url, "--admin", cluster.admin_url)
    return *engine, "--pulsar", "off", "--log", "json", *more


@pytest.fixture(scope="module")
def server(way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with launch(tmp_path_factory.mktemp("server"), *flags(way.cluster)) as started:
        yield started


@asynccontextmanager
async def loads(url: str, cluster: PulsarCluster) -> AsyncIterator[list[Load]]:
    """Clients of both namespaces; once the block is left, what they were answered is compared with what is there."""
    topic = f"t{uuid4().hex[:12]}"
    once = Load(url, "public/once", topic, once=True)
    plain = Load(url, "public/plain", topic, once=False)
    async with once, plain:
        await further(once, plain)
        yield [once, plain]
        await asyncio.gather(once.stop(), plain.stop())
    for load in (once, plain):
        print(load)
        await asyncio.to_thread(load.check, PulsarReader(cluster.service_url))


async def further(*clients: Load) -> None:
    await asyncio.gather(*(load.goes_on() for load in clients))


async def happens(clients: Sequence[Load], fault: Callable[[], None]) -> None:
    """A fault, after which everything goes on."""
    for load in clients:
        load.begins()
    await asyncio.to_thread(fault)
    await further(*clients)
    for load in clients:
        load.ends()


async def ready(url: str) -> int:
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        return (await http.get("/health/ready")).status_code


async def turns(url: str, status: int) -> None:
    """Wait until the readiness of a server is answered so."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.timeout(AGAIN_S):
        while (await http.get("/health/ready")).status_code != status:
            await asyncio.sleep(0.1)


def check_refusals(clients: Sequence[Load], *, unreachable: bool = False) -> None:
    """What clients were refused is documented. Of a process that ended they were cut off, and its instances are gone."""
    for load in clients:
        for what, status, code in load.refusals:
            documented = (what, status, code) in NOT_IN_TIME or (status, code) in (*AWAY, (200, 2))
            if unreachable:
                gone = (404, 40403), (404, 40402), (409, 40904)
                documented = documented or status == 0 or (status, code) in gone
            assert documented, (what, status, code, load.refusals)


async def test_a_process_is_killed(way: Way, tmp_path: Path) -> None:
    (port,) = free_ports(1)  # which stays free while nobody listens
    running = Launched.start(tmp_path, *flags(way.cluster), port=port)

    def kill() -> None:
        nonlocal running
        running.kill()
        running = Launched.start(tmp_path, *flags(way.cluster), port=port)

    try:
        async with loads(running.url, way.cluster) as clients:
            for _ in range(ROUNDS):
                await happens(clients, kill)
        check_refusals(clients, unreachable=True)
    finally:
        running.terminate()


async def test_a_worker_is_killed(way: Way, tmp_path: Path) -> None:
    with launch(tmp_path, *flags(way.cluster, "--workers", "2")) as running:

        def pids() -> list[int]:
            lines = [json.loads(line) for line in running.log.splitlines() if line.startswith("{")]
            return [int(line["pid"]) for line in lines if line["event"] == "worker ready"]

        def kill() -> None:
            before = pids()
            os.kill(before[-2], signal.SIGKILL)  # the older one
            until(lambda: len(pids()) > len(before))

        until(lambda: len(pids()) == 2)
        async with loads(running.url, way.cluster) as clients:
            for _ in range(ROUNDS):
                await happens(clients, kill)
        check_refusals(clients, unreachable=True)


async def test_connections_are_cut(way: Way, server: Launched) -> None:
    async with loads(server.url, way.cluster) as clients:
        for _ in range(ROUNDS):
            for size, answers in CUTS:
                before = way.relay.cuts

                def cut(size: int = size, answers: bool = answers, before: int = before) -> None:
                    way.relay.cut_within(size, answers=answers)
                    until(lambda: way.relay.cuts > before)

                await happens(clients, cut)
    check_refusals(clients)
    assert await ready(server.url) == 200


async def test_topics_are_unloaded(way: Way, server: Launched) -> None:
    async with loads(server.url, way.cluster) as clients:
        loop = asyncio.get_running_loop()

        def unload() -> None:
            for load in clients:
                since = loop.time()
                way.cluster.admin("PUT", f"persistent/{load.path}/unload")
                load.unloaded(since, loop.time())

        def unload_all() -> None:
            for load in clients:
                since = loop.time()
                way.cluster.admin("PUT", f"namespaces/{load.path.rpartition('/')[0]}/unload")
                load.unloaded(since, loop.time())

        for _ in range(ROUNDS):
            await happens(clients, unload)
            await happens(clients, unload_all)
    check_refusals(clients)


async def while_away(server: Launched, known: str) -> list[tuple[str, int, int, str]]:
    """What new requests are answered with while the broker does not answer."""
    topic = f"/topics/public/plain/n{uuid4().hex[:12]}"
    message = {"messages": [{"value": "x"}]}
    async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S) as http:
        answers = await asyncio.gather(
            ask(http, "POST", topic, json=message),
            ask(http, "POST", known, json=message),
            ask(
                http,
                "POST",
                f"{known}/subscription/{uuid4().hex[:12]}",
                json={"initial_position": "earliest"},
            ),
            ask(http, "GET", f"{known}/partitions/0/messages"),
            ask(http, "GET", f"{known}/partitions/0/messages?message_id=latest&timeout=100"),
            ask(http, "GET", "/admin/v2/persistent/public/plain"),
        )
        return list(answers)


async def away(
    server: Launched,
    known: str,
    clients: Sequence[Load],
    leave: Callable[[], None],
    come: Callable[[], None],
) -> None:
    """The broker goes and comes back, and all goes on by itself."""
    for load in clients:
        load.begins()
    await asyncio.to_thread(leave)
    since = asyncio.get_running_loop().time()
    asking = asyncio.get_running_loop().create_task(while_away(server, known))
    try:
        await turns(server.url, 503)
        await asyncio.sleep(max(0, since + FROZEN_S - asyncio.get_running_loop().time()))
    finally:
        await asyncio.to_thread(come)
    await further(*clients)
    for load in clients:
        load.ends()
    await turns(server.url, 200)
    answers = await asking
    # What is passed on has the cluster's own answers, also while it starts.
    for path, status, code, why in answers:
        documented = (status, code) in ((200, 0), *AWAY) or path.startswith("/admin/")
        assert documented, (path, status, code, why)


@pytest.fixture(scope="module")
def known(server: Launched) -> str:
    """A topic that the server knows already."""
    path = "/topics/public/plain/known"
    answer = httpx.post(f"{server.url}{path}", json={"messages": [{"value": "x"}]}, timeout=60)
    assert answer.status_code == 200
    return path


async def test_the_broker_is_frozen(way: Way, server: Launched, known: str) -> None:
    cluster = way.cluster
    async with loads(server.url, cluster) as clients:
        for _ in range(ROUNDS):
            await away(
                server,
                known,
                clients,
                lambda: cluster.kill(signal.SIGSTOP),
                lambda: cluster.kill(signal.SIGCONT),
            )
    check_refusals(clients)


async def test_the_broker_is_killed(way: Way, server: Launched, known: str) -> None:
    cluster = way.cluster

    async with loads(server.url, cluster) as clients:
        loop = asyncio.get_running_loop()

        killed = 0.0

        def kill() -> None:
            nonlocal killed
            killed = loop.time()
            cluster.kill(signal.SIGKILL)

        def restart() -> None:
            for load in clients:  # answers of the killed broker may be on their way until now
                load.crashed(killed, loop.time())
            cluster.restart()

        for _ in range(ROUNDS):
            await away(server, known, clients, kill, restart)
    check_refusals(clients)

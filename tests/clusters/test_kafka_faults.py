"""Nothing is lost before a real Kafka: processes are killed, the broker is killed and frozen, connections are cut.

Each fault comes in the middle of publishing and of Shared consumption with individual acknowledgements. The broker is this file's own.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest
from tests.support.cluster_load import ANSWER_S, Load, ask
from tests.support.kafka_broker import KafkaCluster
from tests.support.kafka_faults import ROUNDS, SOAK, Way, flags_of, new_service
from tests.support.kafka_reader import KafkaReader
from tests.support.pulsar_broker import free_ports
from tests.support.waiting import until

from penstock.testing.server import Launched, launch

# In the long form the group throws out who does not answer in time: sessions last 10 s.
FROZEN_S: Final = 25 if SOAK else 2
# After how many bytes of the requests or of the answers connections end.
CUTS: Final = (
    ((700, False), (5_000, True)) if not SOAK else ((700, False), (700, True), (5_000, False), (20_000, True))
)
AGAIN_S: Final = 120

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800 if SOAK else 600)]


@pytest.fixture(scope="module")
def service() -> str:
    return new_service()


@pytest.fixture(scope="module")
def server(kafka_way: Way, service: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with launch(tmp_path_factory.mktemp("server"), *flags_of(kafka_way.cluster, service)) as started:
        yield started


@asynccontextmanager
async def load_of(url: str, cluster: KafkaCluster, service: str) -> AsyncIterator[Load]:
    """Clients of a new topic; once the block is left, what they were answered is compared with what is there."""
    topic = f"t{uuid4().hex[:12]}"
    async with Load(url, "public/default", topic, once=False) as load:
        await load.goes_on()
        yield load
        await load.stop()
    print(load)
    await asyncio.to_thread(load.check, KafkaReader(cluster.plain, service))


async def happens(load: Load, fault: Callable[[], None]) -> None:
    """A fault, after which everything goes on."""
    load.begins()
    await asyncio.to_thread(fault)
    await load.goes_on()
    load.ends()


async def turns(url: str, status: int) -> None:
    """Wait until the readiness of a server is answered so."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http, asyncio.timeout(AGAIN_S):
        while (await http.get("/health/ready")).status_code != status:
            await asyncio.sleep(0.1)


def check_refusals(load: Load, *, gone: bool = False) -> None:
    """What clients were refused is documented. Of a process that ended they were cut off, and its instances are gone."""
    for what, status, code in load.refusals:
        documented = (status, code) in ((503, 50301), (200, 50301), (200, 2)) or (what, status, code) == (
            "ws",
            0,
            8,
        )
        # Sockets are told in words that acknowledgements were not committed; upgrades are refused without a code.
        # The name of a producer is its own until what it had published is answered.
        documented = documented or (what, status) == ("ws producer", 409)
        documented = documented or what.startswith("ws acknowledgement ") or (what[:2], status) == ("ws", 503)
        if gone:
            documented = (
                documented or status == 0 or (status, code) in ((404, 40403), (404, 40402), (409, 40904))
            )
        assert documented, (what, status, code, load.refusals)


async def test_a_process_is_killed(kafka_way: Way, tmp_path: Path) -> None:
    (port,) = free_ports(1)  # which stays free while nobody listens
    service = new_service()
    running = Launched.start(tmp_path, *flags_of(kafka_way.cluster, service), port=port)

    def kill() -> None:
        nonlocal running
        running.kill()
        running = Launched.start(tmp_path, *flags_of(kafka_way.cluster, service), port=port)

    try:
        async with load_of(running.url, kafka_way.cluster, service) as load:
            for _ in range(ROUNDS):
                await happens(load, kill)
        check_refusals(load, gone=True)
    finally:
        running.terminate()


async def test_a_worker_is_killed(kafka_way: Way, tmp_path: Path) -> None:
    service = new_service()
    with launch(tmp_path, *flags_of(kafka_way.cluster, service, "--workers", "2")) as running:

        def pids() -> list[int]:
            lines = [json.loads(line) for line in running.log.splitlines() if line.startswith("{")]
            return [int(line["pid"]) for line in lines if line["event"] == "worker ready"]

        def kill() -> None:
            before = pids()
            os.kill(before[-2], signal.SIGKILL)  # the older one
            until(lambda: len(pids()) > len(before))

        until(lambda: len(pids()) == 2)
        async with load_of(running.url, kafka_way.cluster, service) as load:
            for _ in range(ROUNDS):
                await happens(load, kill)
        check_refusals(load, gone=True)


async def test_connections_are_cut(kafka_way: Way, server: Launched, service: str) -> None:
    async with load_of(server.url, kafka_way.cluster, service) as load:
        for _ in range(ROUNDS):
            for size, answers in CUTS:
                before = kafka_way.relay.cuts

                def cut(size: int = size, answers: bool = answers, before: int = before) -> None:
                    kafka_way.relay.cut_within(size, answers=answers)
                    until(lambda: kafka_way.relay.cuts > before)

                await happens(load, cut)
    check_refusals(load)
    await turns(server.url, 200)


async def while_away(server: Launched, known: str) -> list[tuple[str, int, int, str]]:
    """What new requests are answered with while the broker does not answer."""
    topic = f"/topics/public/default/n{uuid4().hex[:12]}"
    message = {"messages": [{"value": "x"}]}
    async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S) as http:
        subscription = f"{known}/subscription/{uuid4().hex[:12]}"
        answers = await asyncio.gather(
            ask(http, "POST", topic, json=message),
            ask(http, "POST", known, json=message),
            ask(http, "POST", subscription, json={"initial_position": "earliest"}),
            ask(http, "GET", f"{known}/partitions/0/messages"),
            ask(http, "GET", f"{known}/partitions/0/messages?message_id=latest&timeout=100"),
            ask(http, "GET", "/admin/v2/persistent/public/default"),
        )
        return list(answers)


async def away(
    server: Launched, known: str, load: Load, leave: Callable[[], None], come: Callable[[], None]
) -> None:
    """The broker goes and comes back, and all goes on by itself."""
    load.begins()
    await asyncio.to_thread(leave)
    since = asyncio.get_running_loop().time()
    asking = asyncio.get_running_loop().create_task(while_away(server, known))
    try:
        await turns(server.url, 503)
        await asyncio.sleep(max(0, since + FROZEN_S - asyncio.get_running_loop().time()))
    finally:
        await asyncio.to_thread(come)
    await load.goes_on()
    load.ends()
    await turns(server.url, 200)
    for path, status, code, why in await asking:
        print(path, status, code, why)
        assert (status, code) in ((200, 0), (503, 50301)), (path, status, code, why)


@pytest.fixture(scope="module")
def known(server: Launched) -> str:
    """A topic that the server knows already."""
    path = "/topics/public/default/known"
    answer = httpx.post(f"{server.url}{path}", json={"messages": [{"value": "x"}]}, timeout=60)
    assert answer.status_code == 200
    return path


async def test_the_broker_is_frozen(kafka_way: Way, server: Launched, service: str, known: str) -> None:
    cluster = kafka_way.cluster
    async with load_of(server.url, cluster, service) as load:
        for _ in range(ROUNDS):
            await away(
                server,
                known,
                load,
                lambda: cluster.kill(signal.SIGSTOP),
                lambda: cluster.kill(signal.SIGCONT),
            )
    check_refusals(load)


async def test_the_broker_is_killed(kafka_way: Way, server: Launched, service: str, known: str) -> None:
    cluster = kafka_way.cluster
    async with load_of(server.url, cluster, service) as load:
        for _ in range(ROUNDS):
            await away(server, known, load, lambda: cluster.kill(signal.SIGKILL), cluster.restart)
    check_refusals(load)

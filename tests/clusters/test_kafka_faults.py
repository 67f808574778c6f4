"""Nothing is lost before a real Kafka: processes are killed, the broker is killed and frozen, connections are cut.

Each fault comes in the middle of publishing and of Shared consumption with individual acknowledgements. The broker is this file's own.
"""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import pytest
from tests.support.cluster_load import ANSWER_S, Load, ask
from tests.support.group_load import KEYS, PARTITIONS, Consuming, GroupLoad, Holding
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.kafka_reader import KafkaReader
from tests.support.relay import Relay
from tests.support.waiting import until, until_async

from penstock.testing.server import Launched, launch

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
# In the long form the group throws out who does not answer in time: sessions last 10 s.
FROZEN_S: Final = 25 if SOAK else 2
ROUNDS: Final = 3 if SOAK else 1  # of each fault
# After how many bytes of the requests or of the answers connections end.
CUTS: Final = (
    ((700, False), (5_000, True)) if not SOAK else ((700, False), (700, True), (5_000, False), (20_000, True))
)
AGAIN_S: Final = 120

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800 if SOAK else 600)]


class Way:
    """The broker, and the relay that everybody reaches it by."""

    def __init__(self) -> None:
        self.cluster: KafkaCluster
        self.relay: Relay

    def reached_at(self, port: int) -> int:
        self.relay = Relay(port)
        return self.relay.port


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    made = Way()
    try:
        with standalone(tmp_path_factory.mktemp("faults"), reached_at=made.reached_at) as cluster:
            made.cluster = cluster
            yield made
    finally:
        made.relay.close()


def flags(cluster: KafkaCluster, *more: str) -> Sequence[str]:
    return "--engine", cluster.service_url, "--pulsar", "off", "--log", "json", *more


@pytest.fixture(scope="module")
def server(way: Way, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    with launch(tmp_path_factory.mktemp("server"), *flags(way.cluster)) as started:
        yield started


@asynccontextmanager
async def load_of(url: str, cluster: KafkaCluster) -> AsyncIterator[Load]:
    """Clients of a new topic; once the block is left, what they were answered is compared with what is there."""
    topic = f"t{uuid4().hex[:12]}"
    async with Load(url, "public/default", topic, once=False, mark=f"{topic}-") as load:
        await load.goes_on()
        yield load
        await load.stop()
    print(load)
    await asyncio.to_thread(load.check, KafkaReader(cluster.plain))


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
        documented = documented or what.startswith("ws acknowledgement ") or (what[:2], status) == ("ws", 503)
        if gone:
            documented = (
                documented or status == 0 or (status, code) in ((404, 40403), (404, 40402), (409, 40904))
            )
        assert documented, (what, status, code, load.refusals)


async def test_a_process_is_killed(way: Way, tmp_path: Path) -> None:
    running = Launched.start(tmp_path, *flags(way.cluster))
    port = running.port

    def kill() -> None:
        nonlocal running
        running.kill()
        running = Launched.start(tmp_path, *flags(way.cluster), port=port)

    try:
        async with load_of(running.url, way.cluster) as load:
            for _ in range(ROUNDS):
                await happens(load, kill)
        check_refusals(load, gone=True)
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
        async with load_of(running.url, way.cluster) as load:
            for _ in range(ROUNDS):
                await happens(load, kill)
        check_refusals(load, gone=True)


async def test_connections_are_cut(way: Way, server: Launched) -> None:
    async with load_of(server.url, way.cluster) as load:
        for _ in range(ROUNDS):
            for size, answers in CUTS:
                before = way.relay.cuts

                def cut(size: int = size, answers: bool = answers, before: int = before) -> None:
                    way.relay.cut_within(size, answers=answers)
                    until(lambda: way.relay.cuts > before)

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


async def test_the_broker_is_frozen(way: Way, server: Launched, known: str) -> None:
    cluster = way.cluster
    async with load_of(server.url, cluster) as load:
        for _ in range(ROUNDS):
            await away(
                server,
                known,
                load,
                lambda: cluster.kill(signal.SIGSTOP),
                lambda: cluster.kill(signal.SIGCONT),
            )
    check_refusals(load)


async def test_the_broker_is_killed(way: Way, server: Launched, known: str) -> None:
    cluster = way.cluster
    async with load_of(server.url, cluster) as load:
        for _ in range(ROUNDS):
            await away(server, known, load, lambda: cluster.kill(signal.SIGKILL), cluster.restart)
    check_refusals(load)


# -- several processes


@asynccontextmanager
async def groups(server: Launched, cluster: KafkaCluster) -> AsyncIterator[GroupLoad]:
    """Consumers of the server with others to come; once the block is left, all was delivered and is acknowledged."""
    async with GroupLoad(server.url, f"g{uuid4().hex[:12]}") as load:
        yield load
        await load.stop()
        reader = KafkaReader(cluster.plain)
        lags = [partial(reader.lag, load.path, book.subscription) for book in load.books]
        await asyncio.to_thread(until, lambda: not any(lag() for lag in lags), said=load.__str__)
    print(load)
    load.check()


@asynccontextmanager
async def visitor(load: GroupLoad, way: Way, folder: Path) -> AsyncIterator[tuple[Launched, Consuming]]:
    """A second process, which has consumers of its own and gets partitions."""
    running = await asyncio.to_thread(Launched.start, folder, *flags(way.cluster))
    try:
        consuming = load.consume(running.url)
        await load.takes_part(consuming)
        yield running, consuming
        await load.all_came()
        await consuming.leave()
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(running.terminate)


async def test_processes_join_and_leave(way: Way, server: Launched, tmp_path: Path) -> None:
    async with groups(server, way.cluster) as load:
        for _ in range(2 * ROUNDS - 1):
            async with visitor(load, way, tmp_path) as (running, consuming):
                await consuming.leave()
                await load.all_came()
                again = load.consume(running.url)
                await load.takes_part(again)
                await asyncio.to_thread(running.terminate)
                await again.leave()


async def test_a_process_freezes_until_it_is_thrown_out(way: Way, server: Launched, tmp_path: Path) -> None:
    """What it was told before it froze, it works on when others have its partitions: it must not count."""
    async with groups(server, way.cluster) as load:
        for _ in range(ROUNDS):
            async with visitor(load, way, tmp_path) as (running, consuming):
                running.process.send_signal(signal.SIGSTOP)
                await load.all_came()
                running.process.send_signal(signal.SIGCONT)
                await load.takes_part(consuming)
                if SOAK:
                    await asyncio.to_thread(running.kill)


async def test_late_acknowledgements_are_refused(way: Way, server: Launched, tmp_path: Path) -> None:
    """One holds messages, and another one gets those of the partitions that go to it: it alone may acknowledge them."""
    topic = f"l{uuid4().hex[:12]}"
    path = f"public/default/{topic}"
    async with httpx.AsyncClient(base_url=server.url, timeout=ANSWER_S) as http:
        made = await http.put(f"/admin/v2/persistent/{path}/partitions", json=PARTITIONS)
        assert made.status_code == 204
        messages = [{"key": f"k{number}", "value": f"k{number}:0"} for number in range(KEYS)]
        answer = await http.post(f"/topics/{path}", json={"messages": messages})
        assert not any(one["error_code"] for one in answer.json()["messageIds"])
    with launch(tmp_path, *flags(way.cluster)) as other:
        async with Holding(server.url, path, topic) as first:
            await until_async(lambda: len(first.held) == KEYS)
            async with Holding(other.url, path, topic) as second:
                await until_async(lambda: second.held)
                late = list(second.held)
                for message_id in late:
                    await first.acknowledge(message_id)
                await until_async(lambda: first.answers.keys() >= set(late))
                assert "ok" not in [first.answers[one] for one in late]
                for message_id in late:
                    await second.acknowledge(message_id)
                await until_async(lambda: second.answers.keys() >= set(late))
                assert {second.answers[one] for one in late} == {"ok"}
    left = KafkaReader(way.cluster.plain).left(path, topic, Counter())
    assert left.total() == KEYS - len(late)

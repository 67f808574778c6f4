"""A server stops within a bound while its broker does not answer, whatever it has open. The broker is this file's own."""

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

import httpx
from tests.support.cluster_load import SOCKET
from tests.support.kafka_rest import framed
from tests.support.pulsar_broker import NUMBERED, PulsarCluster, standalone
from tests.support.stages import stage
from websockets.asyncio.client import connect

from penstock.client.access import Access
from penstock.pipeline.http.stages import Stages
from penstock.testing.server import Launched, launch

# Documented are 20 s beyond http.drain_ms. One command that waits for the broker takes 30 s, and those below would
# wait one after the other.
STOP_S: Final = 60
TOPICS: Final = ("a", "b", "c", "d")


async def test_a_server_stops_while_its_broker_is_frozen(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    started = standalone(tmp_path / "broker", {**NUMBERED, "transactionCoordinatorEnabled": "true"})
    cluster = await asyncio.to_thread(started.__enter__)
    try:
        flags = ("--engine", cluster.service_url, "--admin", cluster.admin_url, "--pulsar", "off")
        with launch(tmp_path / "server", *flags, environment={"PENSTOCK_HTTP__DRAIN_MS": "500"}) as server:
            await _stop_frozen(server, cluster)
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)


async def _stop_frozen(server: Launched, cluster: PulsarCluster) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        for topic in TOPICS:
            await _use(http, topic)
        await asyncio.to_thread(_stage, server)
        ws = f"{server.ws}/ws/v2"
        async with (
            connect(
                f"{ws}/consumer/persistent/public/default/a/ws?subscriptionInitialPosition=Earliest", **SOCKET
            ) as consumer,
            connect(f"{ws}/producer/persistent/public/default/b?producerName=p", **SOCKET) as producer,
            connect(f"{ws}/reader/persistent/public/default/c", **SOCKET) as reader,
        ):
            path = "/topics/public/default/d"
            asking = asyncio.get_running_loop().create_task(
                http.post(f"{path}/request?timeout=60000", json={"value": "?"})
            )
            await consumer.recv()
            await producer.send('{"payload": ""}')
            await producer.recv()
            while len((await _ok(http.get(f"{path}/partitions/0/messages")))["messages"]) < 3:
                await asyncio.sleep(0.1)  # the request is not there yet
            cluster.kill(signal.SIGSTOP)
            try:
                sent = asyncio.get_running_loop().create_task(
                    http.post("/topics/public/default/a", json={"messages": [{"value": "x"}]})
                )
                await producer.send('{"payload": ""}')
                code = await asyncio.to_thread(server.terminate, STOP_S)
            finally:
                cluster.kill(signal.SIGCONT)
            assert code == 0, server.log
            await asyncio.gather(asking, sent, return_exceptions=True)
            await reader.close()


async def _use(http: httpx.AsyncClient, topic: str) -> None:
    """Have a producer, a consumer, a reader and a journal of a topic open."""
    path = f"/topics/public/default/{topic}"
    await _ok(http.post(path, json={"messages": [{"value": "x"}]}))
    made = await _ok(http.post(f"{path}/subscription/s", json={"initial_position": "earliest"}))
    await _ok(http.get(f"{made['base_uri']}/messages"))
    await _ok(http.get(f"{path}/partitions/0/messages"))
    frames = {"content-type": "application/x-kafka"}
    await _ok(http.post(f"/kafka/topics/{topic}/0", content=framed(b"y"), headers=frames))


async def _ok(asking: Any) -> Any:
    answer = await asking
    assert answer.status_code < 300, answer.text
    return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content


def _stage(server: Launched) -> None:
    with Stages(Access(url=server.url), retry_s=0) as client:
        stage(client, "w", 0, "first", a=1)

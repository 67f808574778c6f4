"""A server stops within a bound while its Kafka does not answer, whatever it has open. The broker is this file's own."""

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.support.cluster_load import SOCKET
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.kafka_rest import framed
from websockets.asyncio.client import connect

from penstock.testing.server import Launched, launch

# Documented are 20 s beyond http.drain_ms. One command that waits for the broker takes 30 s, and those below would
# wait one after the other.
STOP_S: Final = 60
TOPICS: Final = ("a", "b", "c", "d")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_server_stops_without_its_broker(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "broker").mkdir()
    started = standalone(tmp_path / "broker")
    cluster = await asyncio.to_thread(started.__enter__)
    try:
        flags = ("--engine", cluster.service_url, "--pulsar", "off")
        with launch(tmp_path / "server", *flags, environment={"PENSTOCK_HTTP__DRAIN_MS": "500"}) as server:
            await _stop_without(server, cluster, number)
    finally:
        await asyncio.to_thread(started.__exit__, None, None, None)


async def _stop_without(server: Launched, cluster: KafkaCluster, number: signal.Signals) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
        for topic in TOPICS:
            await _use(http, topic)
        ws = f"{server.ws}/ws/v2"
        where = f"{ws}/consumer/persistent/public/default/a/ws?subscriptionInitialPosition=Earliest"
        async with (
            connect(where, **SOCKET) as consumer,
            connect(f"{ws}/producer/persistent/public/default/b?producerName=p", **SOCKET) as producer,
            connect(f"{ws}/reader/persistent/public/default/c", **SOCKET),
        ):
            path = "/topics/public/default/d"
            asking = asyncio.get_running_loop().create_task(
                http.post(f"{path}/request?timeout=60000", json={"value": "?"})
            )
            message = await consumer.recv()
            await producer.send('{"payload": ""}')
            await producer.recv()
            while len((await _ok(http.get(f"{path}/partitions/0/messages")))["messages"]) < 3:
                await asyncio.sleep(0.1)  # the request is not there yet
            cluster.kill(number)
            sent = asyncio.get_running_loop().create_task(
                http.post("/topics/public/default/a", json={"messages": [{"value": "x"}]})
            )
            await producer.send('{"payload": ""}')
            await consumer.send(message)  # acknowledges it, by its messageId
            code = await asyncio.to_thread(server.terminate, STOP_S)
            assert code == 0, server.log
            await asyncio.gather(asking, sent, return_exceptions=True)


async def _use(http: httpx.AsyncClient, topic: str) -> None:
    """Have a producer, a consumer, a reader and a journal of a topic open."""
    path = f"/topics/public/default/{topic}"
    await _ok(http.post(path, json={"messages": [{"value": "x"}]}))
    wanted = {"subscription_type": "Shared", "initial_position": "earliest"}
    made = await _ok(http.post(f"{path}/subscription/s-{topic}", json=wanted))
    await _ok(http.get(f"{made['base_uri']}/messages", params={"timeout": 20000}))
    await _ok(http.get(f"{path}/partitions/0/messages"))
    frames = {"content-type": "application/x-kafka"}
    await _ok(http.post(f"/kafka/topics/{topic}/0", content=framed(b"y"), headers=frames))


async def _ok(asking: Any) -> Any:
    answer = await asking
    assert answer.status_code < 300, answer.text
    return answer.json() if "json" in answer.headers.get("content-type", "") else answer.content

"""A server that has too much, or goes down while others wait: an answer at once, and nothing that was acknowledged
is lost."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.ports import kept_port
from tests.support.waiting import until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

import penstock
from penstock.broker.settings import BrokerSettings
from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.protocols.limits import Limits
from penstock.testing.server import Address, running
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

TOPIC = "/topics/public/default/t"
BODY = {"messages": [{"value": "x" * 1000}]}
WS = "/ws/v2/producer/persistent/public/default/t"
HELD_MS = 120_000  # far beyond what a test takes: who is released is not released by this
DRAIN_MS = 60_000  # nor by this
STOP_S = 45


@contextmanager
def held(folder: Path | None = None, pulsar: str = "127.0.0.1:0") -> Iterator[Address]:
    """A server whose topic `t` takes nothing more, and lets who publishes wait."""
    settings = BrokerSettings(quota_hold_ms=HELD_MS)
    with running(folder, broker=settings, pulsar=pulsar, drain_ms=DRAIN_MS) as server:
        with httpx.Client(base_url=server.url) as http:
            ws = f"{server.url}/admin/v2/persistent/public/default/t"
            assert http.put(f"{ws}/subscription/s", content=b'"earliest"').status_code == 204
            quota = {"limitSize": 500, "policy": "producer_request_hold"}
            assert http.post(f"{ws}/backlogQuota", json=quota).status_code == 204
        yield server


def fill(server: Address) -> None:
    assert httpx.post(f"{server.url}{TOPIC}", json=BODY).status_code == 200


def waiting(server: Address) -> int:
    """How many HTTP requests are under way, but for the one that asks."""
    text = httpx.get(f"{server.url}/metrics").text
    line = next(line for line in text.splitlines() if line.startswith("penstock_http_requests_in_progress"))
    return int(float(line.split()[-1])) - 1


def entry(payload: bytes) -> bytes:
    return batch_entry(pack_plain([payload]), 1, producer="p", sequence_id=0, publish_time=1_700_000_000_000)


def test_held_publishes_are_released_when_the_server_goes_down(tmp_path: Path) -> None:
    """Over REST, Kafka REST and in stages: 503 at once, rather than when their time is over."""
    with ThreadPoolExecutor(4) as pool:
        with held(tmp_path) as server:
            fill(server)
            staged = entry(b"staged")
            body = b"".join(pack_sections([("persistent://public/default/t", [staged])]))
            with Stages(Access(url=server.url), retry_s=0) as stages:
                stages.stage("w", 1, "s", 0, body)

            def commit() -> ErrorKind:
                with Stages(Access(url=server.url), retry_s=0) as stages:
                    with pytest.raises(PenstockError) as caught:
                        stages.commit("w", 1, [StageCount("s", 1, 1, len(staged))])
                    return caught.value.kind

            rest = pool.submit(httpx.post, f"{server.url}{TOPIC}", json=BODY, timeout=60)
            kafka = pool.submit(
                httpx.post,
                f"{server.url}/kafka/topics/t/0",
                content="a",
                headers={"content-type": "text/plain"},
                timeout=60,
            )
            committed = pool.submit(commit)
            until(lambda: waiting(server) == 3)
            began = time.monotonic()
        assert time.monotonic() - began < STOP_S
        for answer in (rest.result(), kafka.result()):
            assert answer.status_code == 503
            assert "shutting down" in answer.json()["message"]
            assert answer.headers["retry-after"] == "1"
        assert committed.result() is ErrorKind.UNAVAILABLE
    with running(tmp_path) as server:  # what was held is not stored, what was acknowledged is
        offsets = httpx.get(f"{server.url}{TOPIC}/partitions/0/offsets").json()
        assert (offsets["earliest"], offsets["latest"]) == (0, 1)


async def test_a_held_frame_is_answered_when_the_server_goes_down() -> None:
    context = held()
    server = await asyncio.to_thread(context.__enter__)
    try:
        socket = await connect(server.ws + WS)
        await asyncio.to_thread(fill, server)
        await socket.send(json.dumps({"payload": b64encode(b"a").decode(), "context": "c"}))
        await (await socket.ping())  # the server has read both
        with pytest.raises(TimeoutError):  # held
            await asyncio.wait_for(socket.recv(), 0.2)
        began = time.monotonic()
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
    assert time.monotonic() - began < STOP_S
    answer = json.loads(await socket.recv())
    assert (answer["result"], answer["context"]) == ("send-error:8", "c")
    assert "shutting down" in answer["errorMsg"]
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    assert socket.close_code == 1001


def test_what_our_client_had_waiting_is_stored_by_the_next_server(tmp_path: Path) -> None:
    """Held when the server goes down: the client keeps it, and the next server, which has room, stores it once."""
    with ThreadPoolExecutor(1) as pool, kept_port() as port:
        listen = f"127.0.0.1:{port}"
        with held(tmp_path, listen) as server:
            client = penstock.Client(server.pulsar)
            producer = client.create_producer("t", send_timeout_millis=90_000)
            fill(server)
            sent = pool.submit(producer.send, b"kept by the client")
            with pytest.raises(FutureTimeout):
                sent.result(0.2)
            began = time.monotonic()
        assert time.monotonic() - began < STOP_S
        with running(tmp_path, pulsar=listen) as server:
            quota = f"{server.url}/admin/v2/persistent/public/default/t/backlogQuota"
            assert httpx.delete(quota).status_code == 204
            sent.result(90)
            got = httpx.get(f"{server.url}{TOPIC}/partitions/0/messages?encoding=text").json()["messages"]
            assert [message["value"] for message in got][1:] == ["kept by the client"]
            client.close()


def test_what_was_acknowledged_under_overload_stays(tmp_path: Path) -> None:
    """Many at a time against little room: each is stored, or refused at once with `Retry-After`."""
    body = json.dumps({"messages": [{"value": "x" * 50_000}]}).encode()
    with running(tmp_path, limits=Limits(max_bytes_in_flight=200_000)) as server:

        def publish(number: int) -> int:
            with httpx.Client(base_url=server.url, timeout=60) as http:
                answer = http.post(TOPIC, content=body, headers={"content-type": "application/json"})
            if answer.status_code != 200:
                assert "limits.max_bytes_in_flight" in answer.json()["message"]
                assert answer.headers["retry-after"] == "1"
            return answer.status_code

        with ThreadPoolExecutor(32) as pool:
            statuses = list(pool.map(publish, range(200)))
        assert set(statuses) <= {200, 429, 503}
        stored = httpx.get(f"{server.url}{TOPIC}/partitions/0/offsets").json()["latest"]
        assert stored == statuses.count(200)
        assert stored
    with running(tmp_path) as server:
        assert httpx.get(f"{server.url}{TOPIC}/partitions/0/offsets").json()["latest"] == stored


def test_one_connection_holds_no_more_than_its_share(tmp_path: Path) -> None:
    """Many producers on one connection of Pulsar's protocol: it is read as fast as the store takes it, and all
    of it is stored."""
    limits = Limits(max_connection_bytes_in_flight=200_000)
    with running(tmp_path, limits=limits) as server:
        client = penstock.Client(server.pulsar)
        producers = [client.create_producer("t", batching_enabled=False) for _ in range(10)]
        for _ in range(20):
            for producer in producers:
                producer.send_async(b"x" * 20_000, None)
        for producer in producers:
            producer.flush()
        client.close()
        assert httpx.get(f"{server.url}{TOPIC}/partitions/0/offsets").json()["latest"] == 200

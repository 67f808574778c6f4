"""A disk that fails under a running server: clients get an end, operators are told, and all goes on by itself after."""

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pulsar
import pytest
from tests.support.disk import FaultyServer, on_a_faulty_disk
from tests.support.preloaded import needs_preloading
from websockets.asyncio.client import connect

import penstock
from penstock.testing.server import launch

pytestmark = [needs_preloading, pytest.mark.timeout(120)]

TOPIC = "persistent://public/default/t"
TIMEOUT_MS = 700
LATE_S = 45  # the machine is busy; a client that never gives up is later

FAULTS = {
    "sync": ({"sync": errno.EIO}, 50306, "storage_failed", "io", "EIO"),
    "write": ({"write": errno.EIO}, 50306, "storage_failed", "io", "EIO"),
    "full": ({"write": errno.ENOSPC}, 50302, "storage_full", "full", "ENOSPC"),
    "quota": ({"write": errno.EDQUOT}, 50302, "storage_full", "full", "EDQUOT"),
    "full sync": ({"sync": errno.ENOSPC}, 50302, "storage_full", "full", "ENOSPC"),
}


def official(server: FaultyServer) -> pulsar.Client:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(server.server.pulsar, logger=logger, operation_timeout_seconds=1)


@pytest.mark.parametrize("fault", FAULTS)
def test_it_is_told_once_and_ends_by_itself(tmp_path: Path, fault: str) -> None:
    fails, code, reason, cause, name = FAULTS[fault]
    with on_a_faulty_disk(tmp_path) as server:
        assert server.publish("first")[0] == 200
        assert server.ready() == (200, {"status": "ready"})
        server.disk.fail(**fails)
        for _ in range(20):
            status, body = server.publish("refused")
            assert (status, body["error_code"]) == (503, code), body
        status, body = server.ready()
        assert (status, body["status"], body["error_code"], body["reason"]) == (
            503,
            "not ready",
            code,
            reason,
        )
        assert server.call("GET", "/health/live")[0] == 200
        status, body = server.call("GET", "/admin/v2/brokers/health")
        assert (status, body["error_code"]) == (503, code)
        status, body = server.publish("refused", "new")
        assert (status, body["error_code"]) == (503, code)
        status, topics = server.call("GET", "/admin/v2/persistent/public/default")
        assert (status, topics) == (200, ["persistent://public/default/t"])
        assert server.values() == ["first"]  # reading goes on
        metrics = server.metrics()
        assert metrics[f'penstock_storage_failing{{cause="{cause}"}}'] == 1
        assert sum(value for key, value in metrics.items() if key.startswith("penstock_storage_failing")) == 1
        assert metrics[f'penstock_storage_failed_commits_total{{cause="{cause}"}}'] >= 1
        assert metrics["penstock_storage_refused_publishes_total"] == 20

        server.disk.mend()
        server.until(lambda: server.ready()[0] == 200)  # without a publish
        assert server.publish("second")[0] == 200
        assert server.values() == ["first", "second"]
        assert server.metrics()[f'penstock_storage_failing{{cause="{cause}"}}'] == 0
        (failed,) = server.logged("storage fails")
        assert (failed["level"], failed["cause"], failed["errno"]) == ("error", cause, name)
        assert failed["path"] == str(tmp_path / "data" / "penstock.db")
        (recovered,) = server.logged("storage recovered")
        assert recovered["refused"] == 20
        assert recovered["seconds"] > 0
        assert server.server.log.count("\n") < 10  # nothing is logged for each publish


@pytest.mark.parametrize("fault", ["sync", "full"])
def test_the_official_clients_sends_time_out_and_its_producer_goes_on(tmp_path: Path, fault: str) -> None:
    with on_a_faulty_disk(tmp_path) as server:
        client = official(server)
        try:
            producer = created(server, client)
            server.until(lambda: sent(producer, b"first"))
            server.disk.fail(**FAULTS[fault][0])
            for _ in range(2):
                began = time.monotonic()
                with pytest.raises(pulsar.Timeout):
                    producer.send(b"lost")
                assert time.monotonic() - began < TIMEOUT_MS / 1000 + LATE_S
            with pytest.raises(pulsar.PulsarException):
                client.create_producer("persistent://public/default/other")
            server.disk.mend()
            server.until(lambda: server.ready()[0] == 200)
            server.until(lambda: sent(producer, b"second"))
            reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
            found = [reader.read_next(30_000).data()]
            while found[-1] != b"second":
                found.append(reader.read_next(30_000).data())
            assert found[0] == b"first"
        finally:
            client.close()


def created(server: FaultyServer, client: pulsar.Client) -> pulsar.Producer:
    """A producer of little patience, as soon as the server answers within that."""
    made: list[pulsar.Producer] = []

    def create() -> bool:
        try:
            made.append(client.create_producer(TOPIC, send_timeout_millis=TIMEOUT_MS, batching_enabled=False))
        except pulsar.Timeout:
            return False
        return True

    server.until(create)
    return made[0]


def sent(producer: pulsar.Producer | penstock.Producer, payload: bytes) -> bool:
    """Send, unless the machine is busy or the client still waits before it connects again."""
    try:
        producer.send(payload)
    except (pulsar.Timeout, penstock.Timeout):
        return False
    return True


def test_our_clients_sends_time_out_and_its_producer_goes_on(tmp_path: Path) -> None:
    with on_a_faulty_disk(tmp_path) as server, penstock.Client(server.server.pulsar) as client:
        producer = client.create_producer(TOPIC, send_timeout_millis=TIMEOUT_MS)
        server.until(lambda: sent(producer, b"first"))
        server.disk.fail(sync=errno.EIO)
        began = time.monotonic()
        with pytest.raises(penstock.Timeout):
            producer.send(b"lost")
        assert time.monotonic() - began < TIMEOUT_MS / 1000 + LATE_S
        server.disk.mend()
        server.until(lambda: server.ready()[0] == 200)
        server.until(lambda: sent(producer, b"second"))


def test_web_sockets_hear_it_of_each_message(tmp_path: Path) -> None:
    from tests.support.websocket import PRODUCER, Peer, base64

    async def story(server: FaultyServer) -> None:
        url = f"{server.server.ws}{PRODUCER}/t"
        async with connect(url, compression=None, proxy=None) as connection:
            peer = Peer(connection)
            frame = {"payload": base64("x"), "context": "1"}
            assert (await peer.ask(frame))["result"] == "ok"
            server.disk.fail(sync=errno.EIO)
            answer: dict[str, Any] = await peer.ask(frame)
            assert (answer["result"], answer["context"]) == ("send-error:8", "1")
            status, text = await asyncio.to_thread(upgrade, server, f"{PRODUCER}/t")
            assert status == 503, text
            server.disk.mend()
            await asyncio.to_thread(server.until, lambda: server.ready()[0] == 200)
            assert (await peer.ask(frame))["result"] == "ok"

    with on_a_faulty_disk(tmp_path) as server:
        asyncio.run(story(server))


def upgrade(server: FaultyServer, path: str) -> tuple[int, Any]:
    """The answer to an upgrade that is refused."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=60)
    headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    connection.request("GET", path, headers={**headers, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


LARGE = "x" * 20_000  # about two hundred of them are a checkpoint


def everything(server: FaultyServer) -> list[int]:
    """The numbers of all messages there are."""
    found: list[int] = []
    offset = 0
    while True:
        path = f"/topics/public/default/t/partitions/0/messages?max_messages=500&offset={offset}"
        status, body = server.call("GET", path)
        assert status == 200, body
        if not body["messages"]:
            return found
        found += [int(message["value"].split()[0]) for message in body["messages"]]
        offset = body["messages"][-1]["offset"] + 1


def whole(folder: Path) -> None:
    """The storage is sound."""
    command = [sys.executable, "-m", "penstock", "check", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("main_only", [False, True], ids=["any sync", "checkpoints"])
def test_what_was_acknowledged_survives_dropped_pages_and_a_kill(tmp_path: Path, main_only: bool) -> None:
    """A sync that fails may drop what it should have written, and the next one may succeed without it."""
    dice = random.Random(20)
    acknowledged: list[int] = []
    number = 0
    with on_a_faulty_disk(tmp_path) as server:
        server.disk.mend(drop=True)
        for _ in range(2 if main_only else 6):
            after = 0 if main_only else dice.randrange(220)
            server.disk.fail(sync=errno.EIO, after=after, main_only=main_only, drop=True)
            for _ in range(230):
                number += 1
                if server.publish(f"{number} {LARGE}")[0] == 200:
                    acknowledged.append(number)
                elif number % 3:
                    break
            assert main_only or server.ready()[0] == 503
            assert server.disk.failed_syncs > 0
            server.disk.mend(drop=True)
            server.until(lambda: server.ready()[0] == 200)
        assert everything(server) == acknowledged
        os.kill(server.server.process.pid, signal.SIGKILL)
        server.server.process.wait(30)
    assert len(acknowledged) > 100
    with launch(tmp_path / "data") as after_kill:
        found = everything(FaultyServer(after_kill, server.disk))
    assert [number for number in found if number in set(acknowledged)] == acknowledged
    whole(tmp_path / "data")

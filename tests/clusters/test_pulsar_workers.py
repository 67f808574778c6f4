"""Several processes of one server before a real broker: `penstock serve --workers`, as its users start it."""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until
from tests.support.workers import WAIT_S, WORKERS, Replier, Server, publish, rest, serve_instance, serving


def flags_of(cluster: PulsarCluster) -> Sequence[str]:
    return "--engine", cluster.service_url, "--admin", cluster.admin_url, "--pulsar", "off"


@pytest.fixture(scope="module")
def server(pulsar_cluster: PulsarCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("workers"), *flags_of(pulsar_cluster)) as started:
        yield started


@pytest.fixture
def topic() -> str:
    return f"workers-{uuid4().hex[:12]}"


def test_all_workers_serve_one_address_and_each_one_of_its_own(server: Server, topic: str) -> None:
    publish(server.url, topic, "a")
    assert len(set(server.own_urls[:WORKERS])) == WORKERS
    for url in server.own_urls[:WORKERS]:
        page = httpx.get(f"{rest(url, topic)}/partitions/0/messages", timeout=60).json()
        assert [message["value"] for message in page["messages"]] == ["a"]


def test_any_worker_serves_a_consumer_instance(server: Server, topic: str) -> None:
    serve_instance(server, topic, "s")


def test_a_reply_crosses_from_one_worker_to_another(server: Server, topic: str) -> None:
    one, other = server.own_urls[:WORKERS]
    replier = Replier(one, topic)
    for url in (other, one):
        for text, is_error in (("hello", False), ("rorre", True)):
            answer = httpx.post(
                f"{rest(url, topic)}/request", params={"timeout": 30_000}, json={"value": text}, timeout=60
            ).json()
            assert base64.b64decode(answer["replyContent"]).decode() == text[::-1]
            assert answer["isErrorResult"] is is_error
    path = f"/ws/v2/producer/persistent/public/default/{topic}"
    asking = websocket.create_connection(other.replace("http://", "ws://") + path, timeout=WAIT_S)
    for number in range(20):
        payload = base64.b64encode(b"%d" % number).decode()
        asking.send(json.dumps({"payload": payload, "requestTimeoutMillis": 30_000, "context": str(number)}))
    frames = [json.loads(asking.recv()) for _ in range(40)]
    replies = {frame["context"]: frame for frame in frames if frame.get("type") == "reply"}
    assert {base64.b64decode(replies[str(n)]["replyContent"]).decode()[::-1] for n in range(20)} == {
        str(number) for number in range(20)
    }
    asking.close()
    replier.socket.close()


def test_a_consumer_of_the_official_client_replies_with_an_ordinary_message(
    server: Server, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    client = pulsar.Client(pulsar_cluster.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(f"persistent://public/default/{topic}", "service")

    def serve() -> None:
        request = consumer.receive(WAIT_S * 1000)
        properties = request.properties()
        producer = client.create_producer(properties["penstock-reply-to"])
        correlation_id = properties["penstock-correlation-id"]
        producer.send(request.data().upper(), properties={"penstock-correlation-id": correlation_id})
        consumer.acknowledge(request)

    serving = threading.Thread(target=serve)
    serving.start()
    answer = httpx.post(
        f"{rest(server.url, topic)}/request", params={"timeout": 30_000}, json={"value": "ask"}, timeout=60
    )
    serving.join()
    client.close()
    assert base64.b64decode(answer.json()["replyContent"]) == b"ASK", answer.text


def test_a_request_that_nobody_answers_ends_in_time(server: Server, topic: str) -> None:
    answer = httpx.post(f"{rest(server.url, topic)}/request?timeout=300", json={"value": "?"}, timeout=60)
    assert (answer.status_code, answer.json()["error_code"]) == (504, 50401)


def test_a_worker_that_is_killed_is_started_again_and_what_it_had_comes_again(
    pulsar_cluster: PulsarCluster, tmp_path: Path, topic: str
) -> None:
    with serving(tmp_path, *flags_of(pulsar_cluster)) as server:
        until(lambda: len(server.pids) == WORKERS)
        publish(server.url, topic, *map(str, range(10)))
        first = server.own_urls[0]
        options = {"initial_position": "earliest", "subscription_type": "Shared"}
        made = httpx.post(f"{rest(first, topic)}/subscription/s", json=options, timeout=60).json()
        taken: list[object] = []
        while not taken:
            taken = httpx.get(f"{made['base_uri']}/messages?timeout=10000", timeout=60).json()["messages"]
        for pid in server.pids[:WORKERS]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(server.own_urls) >= 2 * WORKERS, said=lambda: server.events("a worker ended"))
        again = httpx.post(f"{rest(server.url, topic)}/subscription/s", json=options, timeout=60).json()
        found: set[str] = set()
        while len(found) < 10:
            page = httpx.get(f"{again['base_uri']}/messages?timeout=10000", timeout=60).json()["messages"]
            found |= {message["value"] for message in page}
        assert found == set(map(str, range(10)))


@pytest.mark.parametrize(
    ("flags", "refusal"),
    [
        (("--data", "/proc/nothing"), "/proc/nothing"),
        (("--engine", "pulsar://127.0.0.1:1", "--http", "0.0.0.0:0"), "is open to other machines"),
    ],
)
def test_what_workers_need_is_said_once(flags: Sequence[str], refusal: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", "--workers", "2", *flags],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count(refusal) == 1, done.stderr


def test_no_worker_is_left_when_the_supervisor_is_killed(
    pulsar_cluster: PulsarCluster, tmp_path: Path
) -> None:
    errors = tmp_path / "errors"
    command = [sys.executable, "-m", "penstock", "serve", "--engine", pulsar_cluster.service_url]
    command += ["--admin", pulsar_cluster.admin_url, "--workers", "2", "--log", "json"]
    command += ["--http", "127.0.0.1:0", "--pulsar", "off"]
    with (
        errors.open("w") as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, cwd=tmp_path) as process,
    ):
        server = Server(process, errors)
        process.kill()

    def gone(pid: int) -> bool:
        stat = Path(f"/proc/{pid}/stat")
        try:
            return stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True

    until(lambda: all(map(gone, server.pids)))

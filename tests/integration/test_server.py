import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.support.waiting import until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from penstock.testing.server import Launched, launch, running

T = "/topics/public/default/t"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Launched]:
    with launch(tmp_path / "data") as launched:
        yield launched


def publish(url: str, *values: str) -> list[str]:
    answer = httpx.post(url + T, json={"messages": [{"value": value} for value in values]})
    assert answer.status_code == 200, answer.text
    return [slot["messageId"] for slot in answer.json()["messageIds"]]


def read(url: str) -> list[str]:
    answer = httpx.get(f"{url}{T}/partitions/0/messages")
    return [message["value"] for message in answer.json()["messages"]]


def test_port_0_picks_a_free_one_and_stdout_has_one_line(tmp_path: Path) -> None:
    with launch(tmp_path / "data") as server:
        assert httpx.get(server.url + "/health/ready").json() == {"status": "ready"}
        assert server.process.stdout is not None
        server.process.terminate()
        assert server.process.stdout.read() == ""
        assert server.process.wait(30) == 0
        lines = [json.loads(line) for line in server.log.splitlines()]
        assert [line["event"] for line in lines] == ["ready", "draining", "stopped"]


def test_what_was_published_is_there_after_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        with launch(tmp_path / "data") as server:
            assert read(server.url) == [str(n) for n in range(number)] if number else True
            publish(server.url, str(number))
            assert server.terminate() == 0


def in_progress(url: str) -> int:
    """The HTTP requests that the server is answering."""
    found = re.search(r"^penstock_http_requests_in_progress (\S+)$", httpx.get(f"{url}/metrics").text, re.M)
    assert found
    return int(float(found[1]))


def latest(url: str) -> int:
    """Where the topic ends."""
    return int(httpx.get(f"{url}{T}/partitions/0/offsets").json()["latest"])


def test_a_stopping_server_answers_what_is_in_flight(server: Launched) -> None:
    publish(server.url, "first")
    started = threading.Event()

    def poll() -> tuple[int, object, float]:
        begin = time.monotonic()
        started.set()
        url = f"{server.url}{T}/partitions/0/messages?offset=1&timeout=60000"
        answer = httpx.get(url, timeout=70)
        return answer.status_code, answer.json()["messages"], time.monotonic() - begin

    def flood() -> tuple[list[str], list[str]]:
        """Publish until the server is gone: what was acknowledged, and all that was tried."""
        kept, tried = [], []
        with httpx.Client() as client:
            for number in range(100_000):
                value = f"{threading.get_ident()}-{number}"
                tried.append(value)
                try:
                    answer = client.post(server.url + T, json={"messages": [{"value": value}]})
                except httpx.TransportError:
                    break
                if answer.status_code != 200:
                    assert answer.status_code == 503
                    break
                kept.append(value)
        return kept, tried

    with ThreadPoolExecutor(8) as pool:
        # the poll follows another topic, where nothing comes
        httpx.put(f"{server.url}/admin/v2/persistent/public/default/quiet")
        quiet = pool.submit(
            lambda: httpx.get(
                f"{server.url}/topics/public/default/quiet/partitions/0/messages?timeout=60000", timeout=70
            )
        )
        polled = pool.submit(poll)
        started.wait(30)
        until(lambda: in_progress(server.url) == 3)  # the two polls, and the question itself
        floods = [pool.submit(flood) for _ in range(3)]
        until(lambda: latest(server.url) > 10)
        code = server.terminate()
        assert code == 0
        assert quiet.result(30).json()["messages"] == []
        assert polled.result(30)[0] == 200
        kept = [value for future in floods for value in future.result(30)[0]]
    assert len(kept) > 10
    with launch(server_folder(server)) as again:
        stored = set()
        offset = 0
        while True:
            url = f"{again.url}{T}/partitions/0/messages?offset={offset}&max_messages=10000"
            found = httpx.get(url).json()["messages"]
            if not found:
                break
            stored |= {message["value"] for message in found}
            offset = found[-1]["offset"] + 1
    assert stored.issuperset(kept)


def server_folder(server: Launched) -> Path:
    arguments = server.process.args
    assert isinstance(arguments, list)
    return Path(str(arguments[arguments.index("--data") + 1]))


def test_a_stopping_server_closes_its_sockets_and_saves_their_cursors(server: Launched) -> None:
    publish(server.url, "a", "b", "c")
    url = f"{server.ws}/ws/v2/consumer/persistent/public/default/t/s"
    httpx.put(f"{server.url}/admin/v2/persistent/public/default/t/subscription/s", json="earliest")
    with connect(url) as consumer:
        frame = json.loads(consumer.recv(30))
        consumer.send(json.dumps({"messageId": frame["messageId"]}))
        consumer.recv(30), consumer.recv(30)
        assert consumer.ping().wait(60)  # the server has read it
        server.process.terminate()
        with pytest.raises(ConnectionClosed) as closed:
            consumer.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
    assert server.process.wait(30) == 0
    with launch(server_folder(server)) as again:
        stats = httpx.get(f"{again.url}/admin/v2/persistent/public/default/t/stats").json()
        assert stats["subscriptions"]["s"]["msgBacklog"] == 2


def test_an_idle_connection_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with (
        launch(tmp_path / "data", "--set", "http.drain_ms=600000") as server,
        httpx.Client() as client,
        socket.create_connection(("127.0.0.1", server.port)) as silent,
    ):
        client.get(server.url)
        silent.sendall(b"GET / HTT")  # and never more
        assert server.terminate() == 0  # long before the time to drain is over


def test_a_second_server_on_the_same_folder_is_refused_with_one_line(server: Launched) -> None:
    folder = str(server_folder(server))
    command = [
        sys.executable,
        "-m",
        "penstock",
        "serve",
        "--data",
        folder,
        "--http",
        "127.0.0.1:0",
        "--pulsar",
        "off",
    ]
    second = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert second.returncode == 1
    assert second.stdout == ""
    assert second.stderr == (f"penstock: data folder {folder} is in use by process {server.process.pid}\n")
    publish(server.url, "still alive")


def test_a_taken_port_is_refused_with_one_line(server: Launched, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"cannot listen on 127\.0\.0\.1:[0-9]+: the port is taken"):
        Launched.start(tmp_path / "other", port=server.port)


@pytest.mark.parametrize(
    ("flags", "environment", "said"),
    [
        (["--set", "http.lisen=x"], {}, "penstock: unknown key 'http.lisen' from the command line"),
        (["--http", "here"], {}, "penstock: bad value 'here' for 'http.listen' from the command line"),
        ([], {"PENSTOCK_HTTP__DRAIN_MS": "soon"}, "'http.drain_ms' from PENSTOCK_HTTP__DRAIN_MS"),
        (["--config", "/nowhere.toml"], {}, "penstock: /nowhere.toml cannot be read"),
    ],
)
def test_a_bad_configuration_is_refused_with_one_line(
    flags: list[str], environment: dict[str, str], said: str
) -> None:
    command = [sys.executable, "-m", "penstock", "serve", *flags]
    made = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert made.returncode == 1
    assert made.stdout == ""
    assert said in made.stderr
    assert made.stderr.count("\n") == 1


def test_serving_imports_neither_spark_nor_clients_nor_fastavro() -> None:
    script = (
        "import sys; import penstock.cli.serve, penstock.server.app, penstock.engines.sqlite;"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"penstock", "httptools"} <= loaded
    unwanted = {
        "pyspark",
        "pyarrow",
        "pandas",
        "numpy",
        "fastavro",
        "httpx",
        "rich",
        "uvicorn",
        "structlog",
        "deltalake",
    }
    assert loaded & unwanted == set()


def test_a_large_frame_closes_its_socket_alone(tmp_path: Path) -> None:
    with launch(tmp_path / "data", "--set", "limits.max_frame_bytes=100000") as server:
        url = f"{server.ws}/ws/v2/producer/persistent/public/default/t"
        with connect(url) as one, connect(url) as other:
            one.send("x" * 200_000)
            with pytest.raises(ConnectionClosed) as closed:
                one.recv(30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
            other.send(json.dumps({"payload": "YQ=="}))
            assert json.loads(other.recv(30))["result"] == "ok"


def test_a_server_in_this_process_is_there_at_once_and_leaves_nothing() -> None:
    before = set(threading.enumerate())
    with running() as first, running() as second:
        publish(first.url, "a")
        assert read(first.url) == ["a"]
        assert httpx.get(f"{second.url}{T}/partitions/0/messages").status_code == 404
    assert not set(threading.enumerate()) - before
    with pytest.raises(httpx.ConnectError):
        httpx.get(first.url)


def test_a_server_in_this_process_may_keep_a_folder(tmp_path: Path) -> None:
    for number in range(2):
        with running(tmp_path / "data") as server:
            publish(server.url, str(number))
            assert read(server.url) == [str(n) for n in range(number + 1)]


def test_an_endless_head_is_cut_off(server: Launched) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as endless:
        endless.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nA: ")
        with pytest.raises(ConnectionError):
            endless.sendall(b"a" * 100_000_000)
    assert httpx.get(server.url + "/health/live", headers={"a": "a" * 50_000}).status_code == 200


def test_who_sends_a_frame_too_large_is_told_while_it_still_sends(server: Launched) -> None:
    url = f"{server.ws}/ws/v2/producer/persistent/public/default/t"
    with connect(url) as sending, pytest.raises(ConnectionClosed) as closed:
        _send_and_wait(sending, "x" * 30_000_000)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def _send_and_wait(sending: ClientConnection, frame: str) -> None:
    sending.send(frame)
    sending.recv(timeout=60)


def test_a_second_server_goes_on_without_the_default_pulsar_port(tmp_path: Path) -> None:
    """Whoever has the default port, another server can be started with nothing but a port for HTTP."""
    with socket.socket() as taken:
        try:
            taken.bind(("127.0.0.1", 6650))
            taken.listen()
            ours = True
        except OSError:  # somebody has it already, and may let it go at any time
            ours = False
        command = [
            sys.executable,
            "-m",
            "penstock",
            "serve",
            "--data",
            str(tmp_path),
            "--http",
            "127.0.0.1:0",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            process.terminate()
            _, errors = process.communicate(timeout=60)
    assert ready.startswith("penstock ready http://127.0.0.1:")
    if ours or "pulsar://" not in ready:
        assert "pulsar://" not in ready
        assert "no Pulsar endpoint" in errors
    assert process.returncode == 0

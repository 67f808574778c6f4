"""SIGHUP: the configuration, keys, users and certificates are read again, under load, and nothing ever ends."""

import json
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from tests.support.waiting import until

from penstock.testing.server import Launched, launch
from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect

TOPIC = "/topics/public/default/t"
READ = "read the configuration again"
NOT_READ = "is not read again"
WAIT_S = 40.0


class Server:
    """A process, and the file that it is configured by."""

    def __init__(self, launched: Launched, file: Path) -> None:
        self.launched = launched
        self.file = file
        self.url = launched.url

    def lines(self) -> list[dict[str, Any]]:
        """What it logged, whole lines only."""
        whole = self.launched.log.rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def count(self, event: str) -> int:
        return sum(event in line["event"] for line in self.lines())

    def hang_up(self, event: str = READ) -> dict[str, Any]:
        """SIGHUP; the line that says what came of it."""
        before = self.count(event)
        self.launched.process.send_signal(signal.SIGHUP)
        until(lambda: self.count(event) > before)
        return [line for line in self.lines() if event in line["event"]][-1]

    def publish(self, count: int = 1, **options: Any) -> httpx.Response:
        body = {"messages": [{"value": "a"}] * count}
        return httpx.post(self.url + TOPIC, json=body, **options)


@contextmanager
def served(folder: Path, text: str, *flags: str) -> Iterator[Server]:
    file = folder / "penstock.toml"
    file.write_text(text)
    with launch(folder / "data", "--config", str(file), "--log", "json", *flags) as launched:
        yield Server(launched, file)


def limited(messages: int, rest: str = "") -> str:
    return f"[limits]\nmax_messages_per_request = {messages}\n{rest}"


def test_limits_and_logs_change_under_load(tmp_path: Path) -> None:
    with served(tmp_path, limited(2)) as server:
        over = threading.Event()
        statuses: list[int] = []

        def load() -> None:
            with httpx.Client(base_url=server.url) as http:
                while not over.is_set():
                    statuses.append(http.post(TOPIC, json={"messages": [{"value": "a"}]}).status_code)

        working = [threading.Thread(target=load) for _ in range(4)]
        for thread in working:
            thread.start()
        body = json.dumps({"messages": [{"value": "slow"}]}).encode()
        host, port = httpx.URL(server.url).host, httpx.URL(server.url).port
        with socket.create_connection((host, port or 0), timeout=60) as slow:  # a request that lasts
            head = f"POST {TOPIC} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            slow.sendall(head.encode() + body[:5])
            assert server.publish(3).status_code == 413
            server.file.write_text(limited(3, "[log]\naccess = true\n"))
            assert set(server.hang_up()["changed"]) == {"limits.max_messages_per_request", "log.access"}
            assert server.publish(3).status_code == 200
            until(lambda: any(line["logger"] == "penstock.access" for line in server.lines()))
            server.file.write_text(limited(4, "[log]\naccess = true\nlevel = 'error'\n"))
            server.launched.process.send_signal(signal.SIGHUP)
            until(lambda: server.publish(4).status_code == 200)
            quiet = len(server.lines())
            assert server.publish(1).status_code == 200
            assert server.lines()[quiet:] == []
            for _ in range(20):
                server.launched.process.send_signal(signal.SIGHUP)
            slow.sendall(body[5:])
            assert slow.recv(100).startswith(b"HTTP/1.1 200 ")
        over.set()
        for thread in working:
            thread.join()
        assert set(statuses) == {200}
        server.launched.process.send_signal(signal.SIGHUP)
        assert server.launched.terminate() == 0


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("[limits\n", "is not TOML"),
        ("[limits]\nmax_mesages = 1\n", "unknown key"),
        ("[limits]\nmax_messages_per_request = 'a'\n", "bad value"),
        ("[limits]\nmax_messages_per_request = 9\n[auth]\nbasic_file = 'users.txt'\n", "auth.basic_file"),
        (
            "[limits]\nmax_messages_per_request = 9\n[auth.permissions.'a/b/c/d']\nr = ['produce']\n",
            "auth.perm",
        ),
    ],
)
def test_a_broken_configuration_is_passed_over(tmp_path: Path, broken: str, said: str) -> None:
    auth = "[auth]\nenabled = true\nanonymous_role = 'any'\nsuper_users = ['any']\n"
    with served(tmp_path, limited(2, auth)) as server:
        broken = broken.replace("[auth]\n", auth).replace("[auth.p", auth + "[auth.p")
        server.file.write_text(broken.replace("users.txt", str(tmp_path / "users.txt")))
        if "users" in broken:
            (tmp_path / "users.txt").write_text("no users at all\n")
        line = server.hang_up(NOT_READ)
        assert (line["level"], said in line["event"]) == ("error", True)
        assert server.publish(2).status_code == 200
        assert server.publish(3).status_code == 413  # nothing of it counts
        server.file.unlink()
        server.hang_up(NOT_READ)
        server.file.write_text(limited(3, auth))
        server.hang_up()
        assert server.publish(3).status_code == 200


def test_permissions_and_users(tmp_path: Path) -> None:
    from penstock.protocols.auth.passwords import hash_password, write_users

    for name in ("alice", "bob"):
        (tmp_path / f"{name}.txt").write_bytes(write_users({name: hash_password(b"secret")}))

    def text(name: str, *granted: str) -> str:
        grants = "".join(f"{role} = ['produce']\n" for role in granted)
        users = json.dumps(str(tmp_path / f"{name}.txt"))
        return f"[auth]\nenabled = true\nbasic_file = {users}\n[auth.permissions.'public/default']\n{grants}"

    with served(tmp_path, text("alice")) as server:
        assert server.publish(auth=("alice", "secret")).status_code == 403
        server.file.write_text(text("alice", "alice"))
        server.hang_up()
        assert server.publish(auth=("alice", "secret")).status_code == 200
        server.file.write_text(text("bob", "bob"))
        server.hang_up()
        assert server.publish(auth=("alice", "secret")).status_code == 401
        assert server.publish(auth=("bob", "secret")).status_code == 200
        server.file.write_text(text("bob"))
        server.hang_up()
        assert server.publish(auth=("bob", "secret")).status_code == 403


def test_rates_come_and_go(tmp_path: Path) -> None:
    with served(tmp_path, "") as server, httpx.Client(base_url=server.url) as http:

        def statuses() -> set[int]:
            return {http.get(f"{TOPIC}/partitions/0/offsets").status_code for _ in range(30)}

        assert server.publish().status_code == 200
        assert statuses() == {200}
        server.file.write_text("[limits]\nmax_requests_per_s = 1\n")
        server.hang_up()
        assert statuses() == {200, 429}
        server.file.write_text("")
        server.hang_up()
        assert statuses() == {200}


def test_certificates(tmp_path: Path) -> None:
    def issue(name: str) -> str:
        made = trustme.CA().issue_cert("127.0.0.1")
        made.private_key_and_cert_chain_pem.write_to_path(tmp_path / name)
        return f"[tls]\ncert_file = {json.dumps(str(tmp_path / name))}\n"

    def shown(server: Server) -> str:
        url = httpx.URL(server.launched.https)
        return ssl.get_server_certificate((url.host, url.port or 0), timeout=60)

    listen = "[http]\ntls_listen = '127.0.0.1:0'\n"
    with served(tmp_path, listen + issue("a.pem")) as server:
        first = shown(server)
        server.file.write_text(listen + issue("b.pem"))
        assert server.hang_up()["changed"] == ["tls.cert_file"]
        second = shown(server)
        assert second != first
        server.file.write_text(listen + "[tls]\ncert_file = '/nowhere'\n" + limited(1))
        server.hang_up(NOT_READ)
        assert shown(server) == second
        assert server.publish(2).status_code == 200


def test_what_waits_for_the_next_start_is_named(tmp_path: Path) -> None:
    with served(tmp_path, limited(2)) as server:
        server.file.write_text(limited(3, "[broker]\ndeduplication = true\n"))
        assert server.hang_up()["changed"] == ["limits.max_messages_per_request"]
        until(lambda: server.count("from the next start on") == 1)
        (line,) = (line for line in server.lines() if "from the next start on" in line["event"])
        assert line["keys"] == ["broker.deduplication"]
        assert server.publish(3).status_code == 200


def test_a_flag_goes_on_before_the_file(tmp_path: Path) -> None:
    with served(tmp_path, limited(2), "--set", "limits.max_messages_per_request=1") as server:
        server.file.write_text(limited(3))
        server.hang_up()
        assert server.publish(2).status_code == 413


def test_failed_connects_do_not_fill_the_log(tmp_path: Path) -> None:
    auth = "[auth]\nenabled = true\ntoken_secret_key = 'a secret of thirty-two bytes or more'\n"
    with served(tmp_path, auth) as server:
        host, port = server.launched.pulsar.removeprefix("pulsar://").split(":")
        bad = BaseCommand(
            type=BaseCommand.CONNECT,
            connect=CommandConnect(client_version="x", auth_method_name="token", auth_data=b"no"),
        )
        url = httpx.URL(server.url)
        for where, sent in (
            ((host, int(port)), encode(bad)),
            ((host, int(port)), b"\xff" * 8),
            ((url.host, url.port or 0), b"no HTTP\r\n\r\n"),
        ):
            for _ in range(200):
                with socket.create_connection(where, timeout=60) as stranger:
                    stranger.sendall(sent)
                    while stranger.recv(4096):
                        pass
        lines = [line for line in server.lines() if line["logger"] != "penstock.audit"]
        assert len(lines) < 200  # a kind has 20 a minute, of 200 and more
        assert httpx.get(f"{server.url}/health/live").status_code == 200

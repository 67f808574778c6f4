"""Several processes of one server: `penstock serve --workers`, as its users start it."""

import base64
import contextlib
import itertools
import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import websocket

from penstock.model.secret import Secret
from penstock.model.worker import WorkerAccess

from .ports import kept_port

WORKERS = 2
WAIT_S = 60


class Server:
    """The supervisor with its workers, which say on standard error where each is reached."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self.process = process
        self._errors = errors
        assert process.stdout is not None
        line = process.stdout.readline().split()
        assert line[:2] == ["penstock", "ready"], errors.read_text()
        self.url = line[2]
        self.pulsar = line[3] if len(line) > 3 else ""

    def events(self, name: str) -> list[dict[str, object]]:
        lines = self._errors.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [event for event in events if event["event"] == name]

    @property
    def own_urls(self) -> list[str]:
        """Of every worker that was ever ready, the newest last."""
        return [str(event["own_url"]) for event in self.events("ready") if "own_url" in event]

    @property
    def own_pulsar_urls(self) -> list[str]:
        """Where clients of Pulsar's protocol reach each of them alone."""
        return [str(event["own_pulsar_url"]) for event in self.events("ready")]

    @property
    def pids(self) -> list[int]:
        return [int(str(event["pid"])) for event in self.events("worker ready")]

    @property
    def owner_pids(self) -> list[int]:
        """Of every process that owned the log, the newest last."""
        return [int(str(event["pid"])) for event in self.events("owner ready")]

    @property
    def internal(self) -> tuple[str, str]:
        """`host:port` at which the owner serves its workers: HTTP, and Pulsar's protocol."""
        arguments = Path(f"/proc/{self.owner_pids[-1]}/cmdline").read_text().split("\0")
        http, pulsar, _ = arguments[arguments.index("--owner") + 1].split(",")
        return http, pulsar


@contextlib.contextmanager
def serving(folder: Path, *flags: str) -> Iterator[Server]:
    """Workers with their files in `folder`; `flags` say which cluster, if any."""
    errors = folder / "errors"
    command = [sys.executable, "-m", "penstock", "serve", "--workers", str(WORKERS), "--log", "json"]
    command += ["--http", "127.0.0.1:0", *flags]
    with (
        errors.open("w") as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True, cwd=folder) as process,
    ):
        try:
            yield Server(process, errors)
        finally:
            process.terminate()
            assert process.wait(WAIT_S) == 0, errors.read_text()


@contextlib.contextmanager
def owning(folder: Path) -> Iterator[WorkerAccess]:
    """A process that owns a log in `folder`, without workers."""
    secret = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        http, pulsar = (f"127.0.0.1:{stack.enter_context(kept_port())}" for _ in range(2))
        access = WorkerAccess(http, pulsar, secrets.token_hex(8), Secret(secret))
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(folder), "--owner", str(access)]
    command += ["--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # it ends with it
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PENSTOCK_FLEET__SECRET": secret},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("penstock ready ")
            yield access
        finally:
            process.terminate()
            assert process.wait(WAIT_S) == 0


def rest(url: str, topic: str) -> str:
    return f"{url}/topics/public/default/{topic}"


def publish(url: str, topic: str, *values: str) -> None:
    answer = httpx.post(
        rest(url, topic), json={"messages": [{"value": value} for value in values]}, timeout=60
    )
    assert answer.status_code == 200, answer.text


def serve_instance(server: Server, topic: str, subscription: str) -> None:
    """Consume by one instance through all workers in turns, whose own addresses clients do not know."""
    urls = server.own_urls[:WORKERS]
    publish(server.url, topic, "a", "b")
    path = f"{rest('', topic)}/subscription/{subscription}"
    made = httpx.post(f"{urls[0]}{path}", json={"initial_position": "earliest"}, timeout=60).json()
    instance = f"{path}/consumer/{made['id']}"
    assert made["base_uri"] == urls[0] + instance  # by the name that the client used
    same = httpx.post(f"{urls[1]}{path}", json={"id": made["id"]}, timeout=60).json()
    assert same == {**made, "base_uri": urls[1] + instance}
    found: list[dict[str, str]] = []
    turns = itertools.cycle(reversed(urls))
    while len(found) < 2:
        polled = httpx.get(
            f"{next(turns)}{instance}/messages", params={"timeout": 10_000, "max_messages": 1}, timeout=60
        )
        found += polled.json()["messages"]
    assert [message["value"] for message in found] == ["a", "b"]
    acknowledged = httpx.post(
        f"{urls[1]}{path}/cursor",
        json={"messageIds": [message["messageId"] for message in found]},
        timeout=60,
    )
    assert [each["error_code"] for each in acknowledged.json()["messageIds"]] == [None, None]
    assert httpx.delete(urls[1] + instance, timeout=60).status_code == 204
    for url in urls:
        gone = httpx.get(f"{url}{instance}/messages", timeout=60)
        assert (gone.status_code, gone.json()["error_code"]) == (404, 40403), gone.text


class Replier:
    """A WebSocket consumer that replies to each message with its text turned round."""

    def __init__(self, url: str, topic: str) -> None:
        address = url.replace("http://", "ws://")
        path = f"/ws/v2/consumer/persistent/public/default/{topic}/service?subscriptionType=Shared"
        self.socket = websocket.create_connection(address + path, timeout=WAIT_S)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(websocket.WebSocketException, OSError, ValueError):
            while message := json.loads(self.socket.recv()):
                turned = base64.b64decode(message["payload"])[::-1]
                reply = {
                    "messageId": message["messageId"],
                    "replyContent": base64.b64encode(turned).decode(),
                    "isErrorResult": turned == b"error",
                }
                self.socket.send(json.dumps(reply))

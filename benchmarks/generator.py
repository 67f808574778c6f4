"""What a load generator does in one run, and the run itself: `run(server, [publish(…)], seconds)`.

The generator is a program in Go (`benchmarks/load`), built on first use. Where Go is missing it is `asyncio_load`,
which takes as much of a processor as the server: the figures are then those of the generator, and a line says so.
A run is a list of peers, groups of connections that do the same; `measured` are those whose answers are counted.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

SOURCES: Final = Path(__file__).parent / "load"
BINARY: Final = SOURCES / "build" / "load"
SLACK_S: Final = 60.0  # for a generator to connect, and to wait for the last answers
STAMP: Final = "0" * 19  # in the text of a paced frame: the generator puts the time there


class Server(NamedTuple):
    """A process under load."""

    port: int
    pid: int


class Peer(msgspec.Struct, kw_only=True):
    """A group of connections that do the same (`Peer` of load/main.go)."""

    kind: str
    connections: int = 1
    measured: bool = True
    path: str = ""
    text: str = ""
    in_flight: int = 1
    per_second: float = 0
    counts: str = ""
    good: str = '"result":"ok"'
    before: str = '{"messageId":"'
    after: str = '"}'
    requests: list[str] = []


class Run(msgspec.Struct):
    """What a generator reads from its standard input."""

    port: int
    pid: int
    warm_s: float
    seconds: float
    count: int
    peers: list[Peer]


class Result(msgspec.Struct):
    """How many answers came within how long, what they cost both sides, and how long they took."""

    count: int
    seconds: float
    failed: int
    server_cpu_s: float
    generator_cpu_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    @property
    def server_us(self) -> float:
        """CPU time of the server for each answer, of all its threads."""
        return self.server_cpu_s / max(1, self.count) * 1e6

    @property
    def server_share(self) -> float:
        """Of one processor."""
        return self.server_cpu_s / self.seconds

    @property
    def generator_share(self) -> float:
        """Of one processor, and it uses no second one."""
        return self.generator_cpu_s / self.seconds


# -- peers


def publish(path: str, text: str, *, connections: int, in_flight: int, measured: bool = True) -> Peer:
    """A WebSocket's producers with so many frames under way on each connection."""
    return Peer(
        kind="publish",
        path=path,
        text=text,
        connections=connections,
        in_flight=in_flight,
        measured=measured,
    )


def request(path: str, text: str, *, connections: int, in_flight: int) -> Peer:
    """A WebSocket's requesters (PIP-371): the reply to a frame is its answer, not the receipt."""
    return Peer(
        kind="publish",
        path=path,
        text=text,
        connections=connections,
        in_flight=in_flight,
        counts='"type":"reply"',
    )


def paced(path: str, text: str, per_second: float) -> Peer:
    """A WebSocket's producer at a steady rate. `STAMP` as property `at` lets a consumer know the time it was sent."""
    return Peer(kind="paced", path=path, text=text, per_second=per_second, measured=False)


def consume(path: str, *, connections: int = 1, measured: bool = True, reply: str | None = None) -> Peer:
    """A WebSocket's consumers, which acknowledge every message, or reply to it with a content (base64)."""
    after = '"}' if reply is None else f'","replyContent":"{reply}"}}'
    return Peer(kind="consume", path=path, connections=connections, measured=measured, after=after)


def http(*requests: bytes, connections: int) -> Peer:
    """HTTP connections that are kept, one request after the other on each, the given ones in turns."""
    return Peer(kind="http", requests=[each.decode() for each in requests], connections=connections)


def fetch(*messages: bytes, cursor: str = "", connections: int, counts: str = "", commit: str = "{}") -> Peer:
    """REST's readers, and with a `cursor` its consumers: each request for messages is then followed by one to `cursor`
    that acknowledges what came: id by id, or with `commit` if `counts` says what each message has. Messages are counted."""
    requests = [each.decode() for each in messages]
    return Peer(
        kind="fetch",
        requests=requests,
        path=cursor,
        connections=connections,
        counts=counts,
        text=commit if counts else "",
    )


def post(path: str, body: bytes) -> bytes:
    """A request's bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def get(path: str) -> bytes:
    """A request's bytes."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


# -- running


def run(
    server: Server, peers: Sequence[Peer], seconds: float, *, warm_s: float = 0.5, count: int = 0
) -> Result:
    """Put a server under load for `warm_s` and then `seconds`, or until `count` answers came; fails where one did."""
    given = msgspec.json.encode(Run(server.port, server.pid, warm_s, seconds, count, list(peers)))
    done = subprocess.run(
        command(), input=given, stdout=subprocess.PIPE, check=True, timeout=warm_s + seconds + SLACK_S
    )
    result = msgspec.json.decode(done.stdout, type=Result)
    assert not result.failed, f"{result.failed} of {result.count} failed"
    assert result.count, f"nothing was answered within {seconds} s"
    return result


@cache
def command() -> list[str]:
    """The generator, built if it is older than its sources."""
    go = shutil.which("go")
    if go is None:
        print("Go is missing: the load generator is Python, and limits what is measured", flush=True)
        return [sys.executable, "-m", "benchmarks.asyncio_load"]
    sources = (*SOURCES.glob("*.go"), SOURCES / "go.mod")
    if not BINARY.exists() or BINARY.stat().st_mtime < max(each.stat().st_mtime for each in sources):
        build = [go, "build", "-o", str(BINARY), "."]
        subprocess.run(build, cwd=SOURCES, check=True, env=os.environ | {"GOTOOLCHAIN": "local"})
    return [str(BINARY)]


def is_slow() -> bool:
    """Whether the generator is the one in Python."""
    return command()[0] == sys.executable

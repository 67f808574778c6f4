"""Penstock before a Pulsar broker, beside Pulsar's own WebSocket proxy and REST produce before the same broker.

    PULSAR_HOME=… python -m benchmarks.pulsar_gateway [--seconds 3] [--rounds 5] [--workers 2] [--folder DIR]

PULSAR_HOME is the folder of an unpacked distribution of Apache Pulsar (default: what the tests fetched). It runs
standalone on loopback with `journalSyncData=true` and its WebSocket service in the broker's process, so that its CPU time
is that of broker and proxy together; ours is that of Penstock's processes alone, and the broker's is told beside it.
Servers are measured in turns, each for a short time; ratios are those of pairs.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from . import servers
from .binary_pulsar import pulsar
from .generator import Result, Server, consume, http, post, publish, run
from .rest import body
from .websocket import IN_FLIGHT, MESSAGE, SOCKETS

FETCHED: Final = Path(__file__).parents[1] / "tests" / "clusters" / "build" / "pulsar" / "home"
TOPIC: Final = "persistent/public/default"
CONNECTIONS: Final = 32
NUMBERS: Final = count()  # of subscriptions


class Gateway(NamedTuple):
    """What is measured: where it listens, and its processes."""

    name: str
    port: int
    pids: Sequence[int]

    @property
    def server(self) -> Server:
        return Server(self.port, self.pids[0])

    def cpu_s(self) -> float:
        return sum(map(servers.process_cpu_s, self.pids))

    def resident_mb(self) -> float:
        """Of the largest of its processes."""
        return max(_resident(pid) for pid in self.pids) / 1e6


class Measured(NamedTuple):
    """One run; CPU in µs for each message, of the gateway and of the broker behind it."""

    per_second: float
    cpu_us: float
    broker_us: float


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@contextmanager
def penstock(url: str, admin: str, workers: int) -> Iterator[Gateway]:
    """Penstock before the broker."""
    command = [sys.executable, "-m", "penstock", "serve", "--engine", url, "--admin", admin]
    command += ["--http", "127.0.0.1:0", "--pulsar", "off", "--workers", str(workers)]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().split()[2]
            pids = _children(process.pid) if workers > 1 else [process.pid]
            name = f"Penstock, {workers} processes" if workers > 1 else "Penstock"
            yield Gateway(name, int(address.rsplit(":", 1)[1]), pids)
        finally:
            process.terminate()
            process.wait()


Work = Callable[[Gateway], Result]


def exchange(seconds: float, gateway: Gateway) -> Result:
    """WebSocket publish."""
    path = f"/ws/v2/producer/{TOPIC}/published"
    peer = publish(path, MESSAGE, connections=SOCKETS, in_flight=IN_FLIGHT)
    return run(gateway.server, [peer], seconds)


def deliver(seconds: float, connections: int, filled: int, gateway: Gateway) -> Result:
    """WebSocket consume with acknowledgements, from the beginning by a new subscription."""
    query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest&receiverQueueSize=1000"
    path = f"/ws/v2/consumer/{TOPIC}/filled/s{next(NUMBERS)}?{query}"
    return run(gateway.server, [consume(path, connections=connections)], seconds, warm_s=0.2, count=filled)


def produce(seconds: float, messages: int, gateway: Gateway) -> Result:
    """REST produce, Pulsar's own dialect."""
    request = post(f"/topics/{TOPIC}/produced", body(messages, "payload"))
    return run(gateway.server, [http(request, connections=CONNECTIONS)], seconds)


def measure(work: Work, gateway: Gateway, broker: int, messages: int) -> Measured:
    ours, theirs = gateway.cpu_s(), servers.process_cpu_s(broker)
    result = work(gateway)
    # The generator's warming counts in both, so that the share of each message is a little too large.
    total = max(1, result.count) * messages
    return Measured(
        result.per_second * messages,
        (gateway.cpu_s() - ours) / total * 1e6,
        (servers.process_cpu_s(broker) - theirs) / total * 1e6,
    )


def compare(
    name: str, work: Work, gateways: Sequence[Gateway], broker: int, rounds: int, messages: int = 1
) -> None:
    """One line for each gateway; the first is what the others are compared with."""
    found: list[list[Measured]] = [[] for _ in gateways]
    for number in range(rounds + 1):
        for results, gateway in zip(found, gateways, strict=True):
            measured = measure(work, gateway, broker, messages)
            if number > 0:  # the first warms Java
                results.append(measured)
    print(f"\n{name}")
    for gateway, results in zip(gateways, found, strict=True):
        ratios = [one.per_second / first.per_second for one, first in zip(results, found[0], strict=True)]
        rate, cpu, broker_us = (statistics.median(each) for each in zip(*results, strict=True))
        shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(
            f"| {gateway.name:<24} | {rate:>10,.0f}/s | {shown:<21} | {cpu:>7.1f} µs | broker {broker_us:>6.1f} µs "
            f"| {gateway.resident_mb():>6.0f} MB |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    home = Path(os.environ.get("PULSAR_HOME", FETCHED))
    if not (home / "bin" / "pulsar").is_file():
        print("skipped: PULSAR_HOME names no unpacked distribution of Apache Pulsar to compare with")
        return
    settings = {"webSocketServiceEnabled": "true"}
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-bench-", dir=given.folder) as folder,
        pulsar(home, Path(folder), settings) as (url, broker),
    ):
        conf = (Path(folder) / "standalone.conf").read_text()
        web = int(re.findall(r"(?m)^webServicePort=(\d+)$", conf)[-1])
        admin = f"http://127.0.0.1:{web}"
        # Pulsar's REST makes no topics.
        httpx.put(f"{admin}/admin/v2/{TOPIC}/produced", timeout=60).raise_for_status()
        with penstock(url, admin, 1) as one, penstock(url, admin, given.workers) as several:
            gateways = (Gateway("Pulsar's own", web, [broker]), one, several)
            compare(
                f"WebSocket publish, {SOCKETS} x {IN_FLIGHT} in flight",
                partial(exchange, given.seconds),
                gateways,
                broker,
                given.rounds,
            )
            filled = int(20_000 * given.seconds)
            path = f"/ws/v2/producer/{TOPIC}/filled"
            peer = publish(path, MESSAGE, connections=SOCKETS, in_flight=IN_FLIGHT)
            run(one.server, [peer], 600, warm_s=0, count=filled)
            for connections in (1, SOCKETS):
                compare(
                    f"WebSocket consume, acknowledged, {connections} sockets",
                    partial(deliver, given.seconds, connections, filled),
                    gateways,
                    broker,
                    given.rounds,
                )
            for messages in (1, 100):
                compare(
                    f"REST produce, {messages} a request, {CONNECTIONS} connections",
                    partial(produce, given.seconds, messages),
                    gateways,
                    broker,
                    given.rounds,
                    messages,
                )


if __name__ == "__main__":
    main()

"""What the benchmarks of Penstock before a cluster have in common: contenders that are measured in turns.

Each is measured for a short time in every round; ratios are those of pairs. CPU time is that of the contender's
processes alone; the broker's behind it is told beside it.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from . import servers
from .generator import Result, Server, consume, http, post, publish, run
from .websocket import IN_FLIGHT, MESSAGE, SOCKETS

CONNECTIONS: Final = 32


class Gateway(NamedTuple):
    """What is measured: where it listens, and its processes. Without processes it is a program that ends with each run:
    a child of this one."""

    name: str
    port: int
    pids: Sequence[int]

    @property
    def server(self) -> Server:
        return Server(self.port, self.pids[0])

    def cpu_s(self) -> float:
        if self.pids:
            return sum(map(servers.process_cpu_s, self.pids))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def resident_mb(self) -> float:
        """Of the largest of its processes; 0 where it has none now."""
        return max(map(resident_mb, self.pids), default=0.0)


Work = Callable[[Gateway], Result]


class Measured(NamedTuple):
    """One run; CPU in µs for each message, of the gateway and of the broker behind it."""

    per_second: float
    cpu_us: float
    broker_us: float


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@contextmanager
def penstock(workers: int, *flags: str) -> Iterator[Gateway]:
    """Penstock before the cluster that `flags` name."""
    command = [sys.executable, "-m", "penstock", "serve", *flags]
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


# -- what is done


def exchange(topic: str, seconds: float, gateway: Gateway) -> Result:
    """WebSocket publish."""
    peer = publish(f"/ws/v2/producer/{topic}", MESSAGE, connections=SOCKETS, in_flight=IN_FLIGHT)
    return run(gateway.server, [peer], seconds)


def fill(gateway: Gateway, topic: str, count: int) -> None:
    """Publish so many messages by WebSocket."""
    peer = publish(f"/ws/v2/producer/{topic}", MESSAGE, connections=SOCKETS, in_flight=IN_FLIGHT)
    run(gateway.server, [peer], 600, warm_s=0, count=count)


def deliver(
    topic: str,
    subscription: Callable[[], str],
    seconds: float,
    connections: int,
    filled: int,
    gateway: Gateway,
) -> Result:
    """WebSocket consume with acknowledgements, from the beginning by a new subscription."""
    query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest&receiverQueueSize=1000"
    path = f"/ws/v2/consumer/{topic}/{subscription()}?{query}"
    return run(gateway.server, [consume(path, connections=connections)], seconds, warm_s=0.2, count=filled)


def produce(path: str, request: bytes, seconds: float, gateway: Gateway) -> Result:
    """REST produce, the same body again and again."""
    return run(gateway.server, [http(post(path, request), connections=CONNECTIONS)], seconds)


# -- measuring it


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
    name: str,
    contenders: Sequence[tuple[Gateway, Work]],
    broker: int,
    rounds: int,
    messages: int = 1,
    recorded: Sequence[tuple[str, float]] = (),
) -> None:
    """One line for each; the first is what the others are compared with.

    `recorded` are rates of programs that are not here: they are shown as such, without a ratio of pairs.
    """
    found: list[list[Measured]] = [[] for _ in contenders]
    for number in range(rounds + 1):
        for results, (gateway, work) in zip(found, contenders, strict=True):
            measured = measure(work, gateway, broker, messages)
            if number > 0:  # the first warms Java
                results.append(measured)
    print(f"\n{name}")
    for (gateway, _), results in zip(contenders, found, strict=True):
        ratios = [one.per_second / first.per_second for one, first in zip(results, found[0], strict=True)]
        rate, cpu, broker_us = (statistics.median(each) for each in zip(*results, strict=True))
        shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        memory = f"{gateway.resident_mb():>6.0f} MB" if gateway.pids else ""
        print(
            f"| {gateway.name:<28} | {rate:>10,.0f}/s | {shown:<21} | {cpu:>7.1f} µs | broker {broker_us:>6.1f} µs "
            f"| {memory:>9} |",
            flush=True,
        )
    for title, rate in recorded:
        print(f"| {title:<28} | {rate:>10,.0f}/s | recorded, not of this run | | | |", flush=True)

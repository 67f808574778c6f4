"""The embedded engine by 1, 2 and 4 workers (`penstock serve --workers N`): rates, and what a message costs each process.

    python -m benchmarks.workers [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

Each case runs on all three servers in turns. Rates depend on how many processors the machine has for them and for the load
generator; CPU time per message does not. The process that owns the log is the one that more processors do not multiply: a second
divided by its time per message is the most that any number of workers can reach.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from . import rest, servers, websocket
from .generator import Result, Server, consume, http, post, publish, run
from .measuring import options

Case = Callable[[Server, float], Result]  # by its seconds

WORKERS: Final = (1, 2, 4)
WARM_S: Final = 3.0
CONNECTIONS: Final = 64  # enough for the system to spread them over four workers
SOCKETS: Final = 16
FILL: Final = 50_000  # messages for a second of delivery
COLUMNS: Final = (
    ("", 52),
    ("workers", 7),
    ("messages/s", 12),
    ("owner µs/message", 16),
    ("workers µs/message", 18),
)
NUMBERS: Final = count()


class Used(NamedTuple):
    """CPU time in s of the process that owns the log, and of the workers; a single process is both, and counts as the owner."""

    owner_s: float
    workers_s: float


class Figures(NamedTuple):
    """Of one run."""

    per_second: float
    owner_us: float
    workers_us: float


def used(server: Server) -> Used:
    """What the processes of a server have used so far."""
    owner = workers = 0.0
    children = _children(server.pid)
    for pid in children:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--worker" in arguments:
            workers += servers.process_cpu_s(pid)
        else:
            owner += servers.process_cpu_s(pid)
    return Used(owner if children else servers.process_cpu_s(server.pid), workers)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def measure(case: Case, messages: int, server: Server, seconds: float) -> Figures:
    """Run a case once; each of its answers counts for so many messages."""
    before = used(server)
    result = case(server, seconds)
    after = used(server)
    total = max(1, result.count) * messages
    return Figures(
        result.per_second * messages,
        (after.owner_s - before.owner_s) / total * 1e6,
        (after.workers_s - before.workers_s) / total * 1e6,
    )


def post_messages(server: Server, seconds: float, messages: int) -> Result:
    peer = http(post(rest.PATH, rest.body(messages)), connections=CONNECTIONS)
    return run(server, [peer], seconds, warm_s=0)


def publish_frames(server: Server, seconds: float, query: str = "") -> Result:
    path = f"/ws/v2/producer/{websocket.TOPIC}/publish{query}"
    peer = publish(path, websocket.MESSAGE, connections=SOCKETS, in_flight=websocket.IN_FLIGHT)
    return run(server, [peer], seconds, warm_s=0)


def deliver(server: Server, seconds: float) -> Result:
    """Delivery to Shared consumers of one subscription, from the beginning."""
    filled = int(FILL * seconds)
    topic = f"delivery-{next(NUMBERS)}"
    websocket.fill(server, topic, "?batchingEnabled=true", filled)
    query = "subscriptionType=Shared&subscriptionInitialPosition=Earliest"
    peer = consume(f"/ws/v2/consumer/{websocket.TOPIC}/{topic}/s?{query}", connections=SOCKETS // 4)
    return run(server, [peer], seconds, warm_s=0, count=filled * 9 // 10)


def row(*cells: str) -> None:
    print(
        f"| {' | '.join(f'{cell:<{width}}' for cell, (_, width) in zip(cells, COLUMNS, strict=True))} |",
        flush=True,
    )


def show(name: str, workers: int, runs: Sequence[Figures]) -> None:
    """The medians of a case's runs."""
    row(
        name,
        str(workers),
        f"{statistics.median(one.per_second for one in runs):,.0f}",
        f"{statistics.median(one.owner_us for one in runs):.1f}",
        f"{statistics.median(one.workers_us for one in runs):.1f}",
    )


def main() -> None:
    given = options(__doc__)
    row(*(name for name, _ in COLUMNS))
    print(f"|{'|'.join('-' * (width + 2) for _, width in COLUMNS)}|", flush=True)
    cases: list[tuple[str, Case, int]] = [
        ("REST publish, 1 message a request", partial(post_messages, messages=1), 1),
        ("REST publish, 100 messages a request", partial(post_messages, messages=100), 100),
        ("WebSocket publish, an entry each", publish_frames, 1),
        ("WebSocket publish, batchingEnabled", partial(publish_frames, query="?batchingEnabled=true"), 1),
        ("WebSocket delivery, acknowledged (with its publish)", deliver, 1),
    ]
    with ExitStack() as stack:
        up = {
            number: stack.enter_context(servers.penstock("--workers", str(number), folder=given.folder))
            for number in WORKERS
        }
        for name, case, messages in cases:
            runs: dict[int, list[Figures]] = {number: [] for number in WORKERS}
            for server in up.values():
                case(
                    server, WARM_S if case is not deliver else 0.2
                )  # connections, producers and schemas are there afterwards
            for _ in range(given.rounds):
                for number, server in up.items():
                    runs[number].append(measure(case, messages, server, given.seconds))
            for number in WORKERS:
                show(name, number, runs[number])


if __name__ == "__main__":
    main()

"""Mixed clients over every endpoint while the server is killed, its disk fills, its keys and certificate change; then
every acknowledged message is compared with what can be read.

A quarter of a minute with some clients in `make test`, ten minutes with hundreds in `make soak`. The pauses are the
plan's, between faults and looks at the server: they make the load, and nothing that is asserted depends on them.
"""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from .binary_workers import Official, committing, ours
from .book import Book
from .server import Figures, SoakServer
from .workers import (
    Crowd,
    abandoned,
    asker,
    kafka_producer,
    nuisance,
    passing,
    rest_producer,
    ws_consumer,
    ws_producer,
)

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"


class Plan(NamedTuple):
    """How long, how many of each, and how much may be left at the end. `calm_s`: at the end without kills, to see
    whether memory grows."""

    seconds: float
    pace_s: float
    gap_s: float
    full_s: float
    calm_s: float
    rest: int
    kafka: int
    ws: int
    ws_consumers: int
    ours: int
    ours_producers: int
    official: int
    staged: int
    askers: int
    nuisances: int


PLAN: Final = (
    Plan(
        seconds=float(os.environ.get("PENSTOCK_SOAK_S", "600")), pace_s=0.7, gap_s=6, full_s=3, calm_s=150,
        rest=80, kafka=40, ws=80, ws_consumers=20, ours=20, ours_producers=3, official=40, staged=8, askers=20,
        nuisances=30,
    )
    if SOAK
    else Plan(
        seconds=12, pace_s=0.1, gap_s=0.5, full_s=0.7, calm_s=1.5,
        rest=6, kafka=3, ws=6, ws_consumers=3, ours=2, ours_producers=2, official=3, staged=2, askers=2,
        nuisances=4,
    )
)  # fmt: skip
DRAIN_S: Final = 240 if SOAK else 120
GROWTH_MB: Final = 80  # of a calm server: caches that fill, and what an allocator keeps
FDS_LEFT: Final = 40  # files of the store and its readers, and sockets that are on their way out

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(PLAN.seconds + 600 if SOAK else 400),
    pytest.mark.skipif(sys.platform != "linux", reason="limits and figures of another process need Linux"),
]


class Soak:
    """One run."""

    def __init__(self, server: SoakServer) -> None:
        self.server = server
        self.book = Book()
        self.crowd = Crowd(server, self.book, PLAN.pace_s)
        self.began = time.monotonic()
        self.calm: list[Figures] = []
        self.most = Figures(0, 0, 0)

    @property
    def passed_s(self) -> float:
        return time.monotonic() - self.began

    # -- faults

    async def kill(self) -> None:
        self.server.kill()
        await asyncio.sleep(self.crowd.dice.uniform(0, 1.0))
        await asyncio.to_thread(self.server.restart)

    async def fill_the_disk(self) -> None:
        self.server.full(full=True)
        await asyncio.sleep(PLAN.full_s)
        self.server.full(full=False)

    async def full_and_killed(self) -> None:
        self.server.full(full=True)
        await asyncio.sleep(PLAN.full_s / 3)
        await self.kill()

    async def renew_the_certificate(self) -> None:
        await asyncio.to_thread(self.server.pki.renew)

    async def change_keys(self) -> None:
        """As a provider does: the new key is known first, then signs; the old one goes last."""
        keys = self.server.keys
        keys.add()
        await asyncio.sleep(1.5)
        keys.use_newest()
        self.server.write_token()
        if SOAK:
            await asyncio.sleep(8)  # who has an old token is asked for a new one, or is refused and takes one
        keys.drop_oldest()

    async def faults(self) -> None:
        work: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.fill_the_disk,
            self.renew_the_certificate,
            self.kill,
            self.change_keys,
            self.full_and_killed,
        ]
        turn = 0
        while self.passed_s < PLAN.seconds - PLAN.calm_s:
            await asyncio.sleep(PLAN.gap_s)
            fault = work[turn % len(work)]
            self.book.events[f"fault: {fault.__name__}"] += 1
            await fault()
            turn += 1

    # -- watching

    async def watch(self) -> None:
        last = 0.0
        while not self.crowd.over.is_set():
            self.server.write_token()
            figures = self.server.figures()
            self.most = Figures(*map(max, self.most, figures))
            if figures.rss_mb and self.passed_s > PLAN.seconds - PLAN.calm_s * 2 / 3:
                self.calm.append(figures)
            if SOAK and self.passed_s - last > 10:
                last = self.passed_s
                self.say(figures)
            await asyncio.sleep(0.25)

    def say(self, figures: Figures) -> None:
        done = min(1.0, self.passed_s / PLAN.seconds)
        bar = ("#" * round(30 * done)).ljust(30, ".")
        print(
            f"[{bar}] {self.passed_s:4.0f} s  {self.book.acknowledged:8,} acknowledged  life {self.server.lives}  "
            f"{figures.rss_mb:4.0f} MB  {figures.fds:4} files  {figures.threads} threads",
            flush=True,
        )

    # -- the whole

    async def run(self) -> None:
        crowd = self.crowd
        official = await asyncio.to_thread(Official, crowd, PLAN.official)
        pool = ThreadPoolExecutor(max_workers=PLAN.staged)
        try:
            async with asyncio.TaskGroup() as group:
                publishing = [group.create_task(one) for one in self.publishers(pool)]
                ours_ = [
                    group.create_task(ours(crowd, tls=n % 2 == 0, producers=PLAN.ours_producers))
                    for n in range(PLAN.ours)
                ]
                consuming = [
                    group.create_task(ws_consumer(crowd, topic, tls=n % 2 == 0))
                    for topic in ("ws", "asked")
                    for n in range(PLAN.ws_consumers)
                ]
                watching = group.create_task(self.watch())
                await self.faults()
                # On a busy machine the last fault may last beyond the end: there is a calm time all the same.
                await asyncio.sleep(max(PLAN.calm_s, PLAN.seconds - self.passed_s))
                while len(self.calm) < 2:
                    await asyncio.sleep(0.1)
                crowd.over.set()
                await asyncio.wait_for(asyncio.gather(*publishing, watching), DRAIN_S)
                await asyncio.wait_for(asyncio.to_thread(official.finish), DRAIN_S)
                await self.until_consumed()
                crowd.drained.set()
                await asyncio.wait_for(asyncio.gather(*ours_, *consuming), DRAIN_S)
        finally:
            crowd.over.set()
            crowd.drained.set()
            await asyncio.to_thread(official.close)
            pool.shutdown()

    def publishers(self, pool: ThreadPoolExecutor) -> list[Awaitable[None]]:
        crowd = self.crowd
        return [
            *(rest_producer(crowd, tls=n % 3 == 0) for n in range(PLAN.rest)),
            *(kafka_producer(crowd, tls=n % 3 == 0) for n in range(PLAN.kafka)),
            *(ws_producer(crowd, tls=n % 3 == 0) for n in range(PLAN.ws)),
            *(asker(crowd) for _ in range(PLAN.askers)),
            *(committing(crowd, pool) for _ in range(PLAN.staged)),
            *(nuisance(crowd) for _ in range(PLAN.nuisances)),
            passing(crowd),
        ]

    async def until_consumed(self) -> None:
        """Every subscription gets to the end of its topic."""
        until = time.monotonic() + DRAIN_S
        for topic, subscription in SUBSCRIPTIONS.items():
            while True:
                stats = await asyncio.to_thread(self.server.call, "GET", stats_path(topic))
                left = stats["subscriptions"][subscription]["msgBacklog"]
                if not left:
                    break
                assert time.monotonic() < until, f"{topic}: {left} messages are left"
                await asyncio.sleep(0.1)


SUBSCRIPTIONS: Final = {"ws": "all", "asked": "all", "binary": "official", "official": "ours"}
PARTITIONED: Final = {"binary": 3, "official": 3, "staged": 2}


def stats_path(topic: str) -> str:
    kind = "partitioned-stats" if topic in PARTITIONED else "stats"
    return f"/admin/v2/persistent/public/default/{topic}/{kind}"


def prepare(server: SoakServer) -> None:
    """Topics, subscriptions, and a namespace that keeps nothing."""
    admin = "/admin/v2/persistent/public"
    for topic, partitions in PARTITIONED.items():
        server.call("PUT", f"{admin}/default/{topic}/partitions", json=partitions)
    for topic in ("rest", "ws", "kafka", "asked", "cut"):
        server.call("PUT", f"{admin}/default/{topic}")
    for topic, subscription in SUBSCRIPTIONS.items():
        server.call("PUT", f"{admin}/default/{topic}/subscription/{subscription}", json="earliest")
    server.call("PUT", "/admin/v2/namespaces/public/short", json={})
    server.call("PUT", f"{admin}/short/gone")
    server.call("PUT", f"{admin}/short/gone/subscription/never", json="earliest")
    path = "/admin/v2/namespaces/public/short"
    server.call("POST", f"{path}/retention", json={"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    server.call("POST", f"{path}/messageTTL", json=1)


async def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    server = SoakServer(tmp_path)
    try:
        server.write_token()
        prepare(server)
        idle = server.figures()
        soak = Soak(server)
        await soak.run()
        totals = soak.book.compare(server)
        check_consumed(soak)
        assert server.call("GET", "/topics/public/default/cut/partitions/0/offsets")["latest"] == 0
        gone = server.call("GET", stats_path("gone").replace("/default/", "/short/"))
        left = await settled(server, idle)
        code = await asyncio.to_thread(server.stop)
    finally:
        if server.launched.process.poll() is None:
            server.kill()
        server.close()
    report(soak, totals, idle, left, gone)
    for topic, count in totals.items():
        assert count, f"nothing was stored on {topic}"
    assert soak.book.events["replies"], "no request was answered"
    assert code == 0
    assert left.fds <= idle.fds + FDS_LEFT, (idle, left)
    half = len(soak.calm) // 2
    before, after = (
        sorted(f.rss_mb for f in part)[len(part) // 2] for part in (soak.calm[:half], soak.calm[half:])
    )
    assert after <= before + GROWTH_MB, (before, after)


def check_consumed(soak: Soak) -> None:
    """What was acknowledged to its producer came to the subscription that was there before."""
    for topic in SUBSCRIPTIONS:
        published = {
            (writer.name, number)
            for writer in soak.book.writers.values()
            if writer.topic == topic
            for number in writer.acknowledged
        }
        seen = set()
        for value in soak.book.seen[topic]:
            name, _, number, _ = value.split("|", 3)
            seen.add((name, int(number)))
        assert not published - seen, f"{topic}: {len(published - seen)} never came"


async def settled(server: SoakServer, idle: Figures) -> Figures:
    """The server once everybody is gone: no connection, nothing held, no file kept open."""
    until = time.monotonic() + 120
    while True:
        lines = (await asyncio.to_thread(server.call, "GET", "/metrics")).splitlines()
        held = sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith(
                ("penstock_connections{", "penstock_requests_waiting", "penstock_request_bytes_held")
            )
        )
        figures = server.figures()
        # The connection that asks is one itself.
        if held <= 1 and figures.fds <= idle.fds + FDS_LEFT:
            return figures
        assert time.monotonic() < until, (held, figures, idle)
        await asyncio.sleep(0.1)


def report(soak: Soak, totals: dict[str, int], idle: Figures, left: Figures, gone: object) -> None:
    unanswered = sum(abandoned(writer) for writer in soak.book.writers.values())
    print(f"\n{soak.book.acknowledged:,} acknowledged, {unanswered:,} without an answer; stored: {totals}")
    print(f"lives of the server: {soak.server.lives}; idle {idle}, most {soak.most}, left {left}")
    calm = [f.rss_mb for f in soak.calm]
    print(f"memory while calm: {calm[0]:.0f} to {calm[-1]:.0f} MB, most {max(calm):.0f} MB")
    print(f"kept of what was to go: {gone['storageSize'] if isinstance(gone, dict) else gone} bytes")
    for event, count in sorted(soak.book.events.items()):
        print(f"  {count:7,}  {event}")

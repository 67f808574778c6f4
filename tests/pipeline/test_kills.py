"""Drivers killed around every commit: what was read is in the output once, row by row and byte by byte."""

import os
import threading
from pathlib import Path

import pytest
from tests.pipeline import census, copying
from tests.pipeline.drivers import LIFE_S, Driver
from tests.support.fault_proxy import FaultProxy

from penstock.testing.server import running

pytestmark = [pytest.mark.spark, pytest.mark.crash]

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"

BATCH = 300
ROWS = 4 * BATCH  # published before each life


TOPIC = r"POST /stages/[^/]{36}/\d+/commit"  # of a stream: its writer is the query's id
BOTH_TOPIC = r"POST /stages/[^/]{36}-out/\d+/commit"

# Where each pipeline stands when all are killed at once, in a batch that is not the life's first: a place, and on
# which side of the server.
LIVES = [
    {  # before every commit
        "topic": (TOPIC, "before"),
        "table": ("HOOK /delta/before/table$", "before"),
        "both": (BOTH_TOPIC, "before"),
    },
    {  # after every commit, before Spark hears of it; and between the commits of two sinks
        "topic": (TOPIC, "after"),
        "table": ("HOOK /delta/after/table$", "before"),
        "both": ("HOOK /delta/before/both-table$", "before"),
    },
    {  # in both sinks, but not in Spark's commit log; and in that, but nothing since
        "topic": ("HOOK /follow/topic$", "before"),
        "table": ("HOOK /follow/table$", "before"),
        "both": ("HOOK /batch/over/both/", "before"),
    },
]
MORE = [
    {
        "topic": (TOPIC, "before"),
        "table": ("HOOK /batch/over/table/", "before"),
        "both": (BOTH_TOPIC, "after"),
    },
    {
        "topic": (TOPIC, "after"),
        "table": ("HOOK /delta/after/table$", "before"),
        "both": ("HOOK /delta/after/both-table$", "before"),
    },
    {
        "topic": (r"PUT /stages/", "before"),
        "table": (r"GET /topics/\S+/messages", "after"),
        "both": ("HOOK /follow/both$", "before"),
    },
]


@pytest.mark.timeout(3600 if SOAK else 900)
def test_a_driver_that_dies_around_its_commits(tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, FaultProxy(server.port) as proxy:
        census.create(server.url, "in", 2)
        files = copying.write(tmp_path, rows=BATCH)
        publisher = census.Publisher(server.url, "in")
        places: dict[str, str] = {}
        following = Driver(proxy, tmp_path, *files)
        for life in (LIVES + MORE) * 3 if SOAK else LIVES:
            publisher.publish(ROWS)
            driver, following = following, Driver(proxy, tmp_path, *files)  # which starts Spark meanwhile
            # Who comes to its place waits there for the others; when all are, all die.
            together = threading.Barrier(len(life), driver.kill, LIFE_S)
            rules = [proxy.at(place, together.wait, when=when, nth=2) for place, when in life.values()]
            driver.begin()
            try:
                places.update((rule.wait(LIFE_S), "") for rule in rules)
            except (AssertionError, threading.BrokenBarrierError):
                following.kill()
                raise AssertionError(f"{life}: {driver.log}") from None
            finally:
                driver.kill()
        copying.write(tmp_path, rows=100 * BATCH)
        following.begin()
        following.finish()
        compared = copying.check(server.url, tmp_path)
        print(f"{len(places)} kills, {compared} rows compared")
        assert compared > 3 * publisher.count

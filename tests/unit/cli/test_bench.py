"""What `penstock bench` counts, and when it lets messages be sent."""

import asyncio
import random
from types import SimpleNamespace

import click
import pytest

from penstock.cli import bench_runs as module
from penstock.cli.bench import bench_command, result
from penstock.cli.bench_runs import STAMP, Latencies, Pace, Payloads, Plan
from penstock.cli.progress import Progress
from penstock.client.access import Access


@pytest.mark.parametrize("most_us", [1, 200, 300, 5_000, 10_000_000])
def test_percentiles_are_those_of_the_sorted_times(most_us: int) -> None:
    generator, latencies = random.Random(most_us), Latencies()
    times = [generator.randint(1, most_us) / 1e6 for _ in range(2001)]
    for time in times:
        latencies.record(time)
    times.sort()
    for percent in (0.01, 50, 95, 99, 99.9, 100):
        exact = times[max(0, -int(-(len(times) * percent) // 100) - 1)]
        assert exact <= latencies.percentile_s(percent) * 1.000001 <= exact * 1.0101
    assert latencies.percentile_s(100) == latencies.max_s == times[-1]


def test_times_below_zero_and_none() -> None:
    assert Latencies().summary() is None
    backwards = Latencies()
    backwards.record(-5)
    assert backwards.percentile_s(99) == 0


class Time:
    """Stands for `time`, and for asyncio's sleep: whoever waits turns it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        clock = SimpleNamespace(perf_counter=lambda: self.now_s, process_time=lambda: self.now_s / 4)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def pace_of(**bounds: float) -> Pace:
    plan = Plan(Access(url="http://127.0.0.1:1"), "t", **bounds)  # type: ignore[arg-type] - numbers of both kinds
    return Pace(plan, Progress("", shown=False))


def test_a_pause_of_the_server_is_in_the_latency_of_all_it_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = pace_of(messages=10, rate=10)  # one each 100 ms

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            time.now_s += 0.55 if pace.taken == 2 else 0.001  # the second one delays those after it
            pace.done(due_s)

    asyncio.run(run())
    # Due at 0.1 s and done at 0.65 s; the next four were due at 0.2, 0.3, 0.4 and 0.5 s, and waited for it.
    late = [0.55, 0.451, 0.352, 0.253, 0.154, 0.055]
    assert pace.latencies.count == 10
    assert pace.latencies.max_s == pytest.approx(0.55)
    for rank, seconds in enumerate(late):
        assert pace.latencies.percentile_s(100 - 10 * rank) == pytest.approx(seconds, rel=0.011)


def test_a_rate_that_is_too_high_is_seen_in_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    plan = Plan(Access(url="http://127.0.0.1:1"), "t", duration=2, rate=10)
    pace = Pace(plan, Progress("", shown=False))

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            time.now_s += 0.25
            pace.done(due_s)

    asyncio.run(run())
    found = result("publish", plan, pace)
    assert (pace.taken, found["messages"]) == (8, 3)  # those due in the first half second do not count
    assert found["seconds"] == 1.5
    assert found["messages_per_second"] == 2.0


def test_the_beginning_is_not_counted_and_a_stop_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = pace_of(duration=100)

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            time.now_s += 0.25
            pace.done(due_s)
            if pace.taken == 8:
                pace.stop(2)
        pace.finish()

    asyncio.run(run())
    assert (pace.taken, pace.count, pace.seconds) == (8, 4, 1.0)
    assert pace.cpu_share == pytest.approx(0.25)


def test_partitions_of_a_given_topic_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="omit TOPIC"):
        bench_command.main(["publish", "t", "--partitions", "2"], standalone_mode=False)


def test_payloads_know_their_run() -> None:
    payloads = Payloads(100)
    assert len(payloads.at(1.5)) == 100
    assert payloads.due_s(payloads.at(1.5)) == 1.5
    assert Payloads(STAMP.size).due_s(payloads.at(1.5)) is None
    assert payloads.due_s(b"x" * (STAMP.size - 1)) is None

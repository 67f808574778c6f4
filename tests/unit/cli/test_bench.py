"""What `penstock bench` counts, and when it lets messages be sent."""

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import click
import pytest

from penstock.cli.bench import pace as module
from penstock.cli.bench import peers
from penstock.cli.bench.command import bench_command
from penstock.cli.bench.latencies import Latencies
from penstock.cli.bench.pace import Bounds, Pace
from penstock.cli.bench.peers import Load
from penstock.cli.bench.report import Setting, result
from penstock.cli.bench.runs import STAMP_BYTES, Payloads
from penstock.cli.bench.websocket import WebSocketConsumer, WebSocketPeers
from penstock.cli.progress import Progress
from penstock.client.access import Access


@pytest.mark.parametrize("most_us", [1, 200, 300, 5_000, 10_000_000])
def test_percentiles_are_those_of_the_sorted_times(most_us: int) -> None:
    generator, latencies = random.Random(most_us), Latencies()
    times = [generator.randint(0, most_us) for _ in range(2001)]
    for time in times:
        latencies.record(time)
    times.sort()
    for percent in (0.01, 50, 95, 99, 99.9, 100):
        exact = times[max(0, -int(-(len(times) * percent) // 100) - 1)]
        assert exact <= latencies.percentile_us(percent) <= exact * 1.008
    assert latencies.percentile_us(100) == latencies.max_us == times[-1]


def test_times_of_every_size() -> None:
    for time in (0, 255, 256, 511, 512, 2**36 - 1, 2**36, 2**60):
        latencies = Latencies()
        latencies.record(time)
        assert latencies.percentile_us(50) == latencies.max_us == time
    assert Latencies().summary() is None
    backwards = Latencies()
    backwards.record(-5)
    assert backwards.percentile_us(99) == 0


class Time:
    """Stands for `time`, and for asyncio's sleep: whoever waits turns it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        clock = SimpleNamespace(perf_counter=lambda: self.now_s, process_time=lambda: self.now_s / 4)
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_pause_of_the_server_is_in_the_latency_of_all_it_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = Pace(Bounds(messages=10, rate=10), Progress("", shown=False))  # one each 100 ms

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            pace.sending(due_s)
            time.now_s += (
                0.55 if pace.taken == 2 else 0.001
            )  # the second is held up, and with it those after it
            pace.done(due_s)

    asyncio.run(run())
    # Due at 0.1 s and done at 0.65 s; the next four were due at 0.2, 0.3, 0.4 and 0.5 s, and waited for it.
    late = [0.55, 0.451, 0.352, 0.253, 0.154, 0.055]
    assert pace.latencies.count == 10
    assert pace.latencies.max_us == pytest.approx(550_000, abs=2)
    assert (
        pace.latencies.percentile_us(50) >= 54_000
    )  # of ten, six are late; by the time of sending one would be
    for rank, seconds in enumerate(late):
        assert pace.latencies.percentile_us(100 - 10 * rank) == pytest.approx(seconds * 1e6, rel=0.009)
    assert pace.lateness.max_us == pytest.approx(450_000, abs=2)


def test_what_cannot_be_sent_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = Pace(Bounds(duration_s=2, rate=10), Progress("", shown=False))

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            time.now_s += 0.5
            pace.done(due_s)

    asyncio.run(run())
    assert (pace.count, pace.unsent) == (6, 14)  # 2 s, and 1 s for what was due just before the end
    found = result(Setting("publish", "pulsar", "t", 100, 1, 10.0), pace)
    assert (found["messages"], found["unsent"], found["seconds"]) == (6, 14, 3.0)
    assert found["messages_per_second"] == 2.0


def test_the_beginning_is_not_counted_and_a_stop_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time(monkeypatch)
    pace = Pace(Bounds(duration_s=100, warm_s=1), Progress("", shown=False))

    async def run() -> None:
        while (due_s := await pace.next()) is not None:
            time.now_s += 0.25
            pace.done(due_s)
            if pace.taken == 8:
                pace.stop()
        pace.finish()

    asyncio.run(run())
    assert (pace.taken, pace.count, pace.seconds, pace.unsent) == (8, 4, 1.0, 0)
    assert pace.cpu_share == pytest.approx(0.25)


def test_a_part_of_a_run_ends_with_it() -> None:
    run = Pace(Bounds(), Progress("", shown=False))
    part = Pace(Bounds(messages=10), Progress("", shown=False), part_of=run)
    assert not part.over
    run.stop()
    assert part.over


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["publish", "t", "--partitions", "2"], "goes without TOPIC"),
        (["consume", "--warm-up", "2"], "goes with --rate"),
    ],
)
def test_options_that_would_do_nothing(given: list[str], why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        bench_command.main(given, standalone_mode=False)


def test_how_long_a_socket_may_wait_to_fill_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def opened(peers: WebSocketPeers, role: str, topic: str, below: str, parameters: dict[str, Any]) -> Any:
        asked.update(parameters)
        raise ConnectionError

    async def run() -> None:
        load = Load("t", 100, 1, 1, batch=5, batch_delay_ms=7)
        async with WebSocketPeers(Access(url="http://127.0.0.1:1")).producers(load):
            pass

    monkeypatch.setattr(WebSocketPeers, "_open", opened)
    with pytest.raises(ConnectionError):
        asyncio.run(run())
    assert (asked["batchingMaxMessages"], asked["batchingMaxPublishDelay"]) == (5, 7)


class Refusing:
    """The connection of a consumer: its server refuses to unsubscribe a number of times."""

    def __init__(self, refusals: int, refusal: str) -> None:
        self.asked = 0
        self._refusals = refusals
        self._refusal = refusal
        self._late = [b'{"messageId":"CAAQAA==","payload":""}']

    async def send(self, frame: bytes, *, text: bool) -> None:
        assert b"unsubscribe" in frame
        self.asked += 1

    async def recv(self) -> bytes:
        if self._late:
            return self._late.pop()
        result = self._refusal if self.asked <= self._refusals else "ok"
        return b'{"result":"%s","context":"end"}' % result.encode()


@pytest.mark.parametrize(
    ("refusal", "refusals", "within_s", "asked", "said"),
    [
        ("Unconnected or shared consumer attempting to unsubscribe", 2, 60.0, 3, ""),
        (
            "Unconnected or shared consumer attempting to unsubscribe",
            9,
            0.0,
            1,
            "was not deleted: Unconnected or",
        ),
        ("no rights", 9, 60.0, 1, "the subscription penstock-bench was not deleted: no rights"),
    ],
)
def test_an_unsubscribe_that_is_refused(
    refusal: str,
    refusals: int,
    within_s: float,
    asked: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(peers, "UNSUBSCRIBE_RETRY_S", 0)
    monkeypatch.setattr(peers, "UNSUBSCRIBE_S", within_s)
    connection: Any = Refusing(refusals, refusal)
    asyncio.run(peers.unsubscribe(WebSocketConsumer(connection).unsubscribe))
    assert connection.asked == asked
    printed = capsys.readouterr().err
    assert said in printed
    assert bool(said) == bool(printed)


def test_payloads_know_their_run() -> None:
    payloads = Payloads(100)
    assert len(payloads.at(1.5)) == 100
    assert payloads.due_s(payloads.at(1.5)) == 1.5
    assert Payloads(STAMP_BYTES).due_s(payloads.at(1.5)) is None
    assert payloads.due_s(b"x" * (STAMP_BYTES - 1)) is None

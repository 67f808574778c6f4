"""Exit codes of what a signal ends, or where nothing came of a run."""

import asyncio
import json
import signal
import time
from collections.abc import Callable

import click
import pytest

from penstock.cli import bench, top
from penstock.cli.bench_runs import Pace, Plan
from penstock.client.access import Access

PLAN = Plan(Access(url="http://127.0.0.1:1"), "t", messages=10)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_benchmark_that_a_signal_ends(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(name: str, plan: Plan, pace: Pace) -> None:
        signal.raise_signal(number)
        while not pace.over:
            await asyncio.sleep(0)

    monkeypatch.setattr(bench, "run", run)
    assert bench.measure("publish", PLAN) == code


def test_a_benchmark_without_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(name: str, plan: Plan, pace: Pace) -> None:
        pace.failed("the topic was terminated")

    monkeypatch.setattr(bench, "run", run)
    with pytest.raises(click.ClickException, match="no message was published: the topic was terminated"):
        bench.measure("publish", PLAN)
    found = json.loads(capsys.readouterr().out)
    assert (found["messages"], found["errors"], found["error"]) == (0, 1, "the topic was terminated")


def interrupt() -> None:
    raise KeyboardInterrupt


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("end", "kind"), [(interrupt, KeyboardInterrupt), (terminate, click.exceptions.Exit)]
)
def test_top_that_a_signal_ends(
    end: Callable[[], None], kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: end())
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(kind) as ended:
        top._live(list, "http://127.0.0.1:1", 1.0)
    assert signal.getsignal(signal.SIGTERM) is before
    assert getattr(ended.value, "exit_code", 143) == 143

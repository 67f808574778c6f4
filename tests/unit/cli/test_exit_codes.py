"""Exit codes of what a signal ends, or where nothing came of a run."""

import asyncio
import json
import signal
import time
from collections.abc import Callable

import click
import pytest

from penstock.cli import top
from penstock.cli.bench.measuring import _measure
from penstock.cli.bench.pace import Bounds, Pace
from penstock.cli.bench.peers import Load
from penstock.cli.bench.plan import Plan
from penstock.cli.bench.runs import Payloads
from penstock.client.access import Access

PLAN = Plan(Access(url="http://127.0.0.1:1"), "pulsar", Load("t", 100, 1, 1), Bounds(messages=10))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_benchmark_that_a_signal_ends(number: signal.Signals, code: int) -> None:
    async def run(_: Payloads, pace: Pace) -> None:
        signal.raise_signal(number)
        while not pace.over:
            await asyncio.sleep(0)

    assert _measure("publish", PLAN, 0, run) == code


def test_a_benchmark_without_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    async def run(_: Payloads, pace: Pace) -> None:
        pace.failed("the topic was terminated")

    with pytest.raises(click.ClickException, match="no message was published: the topic was terminated"):
        _measure("publish", PLAN, 0, run)
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

"""Which failures a pipeline of this process is started again after, and how it ends."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run import handle
from penstock.pipeline.run.failures import Cause, ErrorClass
from penstock.pipeline.run.folder import Owner
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.supervise import Backoff
from penstock.pipeline.spec.parse import parse_spec

WAIT_S = 60.0

AWAY = Cause(ErrorClass.BROKER, "it cannot be reached")
NEW = Cause(ErrorClass.NEW_SCHEMA, "there is version 2")
LOST = Cause(ErrorClass.DATA_LOSS, "messages are gone")


class Attempt:
    """Fails when it starts, or later, or ends when it is told to."""

    def __init__(self, *, starts: BaseException | None = None, ends: Cause | None = None, runs: bool = False):
        self._starts = starts
        self._ends = ends
        self._over = threading.Event()
        if not runs:
            self._over.set()

    def start(self, owner: Owner | None, *, once: bool, change_sinks: bool) -> None:
        assert not once
        assert not change_sinks
        if self._starts is not None:
            raise self._starts

    def stop(self) -> None:
        self._over.set()

    kill = stop

    def wait(self) -> Cause | None:
        assert self._over.wait(WAIT_S)
        return self._ends


class NoPause(Backoff):
    def next_s(self, ran_s: float) -> float:
        assert ran_s >= 0
        return 0.0


class Long(Backoff):
    def next_s(self, ran_s: float) -> float:
        return 1000.0


class Reporting:
    """Hands on events; nothing goes to a server."""

    def __init__(self, report: Callable[[Any], None]) -> None:
        self._report = report
        self.last: dict[str, Any] = {}

    def __call__(self, event: dict[str, Any]) -> None:
        self._report(event)

    def close(self) -> None:
        pass


Keeper = Callable[..., Pipeline]


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    """Makes a pipeline whose attempts are given."""
    content = {
        "name": "p",
        "sources": {"s": {"topics": ["in"]}},
        "sinks": {"k": {"input": "s", "topic": "out"}},
        "state": str(tmp_path),
    }

    def made(
        *attempts: Attempt, backoff: Backoff | None = None, report: Callable[[Any], None] = lambda event: None
    ) -> Pipeline:
        waiting = iter(attempts)
        monkeypatch.setattr(handle, "preflight", lambda spec: None)
        monkeypatch.setattr(handle, "Runner", lambda *_: next(waiting))
        monkeypatch.setattr(handle, "Reporter", lambda *_: Reporting(report))
        spark: Any = object()
        return Pipeline(parse_spec(content, "p.toml", tmp_path), spark, backoff=backoff or NoPause())

    return made


def ended(pipeline: Pipeline) -> tuple[str, str]:
    """The class and the sentence of the error with which it ends."""
    with pytest.raises(PipelineError) as error:
        pipeline.await_termination(WAIT_S)
    return error.value.error_class, error.value.message  # type: ignore[attr-defined]


def test_what_passes_is_waited_for_and_said(keeper: Keeper) -> None:
    events: list[Any] = []
    made = keeper(
        Attempt(ends=AWAY),
        Attempt(starts=PenstockError(ErrorKind.UNAVAILABLE, "away")),
        Attempt(ends=NEW),
        Attempt(),
        report=events.append,
    )
    made.start()
    assert made.await_termination(WAIT_S)
    assert [(event["state"], event["error_class"]) for event in events] == [
        ("starting", None),
        ("restarting", "broker"),
        ("restarting", "broker"),
        ("restarting", "new_schema"),
        ("stopped", None),
    ]


def test_what_fails_ten_times_without_progress_ends_it(keeper: Keeper) -> None:
    events: list[Any] = []
    made = keeper(
        Attempt(ends=AWAY),
        *(Attempt(starts=PenstockError(ErrorKind.UNAVAILABLE, "away")) for _ in range(20)),
        *(Attempt(ends=NEW) for _ in range(9)),
        report=events.append,
    )
    made.start()
    sentence = "there is version 2; it failed 10 times, and no batch was over in between"
    assert ended(made) == ("new_schema", sentence)
    assert sum(event["state"] == "restarting" for event in events) == 29


@pytest.mark.parametrize("where", ["starts", "ends"])
def test_what_does_not_pass_ends_it(where: str, keeper: Keeper) -> None:
    second = Attempt(starts=PipelineError("no such topic")) if where == "starts" else Attempt(ends=LOST)
    made = keeper(Attempt(ends=AWAY), second)
    made.start()
    assert ended(made)[0] == ("plan" if where == "starts" else "data_loss")


def test_a_stop_ends_a_run_and_a_pause(keeper: Keeper) -> None:
    running = keeper(Attempt(runs=True))
    running.start()
    assert running.active
    running.stop(WAIT_S)
    assert not running.active

    paused = threading.Event()

    def report(event: dict[str, Any]) -> None:
        if event["state"] == "restarting":
            paused.set()

    made = keeper(Attempt(ends=AWAY), backoff=Long(), report=report)
    made.start()
    assert paused.wait(WAIT_S)
    made.stop(WAIT_S)
    assert not made.active

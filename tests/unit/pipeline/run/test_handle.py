"""Which failures a pipeline of this process is started again after, and how it ends."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.failures import Cause, ErrorClass
from penstock.pipeline.run.folder import Owner
from penstock.pipeline.run.handle import Restarts
from penstock.pipeline.run.supervise import Backoff

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


def keeper(
    *attempts: Attempt, backoff: Backoff | None = None, report: Callable[[Any], None] | None = None
) -> Restarts:
    waiting = iter(attempts)
    return Restarts(
        lambda: next(waiting),
        lambda: None,
        report or (lambda event: None),
        backoff or NoPause(),
        once=False,
    )


def test_what_passes_is_waited_for_and_said() -> None:
    events: list[Any] = []
    made = keeper(
        Attempt(ends=AWAY),
        Attempt(starts=PenstockError(ErrorKind.UNAVAILABLE, "away")),
        Attempt(ends=NEW),
        Attempt(),
        report=events.append,
    )
    made.start()
    assert made.keep() is None
    assert [(event["state"], event["error_class"]) for event in events] == [
        ("restarting", "broker"),
        ("restarting", "broker"),
        ("restarting", "new_schema"),
    ]


def test_what_fails_ten_times_without_progress_ends_it() -> None:
    events: list[Any] = []
    made = keeper(
        Attempt(ends=AWAY),
        *(Attempt(starts=PenstockError(ErrorKind.UNAVAILABLE, "away")) for _ in range(20)),
        *(Attempt(ends=NEW) for _ in range(9)),
        report=events.append,
    )
    made.start()
    cause = made.keep()
    assert cause == Cause(
        ErrorClass.NEW_SCHEMA,
        "there is version 2; it failed 10 times, and no batch was over in between",
    )
    assert sum(event["state"] == "restarting" for event in events) == 29


@pytest.mark.parametrize("where", ["starts", "ends"])
def test_what_does_not_pass_ends_it(where: str) -> None:
    second = Attempt(starts=PipelineError("no such topic")) if where == "starts" else Attempt(ends=LOST)
    made = keeper(Attempt(ends=AWAY), second)
    made.start()
    cause = made.keep()
    assert cause is not None
    assert cause.kind is (ErrorClass.PLAN if where == "starts" else ErrorClass.DATA_LOSS)


def test_a_stop_ends_a_run_and_a_pause() -> None:
    running = keeper(Attempt(runs=True))
    running.start()
    thread = threading.Thread(target=running.keep)
    thread.start()
    running.stop()
    thread.join(WAIT_S)
    assert not thread.is_alive()

    paused = threading.Event()
    made = keeper(Attempt(ends=AWAY), backoff=Long(), report=lambda event: paused.set())
    made.start()
    ended: list[Cause | None] = []
    thread = threading.Thread(target=lambda: ended.append(made.keep()))
    thread.start()
    assert paused.wait(WAIT_S)
    made.stop()
    thread.join(WAIT_S)
    assert ended == [None]

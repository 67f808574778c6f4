from collections.abc import Callable

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.http.retry import BACKOFF_MAX_S, START_S, Outage, retrying


def away(times: int) -> Callable[[], str]:
    answers = [PenstockError(ErrorKind.UNAVAILABLE, "away")] * times

    def call() -> str:
        if answers:
            raise answers.pop()
        return "here"

    return call


def test_a_server_that_is_away_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    slept: list[float] = []
    assert retrying(away(3), sleep=slept.append, clock=lambda: sum(slept)) == "here"
    assert slept == [0.1, 0.2, 0.4]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["away; it is asked again for 90 s", "the server answers again, after 0.7 s"]


def test_a_restart_may_take_a_minute() -> None:
    slept: list[float] = []
    assert retrying(away(34), sleep=slept.append, clock=lambda: sum(slept)) == "here"
    assert sum(slept) > 60
    assert max(slept) == BACKOFF_MAX_S


@pytest.mark.parametrize(("kind", "most_s"), [(ErrorKind.UNAVAILABLE, START_S), (ErrorKind.FORBIDDEN, 0)])
def test_errors_that_stay(kind: ErrorKind, most_s: float) -> None:
    slept: list[float] = []

    def call() -> None:
        raise PenstockError(kind, "no")

    with pytest.raises(PenstockError, match="no"):
        retrying(call, START_S, sleep=slept.append, clock=lambda: sum(slept))
    assert most_s - BACKOFF_MAX_S <= sum(slept) <= most_s


def test_every_absence_is_counted_anew() -> None:
    now = [0.0]
    absence = Outage(10, lambda: now[0])
    gone = PenstockError(ErrorKind.UNAVAILABLE, "gone")
    for _ in range(3):
        assert absence.wait_s(gone) == 0.1
        now[0] += 9
        absence.over()
    assert absence.wait_s(gone) == 0.1
    now[0] += 9.9
    with pytest.raises(PenstockError, match="gone"):
        absence.wait_s(gone)

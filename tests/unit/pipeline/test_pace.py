import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.source.pace import IDLE_MS, Pace
from penstock.pipeline.source.patience import ATTEMPTS_MAX, patiently


def test_an_idle_query_waits_longer_and_longer() -> None:
    now = [0.0]
    pace = Pace(100, lambda: now[0])
    waits = []
    for _ in range(6):
        pace.idle()
        waits.append(pace.wait_ms)
    assert waits == [200, 400, 800, 1600, IDLE_MS, IDLE_MS]
    now[0] += 0.25
    assert pace.wait_ms == IDLE_MS - 250, "what has passed counts"
    now[0] += 10
    assert pace.wait_ms == 0, "a trigger that comes seldom never waits"
    pace.busy()
    assert pace.wait_ms == 100
    slow = Pace(5000, lambda: now[0])
    slow.idle()
    assert slow.wait_ms == 5000


def test_a_server_that_is_away_for_a_while() -> None:
    answers = [PenstockError(ErrorKind.UNAVAILABLE, "away")] * 3
    slept: list[float] = []

    def call() -> str:
        if answers:
            raise answers.pop()
        return "here"

    assert patiently(call, slept.append) == "here"
    assert slept == [0.1, 0.2, 0.4]


@pytest.mark.parametrize(("kind", "calls"), [(ErrorKind.UNAVAILABLE, ATTEMPTS_MAX), (ErrorKind.FORBIDDEN, 1)])
def test_errors_that_stay(kind: ErrorKind, calls: int) -> None:
    made = []

    def call() -> None:
        made.append(1)
        raise PenstockError(kind, "no")

    with pytest.raises(PenstockError, match="no"):
        patiently(call, lambda _: None)
    assert len(made) == calls

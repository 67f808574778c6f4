import logging

import pytest

from penstock.runtime.failures import FailureKind, Failures
from penstock.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_failure_is_logged_once_and_on_recovery(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures(clock)
    with caplog.at_level(logging.INFO):
        for reason in ("a", "b", "c"):
            failures.failed(FailureKind.DEAD_LETTER, "t s", reason)
        failures.failed(FailureKind.DEAD_LETTER, "t other", "a")
        (first, _) = failures.ongoing
        assert (first.subject, first.message, first.count) == ("t s", "c", 3)
        assert failures.counts()[FailureKind.DEAD_LETTER] == 2
        failures.recovered(FailureKind.DEAD_LETTER, "t s")
        failures.recovered(FailureKind.DEAD_LETTER, "t s")
        failures.dropped(FailureKind.DEAD_LETTER, "t other")
    assert _lines(caplog) == ["dead letters cannot be stored"] * 2 + ["dead letters are stored again"]
    assert not failures.ongoing
    assert failures.total[FailureKind.DEAD_LETTER] == 4


def test_every_kind_has_its_texts(clock: ManualClock) -> None:
    failures = Failures(clock)
    for kind in FailureKind:
        failures.failed(kind, "x", "y")
        failures.recovered(kind, "x")


def test_the_list_is_bounded_and_the_count_is_not(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = Failures(clock, ongoing_max=2)
    for number in range(5):
        failures.failed(FailureKind.DOCUMENT, str(number), "broken")
        failures.failed(FailureKind.DOCUMENT, str(number), "broken")
    assert [one.subject for one in failures.ongoing] == ["0", "1"]
    assert failures.total[FailureKind.DOCUMENT] == 10
    assert _lines(caplog).count("too many failures to list") == 1
    assert len(_lines(caplog)) == 3
    failures.recovered(FailureKind.DOCUMENT, "0")
    failures.failed(FailureKind.DOCUMENT, "4", "broken")
    assert [one.subject for one in failures.ongoing] == ["1", "4"]

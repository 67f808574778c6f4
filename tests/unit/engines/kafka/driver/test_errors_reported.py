"""What is logged and counted of errors that librdkafka's clients report."""

import logging

import pytest
from confluent_kafka import KafkaError

from penstock.engines.kafka.driver import errors as module
from penstock.engines.kafka.driver.errors import ClientErrors

DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "3/3 brokers are down")
REFUSED = KafkaError(KafkaError._AUTHENTICATION, "Authentication failed: invalid credentials")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, object]]:
    found = [(one.levelname, one.message, getattr(one, "times", None)) for one in caplog.records]
    caplog.clear()
    return found


def test_an_error_is_logged_once_a_minute_and_counted_each_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    errors = ClientErrors(clock)
    for _ in range(5):
        errors.report("tail", DOWN)
    errors.report("tail", REFUSED)
    said = "a client of Kafka reports an error"
    assert logged(caplog) == [("INFO", said, 1), ("WARNING", said, 1)]
    clock.now += module.LOG_S
    errors.report("tail", DOWN)
    assert logged(caplog) == [("INFO", said, 5)]
    assert errors.counts() == {("tail", "_ALL_BROKERS_DOWN"): 6, ("tail", "_AUTHENTICATION"): 1}


def test_a_client_works_again_once_it_is_quiet_and_the_cluster_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    errors = ClientErrors(clock)
    errors.report("tail", DOWN)
    caplog.clear()
    errors.recovered(authenticated=False)
    assert logged(caplog) == []
    clock.now += module.QUIET_S + 1
    errors.recovered(authenticated=False)
    errors.recovered(authenticated=False)
    assert logged(caplog) == [("INFO", "a client of Kafka works again", None)]
    errors.report("tail", DOWN)  # news, however soon
    assert len(logged(caplog)) == 1


def test_a_cluster_that_lets_in_one_client_and_refuses_another_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    errors = ClientErrors(clock)
    for _ in range(100):
        for _ in range(20):
            errors.report("member", REFUSED)
        errors.recovered(authenticated=True)
        clock.now += 3
    assert len(logged(caplog)) <= 2 * (300 // module.QUIET_S + 1)
    assert errors.counts() == {("member", "_AUTHENTICATION"): 2000}


def test_a_refusal_lasts_until_a_new_connection_is_let_in() -> None:
    clock = Clock()
    errors = ClientErrors(clock)
    assert errors.refusal() is None
    errors.report("member", REFUSED)
    assert errors.refusal(after_s=3) is None
    clock.now += 1000
    errors.recovered(authenticated=False)  # by a connection of before
    refusal = errors.refusal(after_s=3)
    assert refusal is not None
    assert refusal.str() == REFUSED.str()
    errors.recovered(authenticated=True)
    assert errors.refusal() is None


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SERIES_MAX", 2)
    errors = ClientErrors()
    for kind in ("a", "b", "c", "d"):
        errors.report(kind, DOWN)
    assert errors.counts()[module.OTHERS] == 2
    assert len(errors.counts()) == 3

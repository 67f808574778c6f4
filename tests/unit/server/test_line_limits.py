"""Log lines that strangers cause: the first of a minute, then a number."""

import logging
from collections.abc import Iterator

import pytest

from penstock.server.logs import KINDS_MAX, LINES_PER_MINUTE, LineLimits

NAME = "penstock.protocols.binary.connection"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> Iterator[LineLimits]:
    made = LineLimits(clock)
    made.attach()
    made.attach()
    yield made
    for logger in list(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.removeFilter(made)


def test_the_first_lines_and_then_their_number(
    limits: LineLimits, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger(NAME)
    for number in range(3000):
        logger.warning("closed a connection", extra={"peer": number})
    logger.warning("another kind")
    assert len(caplog.records) == LINES_PER_MINUTE + 1
    limits.tell()
    assert len(caplog.records) == LINES_PER_MINUTE + 1  # the minute is not over
    clock.now += 61
    caplog.clear()
    limits.tell()
    limits.tell()
    (record,) = caplog.records
    assert record.getMessage() == "lines kept back"
    assert (vars(record)["of"], vars(record)["text"]) == (NAME, "closed a connection")
    assert vars(record)["count"] == 3000 - LINES_PER_MINUTE
    logger.warning("closed a connection")
    assert caplog.records[-1].getMessage() == "closed a connection"


def test_other_loggers_have_no_bound(limits: LineLimits, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        logging.getLogger("penstock.server.reload").error("the configuration is not read again")
    assert len(caplog.records) == 100


def test_texts_that_are_never_the_same_are_one_kind(
    limits: LineLimits, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(10_000):
        logging.getLogger("asyncio").error("failed for " + str(number) + "\nprotocol")  # noqa: G003
    assert len(caplog.records) == KINDS_MAX + LINES_PER_MINUTE

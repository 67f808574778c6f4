"""The limit of open files."""

import logging
import resource

import pytest

from penstock.server import resources


class System:
    """`resource` with limits of its own."""

    RLIMIT_NOFILE = resource.RLIMIT_NOFILE
    RLIM_INFINITY = resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int, *, stubborn: bool = False) -> None:
        self.soft, self.hard, self.stubborn = soft, hard, stubborn

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == self.RLIMIT_NOFILE
        return self.soft, self.hard

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        if self.stubborn:
            raise ValueError("no")
        self.soft, self.hard = limits


@pytest.mark.parametrize(
    ("system", "soft", "warns"),
    [
        (System(1024, 100_000), 1256, False),
        (System(1024, resource.RLIM_INFINITY), 1256, False),
        (System(100, 1100), 1100, True),
        (System(4000, 5000), 4000, False),
        (System(1024, resource.RLIM_INFINITY, stubborn=True), 1024, True),
    ],
)
def test_the_soft_limit_is_raised(
    system: System, soft: int, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resources, "resource", system)
    hard = system.hard
    with caplog.at_level(logging.WARNING):
        assert resources.allow_connections(1000) == soft
    assert (system.soft, system.hard) == (soft, hard)
    assert bool(caplog.records) is warns

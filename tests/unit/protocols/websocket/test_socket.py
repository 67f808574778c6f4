import pytest

from penstock.protocols.websocket.socket import IdleWatch
from penstock.testing.clock import ManualClock


class Watched:
    def __init__(self, idle_ms: int) -> None:
        self.clock = ManualClock()
        self.activity = 0
        self.expired = 0
        self.watch = IdleWatch(self.clock, idle_ms, lambda: self.activity, self._expire)
        self.watch.start()

    def _expire(self) -> None:
        self.expired += 1


def test_silence_expires_once() -> None:
    watched = Watched(1000)
    watched.clock.turn(999)
    assert watched.expired == 0
    watched.clock.turn(1)
    assert watched.expired == 1
    watched.clock.turn(10_000)
    assert watched.expired == 1


def test_activity_puts_it_off_by_at_most_a_quarter_more() -> None:
    watched = Watched(1000)
    watched.clock.turn(900)
    watched.activity += 1
    watched.clock.turn(1000)
    assert watched.expired == 0
    watched.clock.turn(250)
    assert watched.expired == 1


@pytest.mark.parametrize("idle_ms", [0, 1000])
def test_switched_off_or_closed_it_never_does(idle_ms: int) -> None:
    watched = Watched(idle_ms)
    watched.watch.close()
    watched.clock.turn(100_000)
    assert watched.expired == 0

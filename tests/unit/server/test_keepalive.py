from penstock.server.sockets import Keepalive
from penstock.testing.clock import ManualClock


class Connection:
    """Keeps the pings; answers none of them."""

    def __init__(self, interval_s: float | None = 30, timeout_s: float | None = 60) -> None:
        self.clock = ManualClock()
        self.pings: list[bytes] = []
        self.lost = 0
        self.keepalive = Keepalive(interval_s, timeout_s, self, self.clock)
        self.keepalive.start()

    def ping(self, payload: bytes) -> None:
        self.pings.append(payload)

    def unanswered(self) -> None:
        self.lost += 1


def test_a_ping_each_interval_as_long_as_it_is_answered() -> None:
    peer = Connection()
    for count in range(1, 4):
        peer.clock.turn(30_000)
        assert len(peer.pings) == count
        peer.keepalive.answered(peer.pings[-1])
    peer.clock.turn(29_999)
    assert (len(peer.pings), peer.lost) == (3, 0)


def test_the_round_trip_is_part_of_the_interval() -> None:
    peer = Connection()
    peer.clock.turn(30_000)
    peer.clock.turn(10_000)
    peer.keepalive.answered(peer.pings[-1])
    peer.clock.turn(20_000)
    assert len(peer.pings) == 2


def test_without_a_pong_it_is_lost_once() -> None:
    peer = Connection()
    peer.clock.turn(30_000)
    peer.keepalive.answered(b"none of ours")
    peer.clock.turn(59_999)
    assert peer.lost == 0
    peer.clock.turn(1)
    assert peer.lost == 1
    peer.clock.turn(1_000_000)
    assert (peer.lost, len(peer.pings)) == (1, 1)


def test_without_a_timeout_no_pong_is_waited_for() -> None:
    peer = Connection(timeout_s=None)
    peer.clock.turn(90_000)
    assert (len(peer.pings), peer.lost) == (3, 0)


def test_off_or_stopped_there_are_none() -> None:
    off, stopped = Connection(interval_s=None), Connection()
    stopped.keepalive.stop()
    for peer in (off, stopped):
        peer.clock.turn(1_000_000)
        assert (peer.pings, peer.lost) == ([], 0)

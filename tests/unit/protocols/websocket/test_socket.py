import pytest
from tests.unit.protocols.websocket.connections import FakeConnection

from penstock.protocols.websocket.socket import GRACE_MS, QUEUE_BYTES, QUEUE_MAX, IdleWatch, Socket
from penstock.testing.clock import ManualClock, settle


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


async def test_what_is_queued_in_a_turn_is_one_write_within_bounds() -> None:
    connection = FakeConnection()
    socket = Socket(connection, ManualClock(), 0)
    socket.queue(b"1")
    socket.queue(b"2")
    socket.queue(b"3")
    assert connection.writes == []
    await settle()
    assert connection.writes == [[b"1", b"2", b"3"]]
    socket.queue(b"4")
    await socket.send_all([b"5"])  # in their order
    assert connection.writes[1:] == [[b"4", b"5"]]
    for number in range(QUEUE_MAX + 1):
        socket.queue(b"%d" % number)
    socket.queue(b"x" * QUEUE_BYTES)
    assert [len(write) for write in connection.writes[2:]] == [QUEUE_MAX, 2]
    await settle()
    assert len(connection.writes) == 4


async def test_what_is_queued_is_written_before_the_close_frame() -> None:
    connection = FakeConnection()
    socket = Socket(connection, ManualClock(), 0)

    async def read() -> None:
        socket.queue(b"last")
        socket.stop(1001, "because")

    await socket.run(read())
    assert (connection.writes, connection.closed) == ([[b"last"]], None), "the consumer has not left yet"
    socket.finish()
    assert connection.closed == (1001, "because")


async def test_a_consumer_that_is_slow_to_leave_does_not_keep_its_peer() -> None:
    connection, clock = FakeConnection(), ManualClock()
    socket = Socket(connection, clock, 0)

    async def read() -> None:
        socket.stop(1001, "because")

    await socket.run(read())
    clock.turn(GRACE_MS - 1)
    assert connection.closed is None
    clock.turn(1)
    assert connection.closed == (1001, "because")

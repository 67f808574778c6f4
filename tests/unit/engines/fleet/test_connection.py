"""A connection to another process: which bytes are an answer, and when another request may follow."""

import asyncio

import pytest

from penstock.engines.fleet.connection import HIGH_BYTES, Answer, Connection, ConnectionCutError
from penstock.runtime.tasks import Tasks

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
OK = HEAD % 2 + b"ok"


class Wire(asyncio.Transport):
    """The other end of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.aborted = self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def connected() -> tuple[Connection, Wire]:
    connection, wire = Connection(Tasks()), Wire()
    connection.connection_made(wire)
    return connection, wire


async def ask(connection: Connection, answer: bytes) -> Answer:
    """The answer to a request, which comes in one piece."""
    asyncio.get_running_loop().call_soon(connection.data_received, answer)
    return await connection.send(b"GET", b"/", [], b"")


@pytest.mark.parametrize("more", [OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"HTT", b"x"])
async def test_what_follows_an_answer_is_no_answer(more: bytes) -> None:
    """A request that was taken for two has two answers: the second one is not that of the next request."""
    for at_once in (True, False):
        connection, wire = connected()
        answer = await ask(connection, OK + more if at_once else OK)
        if not at_once:
            connection.data_received(more)
        assert (answer.status, await answer.part(), await answer.part()) == (200, b"ok", b"")
        assert connection.closed
        assert wire.aborted
        with pytest.raises(ConnectionCutError):
            await connection.send(b"GET", b"/", [], b"")


async def test_a_connection_that_is_not_read_is_not_used_again() -> None:
    """An answer larger than what is received ahead, that nobody took."""
    connection, wire = connected()
    size = HIGH_BYTES + 1
    answer = await ask(connection, HEAD % size + b"x" * size)
    assert wire.paused
    assert answer.complete
    assert not answer.reusable
    assert len(await answer.part()) == size
    assert not wire.paused
    assert answer.reusable
    connection, wire = connected()
    answer = await ask(connection, OK)
    assert not answer.reusable  # small, and not taken
    connection.pause_reading()
    assert (await ask(connection, OK)).status == 200
    assert not wire.paused


async def test_a_connection_that_was_closed_before_it_was_made() -> None:
    connection, wire = Connection(Tasks()), Wire()
    connection.close()
    with pytest.raises(ConnectionCutError):
        await connection.send(b"GET", b"/", [], b"")
    connection.connection_made(wire)
    assert wire.aborted

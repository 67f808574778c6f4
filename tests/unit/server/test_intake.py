"""Messages of a WebSocket between its parser and its endpoint: handed over at once, and not read for ever."""

import asyncio
from typing import Any, cast

from penstock.protocols.holding import Holding
from penstock.protocols.load import Load
from penstock.server.intake import AHEAD_BYTES, PARTIAL_BYTES_FREE, Intake
from penstock.testing.clock import settle
from penstock.wire.websocket.parser import FrameParser


def frame(payload: bytes, *, opcode: int = 1) -> bytes:
    """A client's frame, masked with nothing."""
    return bytes([0x80 | opcode, 0xFF]) + len(payload).to_bytes(8, "big") + bytes(4) + payload


class Transport:
    def __init__(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False


class Bench:
    def __init__(self, bytes_max: int = 1 << 30) -> None:
        self.load = Load(10, 10, bytes_max)
        self.transport = Transport()
        self.intake = Intake(FrameParser(1 << 24), cast(Any, self.transport), Holding(self.load, "127.0.0.1"))


async def test_all_that_waits_is_taken_at_once() -> None:
    intake = Bench().intake
    intake.feed(frame(b"1") + frame(b"2"))
    intake.feed(frame(b"3")[:-1])
    intake.feed(frame(b"3")[-1:] + frame(b"binary", opcode=2))
    assert await intake.take() == [b"1", b"2", b"3"]


async def test_who_waits_is_woken_by_a_message_and_by_the_end() -> None:
    intake = Bench().intake
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(intake.take())
        await settle()
        intake.feed(frame(b"binary", opcode=2))
        await settle()
        assert not taking.done()
        intake.feed(frame(b"1"))
        assert await taking == [b"1"]
        taking = group.create_task(intake.take())
        await settle()
        intake.end()
        assert await taking == []


async def test_what_came_before_the_end_is_taken_and_nothing_after() -> None:
    intake = Bench().intake
    intake.feed(frame(b"1"))
    intake.end()
    intake.feed(frame(b"2"))
    assert await intake.take() == [b"1"]
    assert await intake.take() == []


async def test_no_more_is_read_than_the_endpoint_takes() -> None:
    bench = Bench()
    bench.intake.feed(frame(b"a" * (AHEAD_BYTES // 2)))
    assert bench.transport.reading
    bench.intake.feed(frame(b"a" * (AHEAD_BYTES // 2)))
    bench.intake.feed(frame(b"a"))  # it was there already
    assert not bench.transport.reading
    assert bench.load.held > AHEAD_BYTES
    await bench.intake.take()
    assert bench.transport.reading
    assert bench.load.held == 0


async def test_the_end_reads_on() -> None:
    bench = Bench()
    bench.intake.feed(frame(b"a" * (AHEAD_BYTES + 1)))
    assert not bench.transport.reading
    bench.intake.end()  # the peer's close frame is to come
    assert bench.transport.reading


async def test_parts_of_a_message_count_until_they_are_dropped() -> None:
    bench = Bench()
    bench.intake.feed(frame(b"a" * 100_000)[: PARTIAL_BYTES_FREE - 1])
    assert bench.load.held == 0
    bench.intake.feed(bytes(2))
    assert bench.load.held == PARTIAL_BYTES_FREE + 1
    bench.intake.drop()
    assert bench.load.held == 0


async def test_beyond_its_share_it_is_held_back_and_far_beyond_refused() -> None:
    bench = Bench(bytes_max=1_000_000)
    share = Holding(bench.load, "127.0.0.1")
    share.receive(770_000)
    bench.intake.feed(frame(b"a" * 100_000)[:20_000])
    assert not bench.transport.reading
    assert bench.intake.refusal is None
    share.receive(100_000)
    bench.intake.feed(bytes(10))
    assert bench.intake.refusal is not None
    assert "limits.max_bytes_in_flight" in bench.intake.refusal


async def test_a_message_has_to_go_on_coming() -> None:
    intake = Bench().intake
    whole = frame(b"a" * 100_000)
    intake.feed(whole[:1000])
    assert not intake.late(1000.0, 10.0, 100)  # it has begun just now
    intake.feed(whole[1000:2000])
    assert not intake.late(1010.0, 10.0, 100)  # just fast enough
    intake.feed(whole[2000:2010])
    assert intake.late(1020.0, 10.0, 100)


async def test_another_message_begins_anew() -> None:
    intake = Bench().intake
    whole = frame(b"a" * 100)
    intake.feed(whole[:50])
    assert not intake.late(0.0, 10.0, 100)
    intake.feed(whole[50:] + whole[:50])
    assert not intake.late(20.0, 10.0, 100)
    assert intake.late(30.0, 10.0, 100)

"""A frame that has begun has to come to its end, at a pace."""

from penstock.protocols.binary.connection import FramePace
from penstock.protocols.limits import Limits
from penstock.wire.frames import FrameDecoder

LIMITS = Limits(body_ms=1000, min_bytes_per_s=10)
HEAD = (1000).to_bytes(4, "big")


def begun() -> FrameDecoder:
    decoder = FrameDecoder(10_000)
    assert list(decoder.feed(HEAD)) == []
    return decoder


def test_a_frame_that_comes_fast_enough() -> None:
    decoder, pace = begun(), FramePace(LIMITS)
    for now in range(0, 10_000, 1000):
        assert pace.check(decoder, now, held_up=False) == ""
        list(decoder.feed(bytes(10)))


def test_a_frame_that_does_not() -> None:
    decoder, pace = begun(), FramePace(LIMITS)
    assert pace.check(decoder, 0, held_up=False) == ""
    list(decoder.feed(bytes(9)))
    assert pace.check(decoder, 999, held_up=False) == ""
    assert "body_ms = 1000 ms" in pace.check(decoder, 1000, held_up=False)


def test_time_in_which_nothing_is_read_does_not_count() -> None:
    decoder, pace = begun(), FramePace(LIMITS)
    assert pace.check(decoder, 0, held_up=False) == ""
    assert pace.check(decoder, 5000, held_up=True) == ""
    assert pace.check(decoder, 5999, held_up=False) == ""
    assert pace.check(decoder, 6000, held_up=False)


def test_no_frame_has_begun() -> None:
    decoder, pace = FrameDecoder(10_000), FramePace(LIMITS)
    for now in (0, 5000, 10_000):
        assert pace.check(decoder, now, held_up=False) == ""

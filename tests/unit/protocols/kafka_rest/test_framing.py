"""Frames, theirs and ours."""

import gzip
import struct
import zlib
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.kafka_rest.framing import Budget, parse, payloads_in, render


def budget(bytes_max: int = 1 << 20, messages_max: int = 100) -> Budget:
    return Budget(bytes_max, messages_max)


def frame(payload: bytes, *, attributes: int = 0, crc: int | None = None) -> bytes:
    crc = crc32(payload) if crc is None else crc
    return struct.pack(">IBBI", 6 + len(payload), 1, attributes, crc) + payload


def test_a_frame_is_as_documented() -> None:
    frames, starts = render([b"hello", b""], 100)
    assert frames == bytes.fromhex("0000000b 01 00 3610a686") + b"hello" + bytes.fromhex(
        "00000006 01 00 00000000"
    )
    assert list(starts) == [100, 115]


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_what_is_rendered_is_parsed(payloads: list[bytes]) -> None:
    frames, starts = render(payloads)
    assert payloads_in(frames) == parse(frames, budget()) == payloads
    assert len(starts) == len(payloads)


def test_magic_0_has_no_attributes() -> None:
    old = struct.pack(">IBI", 5 + 3, 0, crc32(b"abc")) + b"abc"
    assert parse(old, budget()) == [b"abc"]


def test_a_gzip_set_is_opened_once() -> None:
    inner = frame(b"a") + frame(b"b")
    assert parse(frame(gzip.compress(inner), attributes=1), budget()) == [b"a", b"b"]
    deeper = frame(gzip.compress(frame(gzip.compress(inner), attributes=1)), attributes=1)
    with pytest.raises(PenstockError, match="once"):
        parse(deeper, budget())


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\0", ErrorKind.BAD_MESSAGE),
        (b"\0\0\0\0", ErrorKind.BAD_MESSAGE),
        (b"\0\0\0\5\1\0\0\0\0", ErrorKind.BAD_MESSAGE),
        (b"\xff\xff\xff\xff" + bytes(20), ErrorKind.BAD_MESSAGE),
        (frame(b"abc")[:-1], ErrorKind.BAD_MESSAGE),
        (frame(b"abc") + b"\0\0", ErrorKind.BAD_MESSAGE),
        (frame(b"abc", crc=1), ErrorKind.CHECKSUM),
        (frame(b"abc", attributes=2), ErrorKind.BAD_MESSAGE),
        (b"\0\0\0\x09\x02\0\0\0\0\0abc", ErrorKind.BAD_MESSAGE),
        (frame(b"no gzip", attributes=1), ErrorKind.BAD_ENCODING),
    ],
)
def test_bad_frames_are_told(data: bytes, kind: ErrorKind) -> None:
    with pytest.raises(PenstockError) as caught:
        parse(data, budget())
    assert caught.value.kind is kind


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    try:
        parse(data, budget())
    except PenstockError:
        pass


def test_messages_are_counted_before_they_are_many() -> None:
    with pytest.raises(PenstockError) as caught:
        parse(frame(b"") * 11, budget(messages_max=10))
    assert caught.value.kind is ErrorKind.TOO_LARGE


def test_gzip_is_held_to_a_size_and_a_ratio() -> None:
    assert budget().gunzip(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    assert len(budget().gunzip(gzip.compress(bytes(60_000)))) == 60_000
    for bomb, limit in ((gzip.compress(bytes(900_000)), 1 << 20), (gzip.compress(bytes(2000)), 1999)):
        with pytest.raises(PenstockError) as caught:
            budget(limit).gunzip(bomb)
        assert caught.value.kind is ErrorKind.TOO_LARGE
    one = budget(100)
    one.gunzip(gzip.compress(bytes(60)))
    with pytest.raises(PenstockError):  # all of a request's streams together
        one.gunzip(gzip.compress(bytes(60)))


def test_what_was_compressed_counts_by_how_much_it_grew() -> None:
    one, packed, frames = budget(), gzip.compress(bytes(60)), frame(b"a" * 90)
    assert one.unfold("gzip", packed) == bytes(60)
    assert one.unfold("identity", packed) == packed
    assert one.grown == 60 - len(packed)
    one.gunzip(gzip.compress(frames))
    assert one.grown == 60 - len(packed) + len(frames) - len(gzip.compress(frames))


def test_the_bound_is_told_not_what_is_left_of_it() -> None:
    one = budget(100)
    one.unfold("deflate", zlib.compress(bytes(60)))
    for unfold in (
        lambda: one.gunzip(gzip.compress(bytes(60))),
        lambda: one.unfold("gzip", gzip.compress(bytes(60))),
        lambda: one.unfold("deflate", zlib.compress(bytes(60))),
    ):
        with pytest.raises(PenstockError, match="more than is taken: 100 bytes in a request"):
            unfold()


@pytest.mark.parametrize("data", [b"", b"plain", gzip.compress(b"abc")[:-3], gzip.compress(b"abc") + b"x"])
def test_broken_gzip_is_told(data: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        budget().gunzip(data)
    assert caught.value.kind is ErrorKind.BAD_ENCODING

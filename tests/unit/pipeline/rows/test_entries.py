import struct
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.rows.entries import Frame, read_frames


def stream(frames: list[Frame]) -> bytes:
    return b"".join(struct.pack(">QIQI", f.offset, f.count, f.entry_id, len(f.data)) + f.data for f in frames)


def by(data: bytes, size: int) -> Callable[[int], bytes]:
    source = BytesIO(data)
    return lambda n: source.read(min(n, size))


frames = st.lists(
    st.builds(Frame, st.integers(0, 2**62), st.integers(1, 9), st.integers(0, 9), st.binary(max_size=99))
)


@given(frames, st.integers(1, 300))
def test_frames_come_out_as_they_went_in(several: list[Frame], size: int) -> None:
    assert list(read_frames(by(stream(several), size))) == several


def test_a_frame_without_messages_names_the_ledger() -> None:
    sent = [
        Frame(0, 0, 7, b""),
        Frame(0, 2, 0, b"a"),
        Frame(2, 1, 1, b"b"),
        Frame(3, 0, 9, b""),
        Frame(3, 1, 0, b"c"),
    ]
    found = [(frame.ledger, frame.entry_id, frame.data) for frame in read_frames(by(stream(sent), 30))]
    assert found == [(7, 0, b"a"), (7, 1, b"b"), (9, 0, b"c")]


@given(frames.filter(bool), st.integers(1, 300), st.data())
def test_a_stream_cut_short_is_an_error_after_its_whole_frames(
    several: list[Frame], size: int, data: st.DataObject
) -> None:
    whole = stream(several)
    cut = data.draw(st.integers(len(whole) - 23 - len(several[-1].data), len(whole) - 1))
    found = read_frames(by(whole[:cut], size))
    assert [next(found) for _ in several[:-1]] == several[:-1]
    with pytest.raises(EOFError):
        next(found)


@pytest.mark.parametrize(
    "head",
    [
        struct.pack(">QIQI", 0, 0, 0, 1),
        struct.pack(">QIQI", 0, 1, 0, 2**31),
        struct.pack(">QIQI", 2**63 - 1, 1, 0, 0),
        struct.pack(">QIQI", 2**64 - 1, 1, 0, 0),
        struct.pack(">QIQI", 0, 3 << 30 | 1, 0, 0),
    ],
)
def test_what_is_no_frame_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match="not a stream of entries"):
        list(read_frames(by(head, 99)))

"""The parser against the one of the `websockets` library, and frames as RFC 6455 draws them."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import OPEN, Protocol, Side

from penstock.wire.websocket.encoder import encode_close, encode_control, encode_texts
from penstock.wire.websocket.parser import CLOSE, PING, PONG, Closing, FrameParser

BYTES_MAX = 70_000


def client_frame(
    opcode: int, payload: bytes, *, fin: bool = True, reserved: int = 0, mask: bytes = b"\x01\x80\xff\x00"
) -> bytes:
    """A frame as a client sends it, masked by hand."""
    size = len(payload)
    head = bytes([(0x80 if fin else 0) | reserved << 4 | opcode])
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


def fed(parser: FrameParser, pieces: Sequence[bytes]) -> tuple[list[bytes], list[tuple[int, bytes]]]:
    texts: list[bytes] = []
    for piece in pieces:
        texts += parser.feed(piece)
    return texts, [tuple(one) for one in parser.controls]


def by_library(
    pieces: Sequence[bytes], deflate: PerMessageDeflate | None = None
) -> tuple[list[bytes], list[tuple[int, bytes]], int | None]:
    """Texts, pings and pongs, and the code that the connection is closed with: by the `websockets` library."""
    protocol = Protocol(Side.SERVER, state=OPEN, max_size=BYTES_MAX)
    protocol.extensions = [] if deflate is None else [deflate]
    texts: list[bytes] = []
    controls: list[tuple[int, bytes]] = []
    message = b""
    is_text = False
    for piece in pieces:
        if protocol.parser_exc is None and protocol.close_rcvd is None:
            protocol.receive_data(piece)
        for event in protocol.events_received():
            assert isinstance(event, Frame)
            if event.opcode in (Opcode.PING, Opcode.PONG):
                controls.append((int(event.opcode), bytes(event.data)))
                continue
            if event.opcode is Opcode.CLOSE:
                continue
            if event.opcode is not Opcode.CONT:
                message, is_text = b"", event.opcode is Opcode.TEXT
            message += bytes(event.data)
            if event.fin and is_text:
                try:
                    message.decode()
                except UnicodeDecodeError:
                    return texts, controls, 1007
                texts.append(message)
    closed = protocol.close_rcvd or protocol.close_sent
    return texts, controls, None if closed is None else closed.code


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({at % (len(data) + 1) for at in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


payloads = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=40).map(str.encode),
    st.sampled_from(
        [b"", b"a" * 125, b"a" * 126, b"a" * 65_535, b"a" * 65_536, b"a" * BYTES_MAX, b"\xff" * 200]
    ),
)
masks = st.binary(min_size=4, max_size=4)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message in one frame or several, with pings between them."""
    payload = draw(payloads)
    opcode = draw(st.sampled_from([1, 1, 1, 2]))
    count = draw(st.integers(1, 4))
    step = len(payload) // count + 1
    parts = [payload[at : at + step] for at in range(0, count * step, step)]
    out = b""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        out += client_frame(0 if number else opcode, part, fin=last, mask=draw(masks))
        if draw(st.booleans()):
            out += client_frame(
                draw(st.sampled_from([9, 10])), draw(st.binary(max_size=125)), mask=draw(masks)
            )
    return out


odd_frames = st.builds(
    client_frame,
    st.integers(0, 15),
    payloads,
    fin=st.booleans(),
    reserved=st.sampled_from([0, 0, 0, 0, 1, 2, 4]),
    mask=masks,
)
closes = st.one_of(
    st.binary(max_size=5),
    st.builds(
        lambda code, text: code.to_bytes(2, "big") + text.encode(), st.integers(0, 6000), st.text(max_size=20)
    ),
).map(lambda payload: client_frame(8, payload))
cuttings = st.lists(st.integers(0, 100_000), max_size=12)


@given(st.lists(messages(), max_size=6), cuttings)
@example(
    [client_frame(1, b"a" * 200), client_frame(1, b"b")], [10, 209]
)  # the second is known of by one byte
def test_messages_are_the_same_as_the_library_reads(sent: list[bytes], cuts: list[int]) -> None:
    pieces = cut(b"".join(sent), cuts)
    parser = FrameParser(BYTES_MAX)
    texts, controls = fed(parser, pieces)
    wanted_texts, wanted_controls, code = by_library(pieces)
    assert texts == wanted_texts
    assert (None if parser.failure is None else parser.failure.code) == code
    if code is None:
        assert controls == wanted_controls
        assert parser.pending == 0


@given(st.lists(messages(), max_size=2), st.one_of(odd_frames, closes), cuttings)
@example([], client_frame(8, b"\x03\xe8"), [])
@example([], client_frame(8, b"\x03\xe8\xff"), [])
@example([], client_frame(1, b"", fin=False) + client_frame(1, b""), [])
@example([], client_frame(0, b""), [1])
def test_what_is_refused_is_refused_with_the_same_code(
    sent: list[bytes], last: bytes, cuts: list[int]
) -> None:
    pieces = cut(b"".join([*sent, last]), cuts)
    parser = FrameParser(BYTES_MAX)
    texts, _ = fed(parser, pieces)
    wanted_texts, _, code = by_library(pieces)
    assert texts == wanted_texts
    found = parser.failure or parser.close
    assert (None if found is None else found.code) == code
    assert (code is None) == (not parser.ended)


def deflate() -> PerMessageDeflate:
    return PerMessageDeflate(False, False, 12, 12, {"memLevel": 5})


@given(st.lists(st.tuples(st.text(max_size=300), st.booleans()), max_size=5), cuttings)
def test_compressed_messages(texts: list[tuple[str, bool]], cuts: list[int]) -> None:
    out, sender = b"", deflate()
    for text, compressed in texts:
        if compressed:
            frame = sender.encode(Frame(Opcode.TEXT, text.encode()))
            content = bytes(frame.data)
            out += client_frame(1, content[:3], fin=False, reserved=4) + client_frame(0, content[3:])
        else:
            out += client_frame(1, text.encode())
    parser = FrameParser(BYTES_MAX, deflate())
    assert fed(parser, cut(out, cuts))[0] == [text.encode() for text, _ in texts]
    assert not parser.ended


def test_a_message_that_is_too_large_once_it_is_inflated() -> None:
    bomb = bytes(deflate().encode(Frame(Opcode.TEXT, b"a" * (BYTES_MAX + 1))).data)
    assert len(bomb) < 1000
    for frames in (
        client_frame(1, bomb, reserved=4),
        client_frame(1, bomb[:20], fin=False, reserved=4) + client_frame(0, bomb[20:]),
    ):
        parser = FrameParser(BYTES_MAX, deflate())
        assert parser.feed(frames) == []
        assert parser.failure == Closing(1009, f"a message of more than {BYTES_MAX} bytes")


def test_what_cannot_be_inflated() -> None:
    parser = FrameParser(BYTES_MAX, deflate())
    assert parser.feed(client_frame(1, b"\xff\xff\xff", reserved=4)) == []
    assert parser.failure is not None
    assert parser.failure.code == 1002


def test_a_frame_is_refused_before_it_is_there() -> None:
    for head, code in {
        b"\x81\xff" + (BYTES_MAX + 1).to_bytes(8, "big"): 1009,
        b"\x81\xff" + (1 << 63).to_bytes(8, "big"): 1009,
        b"\x81\x05": 1002,  # not masked
        b"\x83\x80": 1002,
        b"\x89\xfe": 1002,
        b"\xc1\x80": 1002,  # compressed, and that was not agreed on
    }.items():
        parser = FrameParser(BYTES_MAX)
        assert parser.feed(head) == []
        assert parser.failure is not None
        assert parser.failure.code == code, head


def test_a_message_in_fragments_is_bounded_as_a_whole() -> None:
    parser = FrameParser(100)
    assert parser.feed(client_frame(1, b"a" * 60, fin=False)) == []
    assert parser.pending == 60
    assert parser.feed(client_frame(0, b"a" * 41)) == []
    assert parser.failure == Closing(1009, "a message of more than 100 bytes")
    assert parser.pending == 0


def test_many_small_fragments_are_refused() -> None:
    parser = FrameParser(BYTES_MAX)
    parser.feed(client_frame(1, b"a", fin=False) + client_frame(0, b"a", fin=False) * 1000)
    assert parser.failure is None
    parser.feed(client_frame(0, b"a", fin=False))
    assert parser.failure == Closing(1008, "fragments of less than 64 bytes")


def test_messages_before_what_is_refused_come_still_and_nothing_after() -> None:
    parser = FrameParser(BYTES_MAX)
    sent = client_frame(1, b"first") + client_frame(3, b"") + client_frame(1, b"second")
    assert parser.feed(sent) == [b"first"]
    assert parser.feed(client_frame(1, b"third")) == []
    closed = FrameParser(BYTES_MAX)
    sent = client_frame(1, b"first") + client_frame(8, b"\x03\xe8bye") + client_frame(1, b"second")
    assert closed.feed(sent) == [b"first"]
    assert closed.close == Closing(1000, "bye")
    assert closed.feed(client_frame(1, b"third")) == []


def test_a_close_frame_between_fragments_is_one() -> None:
    parser = FrameParser(BYTES_MAX)
    assert parser.feed(client_frame(1, b"half", fin=False) + client_frame(8, b"")) == []
    assert parser.close == Closing(1005)
    assert parser.pending == 0


def test_which_message_is_not_complete() -> None:
    parser = FrameParser(BYTES_MAX)
    whole = client_frame(1, b"a" * 10)
    parser.feed(whole + whole + whole[:5])
    assert (parser.completed, parser.pending) == (2, 5)
    parser.feed(whole[5:] + client_frame(9, b""))
    assert (parser.completed, parser.pending) == (4, 0)
    parser.feed(client_frame(2, b"a", fin=False) + client_frame(9, b""))
    assert (parser.completed, parser.pending) == (4, 1)  # a ping between does not make it another
    parser.feed(client_frame(0, b"a"))
    assert (parser.completed, parser.pending) == (5, 0)


def read_by_client(data: bytes, extensions: Sequence[PerMessageDeflate] = ()) -> Iterator[tuple[int, bytes]]:
    """Frames as a client reads them, by the library."""
    protocol = Protocol(Side.CLIENT, state=OPEN, max_size=None)
    protocol.extensions = list(extensions)
    protocol.receive_data(data)
    assert protocol.parser_exc is None
    for event in protocol.events_received():
        assert isinstance(event, Frame)
        assert event.fin
        yield int(event.opcode), bytes(event.data)


@given(st.lists(st.binary(max_size=200), max_size=5))
@example([b"a" * size for size in (0, 125, 126, 2047, 2048, 65_535, 65_536)])
def test_texts_are_written_as_clients_read_them(payloads: list[bytes]) -> None:
    assert list(read_by_client(encode_texts(payloads))) == [(1, payload) for payload in payloads]
    compressed = encode_texts(payloads, deflate())
    assert list(read_by_client(compressed, [deflate()])) == [(1, payload) for payload in payloads]


def test_controls_are_written_as_clients_read_them() -> None:
    assert list(read_by_client(encode_control(PING, b"abcd"))) == [(PING, b"abcd")]
    assert list(read_by_client(encode_control(PONG, b"a" * 125))) == [(PONG, b"a" * 125)]
    assert list(read_by_client(encode_close(1001, "bye"))) == [(CLOSE, b"\x03\xe9bye")]
    assert list(read_by_client(encode_close(1005, ""))) == [(CLOSE, b"")]


def test_a_long_reason_is_cut_between_characters() -> None:
    ((_, payload),) = read_by_client(encode_close(1008, "ä" * 100))
    assert payload[2:].decode() == "ä" * 61


@pytest.mark.parametrize("content", ["ä", "\U0001f600", "a" * 300 + "ß"])
def test_texts_that_are_not_ascii(content: str) -> None:
    parser = FrameParser(BYTES_MAX)
    assert parser.feed(client_frame(1, content.encode())) == [content.encode()]
    parser.feed(client_frame(1, content.encode()[:-1]))
    assert parser.failure is not None
    assert parser.failure.code == 1007

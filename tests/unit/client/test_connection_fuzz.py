"""A broker that sends anything: the client's connection breaks with a reason, or goes on; it never raises."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.authentication import Authentication
from penstock.client.errors import PulsarException
from penstock.client.session.connection import Connection, Hello
from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnected, CommandError, CommandPing, CommandSuccess

_CONNECTED = encode(
    BaseCommand(
        type=BaseCommand.CONNECTED, connected=CommandConnected(server_version="x", protocol_version=20)
    )
)
_GOOD = st.sampled_from(
    [
        _CONNECTED,
        encode(BaseCommand(type=BaseCommand.PING, ping=CommandPing())),
        encode(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=1))),
        encode(BaseCommand(type=BaseCommand.ERROR, error=CommandError(request_id=1, error=0, message="no"))),
    ]
)


def _new() -> Connection:
    return Connection(Hello(Authentication()), now=0.0)


@given(st.lists(st.one_of(_GOOD, st.binary(max_size=60)), max_size=8), st.integers(1, 40))
def test_anything_in_any_pieces(parts: list[bytes], piece: int) -> None:
    connection = _new()
    data = b"".join(parts)
    for at in range(0, len(data), piece):
        connection.receive(data[at : at + piece], now=1.0)
        if connection.broken is not None:
            assert isinstance(connection.broken, PulsarException)
            assert str(connection.broken)
            break


@given(st.lists(_GOOD, min_size=1, max_size=6), st.data())
def test_one_bit_turned(parts: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(parts))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    connection = _new()
    connection.receive(bytes(whole), now=1.0)
    assert connection.broken is None or isinstance(connection.broken, PulsarException)


@given(st.lists(_GOOD, max_size=6), st.integers(1, 30))
def test_pieces_are_no_different_from_the_whole(parts: list[bytes], piece: int) -> None:
    stream = _CONNECTED + b"".join(p for p in parts if p != _CONNECTED)
    whole, cut = _new(), _new()
    events = [frame.command for frame in whole.receive(stream, now=1.0)]
    pieces = []
    for at in range(0, len(stream), piece):
        pieces += [frame.command for frame in cut.receive(stream[at : at + piece], now=1.0)]
    assert pieces == events
    assert cut.take() == whole.take()
    assert (cut.ready, cut.broken is None) == (whole.ready, whole.broken is None)

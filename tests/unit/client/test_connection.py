"""One connection, as a transcript: bytes in, commands out, time passed in."""

import pytest

from penstock.client.authentication import Authentication, AuthenticationToken
from penstock.client.errors import AuthenticationError, ReadError
from penstock.client.session.connection import Connection, Hello
from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandError, CommandPing, CommandSuccess

from .broker import connected, frames, said


def opened(now: float = 0.0, **options: object) -> Connection:
    connection = Connection(Hello(Authentication()), now)
    connection.take()
    connection.receive(connected(**options), now)  # type: ignore[arg-type]
    return connection


def test_it_greets_first() -> None:
    connection = Connection(Hello(AuthenticationToken("secret"), "broker:6650"), 0)
    (frame,) = frames(connection.take())
    connect = frame.command.connect

    assert (connect.auth_method_name, connect.auth_data) == ("token", b"secret")
    assert connect.proxy_to_broker_url == "broker:6650"
    assert connect.feature_flags.supports_request_reply
    assert not connection.ready
    assert connection.take() == []


def test_the_answer_tells_what_the_broker_can() -> None:
    connection = opened(replies=True, size=1000)

    assert connection.ready
    assert connection.supports_request_reply
    assert connection.max_message_size == 1000
    assert not opened(replies=False).supports_request_reply


def test_bytes_may_come_one_by_one() -> None:
    connection = Connection(Hello(Authentication()), 0)
    success = encode(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=5)))
    events = [event for byte in connected() + success for event in connection.receive(bytes([byte]), 1)]

    assert [event.command.success.request_id for event in events] == [5]


def test_a_refusal_breaks_it() -> None:
    connection = Connection(Hello(Authentication()), 0)
    error = CommandError(request_id=0, error=3, message="who are you?")  # type: ignore[arg-type]
    connection.receive(encode(BaseCommand(type=BaseCommand.ERROR, error=error)), 0)

    assert isinstance(connection.broken, AuthenticationError)
    assert str(connection.broken) == "who are you?"


def test_it_answers_pings_and_sends_its_own() -> None:
    connection = opened(now=0)
    connection.receive(encode(BaseCommand(type=BaseCommand.PING, ping=CommandPing())), 1)
    assert said(connection.take()) == ["PONG"]

    assert connection.tick(29) == 30
    assert connection.take() == []
    assert connection.tick(31) == 61
    assert said(connection.take()) == ["PING"]
    assert connection.broken is None
    connection.tick(61.5)
    assert isinstance(connection.broken, ReadError)


def test_it_answers_a_challenge_with_fresh_data() -> None:
    tokens = iter(("old", "new"))
    connection = Connection(Hello(AuthenticationToken(lambda: next(tokens))), 0)
    connection.take()
    command = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
    command.auth_challenge.challenge.auth_method_name = "token"
    connection.receive(connected() + encode(command), 0)
    (frame,) = frames(connection.take())

    assert frame.command.auth_response.response.auth_data == b"new"


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\5\0\0\0\x09abcde", b"\0\0\0\5\0\0\0\1\x08"])
def test_what_is_not_the_protocol_breaks_it(data: bytes) -> None:
    connection = opened()
    connection.receive(data, 0)

    assert isinstance(connection.broken, ReadError)


def test_what_came_before_the_nonsense_counts() -> None:
    connection = opened()
    success = encode(BaseCommand(type=BaseCommand.SUCCESS, success=CommandSuccess(request_id=5)))

    assert len(connection.receive(success + b"\xff\xff\xff\xff", 0)) == 1
    assert connection.broken is not None

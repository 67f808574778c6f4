"""Transcripts of the consumer endpoint: what a frame asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.producer import Reply
from penstock.model.message_id import EARLIEST, MessageId
from penstock.protocols.websocket.commands import (
    Acknowledge,
    Answering,
    AskEndOfTopic,
    Broken,
    Command,
    Negative,
    Permit,
    Seek,
    Unsubscribe,
    parse_command,
    parse_plain,
)

ID = MessageId(0, 3)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('{"messageId":"CAAQAw=="}', Acknowledge(ID)),
        ('{"type":null,"messageId":"CAAQAw=="}', Acknowledge(ID)),
        ('{"type":"acknowledge","messageId":"CAAQAw=="}', Acknowledge(ID)),
        ('{"type":"whatever","messageId":"CAAQAw==","extra":1}', Acknowledge(ID)),
        ('{"messageId":"CAAQAzAA"}', Acknowledge(ID)),  # Java writes a batch size of 0
        ('{"messageId":"CAAQAw==","ackType":"Individual"}', Acknowledge(ID)),
        ('{"messageId":"CAAQAw==","ackType":"Cumulative"}', Acknowledge(ID, cumulative=True)),
        ('{"type":"negativeAcknowledge","messageId":"CAAQAw=="}', Negative(ID)),
        ('{"type":"permit","permitMessages":100}', Permit(100)),
        ('{"type":"permit","permitMessages":"100"}', Permit(100)),
        ('{"type":"permit","permitMessages":-1}', Permit(-1)),
        ('{"type":"isEndOfTopic"}', AskEndOfTopic()),
        ('{"type":"unsubscribe"}', Unsubscribe()),
        ('{"type":"seek","messageId":"CAAQAw=="}', Seek(ID, 0)),
        ('{"type":"seek","messageId":"earliest"}', Seek(EARLIEST, 0)),
        ('{"type":"seek","timestamp":5}', Seek(None, 5)),
    ],
)
def test_commands(text: str, command: Command) -> None:
    assert parse_command(text.encode()) == (command, None)
    assert parse_command(text.encode()[:-1] + b',"context":7}') == (command, "7")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        "5",
        "[" * 100_000,
        '{"messageId":{}}',
        '{"type":"permit","permitMessages":"many"}',
        '{"type":"permit","permitMessages":99999999999999999999}',
    ],
)
def test_what_is_no_frame_has_no_context(text: str) -> None:
    command, context = parse_command(text.encode())
    assert isinstance(command, Broken)
    assert context is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{}", "messageId is missing"),
        ('{"messageId":null}', "messageId is missing"),
        ('{"messageId":"earliest"}', "messageId is missing"),
        ('{"messageId":"?"}', "invalid message id"),
        ('{"messageId":""}', "invalid message id"),
        ('{"messageId":"CAA="}', "invalid message id"),
        ('{"messageId":5}', "invalid message id"),
        ('{"messageId":"CAAQAw==","ackType":"x"}', "ackType"),
        ('{"type":"negativeAcknowledge"}', "messageId is missing"),
        ('{"type":"permit"}', "permitMessages is missing"),
        ('{"type":"seek"}', "either"),
        ('{"type":"seek","timestamp":-5}', "negative"),
        ('{"type":"seek","timestamp":5,"messageId":"CAAQAw=="}', "either"),
    ],
)
def test_what_is_no_command(text: str, error: str) -> None:
    command, context = parse_command(text.encode())
    assert isinstance(command, Broken)
    assert error in command.error
    assert context is None
    with_context = text[:-1] + (',"context":"c"}' if len(text) > 2 else '"context":"c"}')
    assert parse_command(with_context.encode())[1] == "c"


@pytest.mark.parametrize(
    "text",
    ['{"messageId":"%s"}', '{"messageId": "%s"}', '{ "messageId" : "%s" }', '{"a":1,"messageId":"%s"}'],
)
def test_an_id_that_was_given_out_is_known(text: str) -> None:
    known = {b"CAAQAw==": MessageId(7, 7)}  # another, to see where it comes from
    assert parse_command((text % "CAAQAw==").encode(), known) == (Acknowledge(MessageId(7, 7)), None)
    assert parse_command((text % "CAAQBA==").encode(), known) == (Acknowledge(MessageId(0, 4)), None)
    known.clear()
    assert parse_command((text % "CAAQAw==").encode(), known) == (Acknowledge(ID), None)


@pytest.mark.parametrize(
    "text",
    [
        '"messageId":"CAAQAw=="',
        '{"messageId""CAAQAw=="}',
        '{"messageId"::"CAAQAw=="}',
        '{"messageId":"CAAQAw=="}}',
        '{"messageId":"CAAQAw==}',
        '{"messageid":"CAAQAw=="}',
        '["messageId":"CAAQAw=="}',
    ],
)
def test_an_id_that_was_given_out_makes_no_frame_valid(text: str) -> None:
    command, _ = parse_command(text.encode(), {b"CAAQAw==": MessageId(7, 7)})
    assert isinstance(command, Broken)


KNOWN = b"CAAQAw=="
PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b'"',
        b":",
        b",",
        b" ",
        b"\\",
        b"messageId",
        b"replyContent",
        b'"messageId":"CAAQAw=="',
        b"MTIz",
    ]
)


@given(
    st.lists(PIECES, max_size=12).map(b"".join)
    | st.builds(
        lambda colon, comma, content: (
            b'{"messageId"%bCAAQAw=="%b"replyContent"%b%b"}' % (colon, comma, colon, content)
        ),
        st.sampled_from([b':"', b': "', b' : "', b'"']),
        st.sampled_from([b",", b", ", b"", b"}"]),
        st.sampled_from([b"MTIz", b"", b"MTI=", b"MTI", b"M", b"MT\\u0049z", b"\xff", b"MT Iz", b"MTI\n"]),
    )
)
def test_a_plain_frame_is_read_as_any_frame(frame: bytes) -> None:
    known = {KNOWN: ID}
    plain = parse_plain(frame, known)
    command, context = parse_command(frame)
    if isinstance(plain, Reply):
        assert command == Answering(plain.request_id, plain.content, plain.is_error, plain.schema_version)
    elif plain is not None:
        assert command == Acknowledge(plain)
    assert plain is None or context is None
    assert (KNOWN in known) == (plain is None)


@pytest.mark.parametrize("colon", [":", ": "])
def test_plain_frames(colon: str) -> None:
    answer = f'{{"messageId"{colon}"CAAQAw=="}}'.encode()
    reply = f'{{"messageId"{colon}"CAAQAw==","replyContent"{colon}"MTIz"}}'.encode()
    assert parse_plain(answer, {KNOWN: ID}) == ID
    assert parse_plain(reply, {KNOWN: ID}) == Reply(ID, b"123", False)
    assert parse_plain(answer, {}) is parse_plain(reply, {}) is None

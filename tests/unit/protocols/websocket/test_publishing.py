"""Transcripts of the producer endpoint: what a frame becomes, or how it is answered."""

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import EncryptionKey, OutMessage
from penstock.protocols.websocket.frames import (
    ProducerAck,
    decode_base64,
    encode,
    encode_success,
    encode_successes,
)
from penstock.protocols.websocket.publishing import Incoming, failure, read_frame, read_frames
from penstock.testing.clock import ManualClock

NOW = 1_700_000_000_000


def read(frame: Any) -> Incoming:
    """Read a frame, which is the same among others and alone."""
    text = (frame if isinstance(frame, str) else json.dumps(frame)).encode()
    alone = read_frame(text, arrived_ms=1, now_ms=NOW, properties_bytes_max=100)
    clock = ManualClock(now_ms=NOW)
    for texts in ([text], [b'{"payload":"","sequenceId":1}', text]):
        assert without_time(read_frames(texts, clock, properties_bytes_max=100)[-1]) == without_time(alone)
    return alone


def without_time(made: Incoming) -> Incoming:
    made.arrived_ms = 0
    return made


def message(frame: dict[str, Any]) -> OutMessage:
    made = read({"payload": "", **frame}).message
    assert made is not None
    return made


def answer(frame: Any) -> dict[str, Any]:
    made = read(frame)
    assert made.message is None
    decoded: dict[str, Any] = json.loads(made.answer)
    return decoded


def test_the_seed_documents_message() -> None:
    made = read(
        {
            "payload": "SGVsbG8gV29ybGQ=",
            "properties": {"key1": "value1", "key2": "value2"},
            "context": "1",
        }
    )
    assert made.message == OutMessage(payload=b"Hello World", properties={"key1": "value1", "key2": "value2"})
    assert made.context == "1"
    assert made.declared is None


def test_every_field() -> None:
    made = message(
        {
            "payload": "eA==",
            "key": "k",
            "replicationClusters": ["a"],
            "eventTime": "2018-11-26T14:22:59.817+01:00",
            "sequenceId": 7,
            "deliverAt": 5,
        }
    )
    assert made == OutMessage(
        payload=b"x",
        key="k",
        replicate_to=["a"],
        event_time=1_543_238_579_817,
        sequence_id=7,
        deliver_at=5,
    )


@pytest.mark.parametrize(
    ("given", "context"),
    [(5, "5"), ("x", "x"), (True, "true"), (False, "false"), (1.5, "1.5"), (None, None), ("null", "null")],
)
def test_a_context_is_echoed_as_text(given: Any, context: str | None) -> None:
    assert read({"payload": "", "context": given}).context == context


def test_scalars_are_taken_for_texts_and_texts_for_numbers() -> None:
    made = message({"key": 5, "properties": {"a": 1, "b": True}, "deliverAt": "7", "sequenceId": "3"})
    assert (made.key, made.properties, made.deliver_at, made.sequence_id) == (
        "5",
        {"a": "1", "b": "true"},
        7,
        3,
    )


def test_java_clients_write_every_field() -> None:
    frame = {
        "payload": "eA==",
        "properties": None,
        "context": "1",
        "key": None,
        "replicationClusters": None,
        "eventTime": None,
        "sequenceId": 0,
        "disableReplication": False,
        "deliverAt": 0,
        "deliverAfterMs": 0,
        "schemaVersion": 0,
        "keySchema": None,
        "valueSchema": None,
        "encryptionParam": None,
        "compressionType": None,
        "uncompressedMessageSize": 0,
        "orderingKey": "unknown fields are ignored",
    }
    made = read(frame)
    assert made.message == OutMessage(payload=b"x")
    assert made.declared is None


def test_a_zero_that_was_meant_counts() -> None:
    assert message({"sequenceId": 0}).sequence_id == 0
    declared = read({"payload": "", "schemaVersion": 0}).declared
    assert declared is not None
    assert declared.schema_version == 0


def test_delays() -> None:
    assert message({"deliverAfterMs": 10}).deliver_at == NOW + 10
    assert message({"deliverAfterMs": 10, "deliverAt": 5}).deliver_at == NOW + 10
    assert message({"deliverAfterMs": -10, "deliverAt": -5}).deliver_at == 0
    assert message({"deliverAfterMs": 2**63 - 1}).deliver_at == 2**63 - 1


def test_replication_switched_off() -> None:
    assert message({"disableReplication": True}).replicate_to == ["__local__"]


def test_padding_may_be_missing_as_in_java() -> None:
    assert message({"payload": "SGVsbG8"}).payload == b"Hello"


def test_schemas_are_declared() -> None:
    declared = read(
        {"payload": "", "valueSchema": {"type": "STRING"}, "keySchema": '{"type":"INT32"}'}
    ).declared
    assert declared is not None
    assert declared.value_schema == {"type": "STRING"}
    assert declared.key_schema == '{"type":"INT32"}'
    assert read({"payload": "", "schemaVersion": -1}).declared is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '"x"',
        '{"payload":""} {}',
        '{"payload":{}}',
        '{"context":[]}',
        '{"properties":[]}',
        '{"properties":{"a":{}}}',
        '{"sequenceId":9223372036854775808}',
        '{"deliverAt":"x"}',
        '{"replicationClusters":"a"}',
        '{"key":"\\ud800"}',
        '{"valueSchema":5}',
        "[" * 100_000,
    ],
)
def test_what_is_no_frame(text: str) -> None:
    body = answer(text)
    assert body["result"] == "send-error:3"
    assert body["errorMsg"]
    assert "context" not in body


@pytest.mark.parametrize(
    ("frame", "result", "text"),
    [
        ({}, 7, "Invalid Base64 message-payload error="),
        ({"payload": None}, 7, "Invalid Base64 message-payload error="),
        ({"payload": "?"}, 7, "Invalid Base64 message-payload error="),
        ({"payload": "SGVs bG8="}, 7, "Invalid Base64"),
        ({"payload": "SGVsbG8=="}, 7, "Invalid Base64"),
        ({"payload": "é"}, 7, "Invalid Base64"),
        ({"payload": "", "eventTime": "2018-11-26"}, 7, "Invalid eventTime"),
        ({"payload": "", "eventTime": "2018-11-26T14:22:59"}, 7, "Invalid eventTime"),
        ({"payload": "", "eventTime": "2018-13-26T14:22:59Z"}, 7, "Invalid eventTime"),
        ({"payload": "", "eventTime": "1969-11-26T14:22:59Z"}, 7, "1970"),
        ({"payload": "", "eventTime": 5}, 7, "Invalid eventTime"),
        ({"payload": "", "sequenceId": -1}, 7, "sequenceId"),
        ({"payload": "", "properties": {"a": None}}, 3, "property 'a' is null"),
        ({"payload": "", "properties": {"a": "x" * 100}}, 8, "the most is 100"),
    ],
)
def test_what_cannot_be_published(frame: dict[str, Any], result: int, text: str) -> None:
    body = answer({**frame, "context": "c"})
    assert body["result"] == f"send-error:{result}"
    assert text in body["errorMsg"]
    assert body["context"] == "c"


@given(
    st.sampled_from([b"CAAQAw==", b"CAAQAAA="]),
    st.none() | st.text(),
    st.none() | st.integers(0, 2**63 - 1),
)
@example(b"CAAQAw==", "1", None)
@example(b"CAAQAw==", None, 2)
@example(b"CAAQAw==", '"\\\u2028\x00é', None)
def test_answers_of_what_was_published(
    message_id: bytes, context: str | None, schema_version: int | None
) -> None:
    written = encode_success(message_id, context, schema_version)
    whole = ProducerAck("ok", message_id=message_id.decode(), schema_version=schema_version or 0)
    if context is not None:
        whole.context = context
    assert written == encode(whole)
    if not schema_version:
        assert encode_successes([message_id] * 2, [context, None]) == [
            written,
            encode_success(message_id, None, None),
        ]


@pytest.mark.parametrize(
    ("more", "plain"),
    [
        ({}, True),
        ({"context": "c", "properties": {}}, True),
        (
            {"properties": None, "deliverAt": 0, "sequenceId": 0, "requestTimeoutMillis": 0},
            True,
        ),  # Java's fillers
        ({"key": ""}, False),
        ({"properties": {"a": "b"}}, False),
        ({"sequenceId": 0}, False),
        ({"eventTime": "2024-01-01T00:00:00Z"}, False),
        ({"deliverAt": 1}, False),
        ({"deliverAfterMs": 1}, False),
        ({"disableReplication": True}, False),
        ({"schemaVersion": 0}, False),
        ({"valueSchema": "STRING"}, False),
        ({"requestTimeoutMillis": 1}, False),
    ],
)
def test_what_is_nothing_but_a_payload(more: dict[str, Any], plain: bool) -> None:
    assert read({"payload": "QQ==", **more}).plain is plain


def test_what_is_encrypted_or_bad_is_more_than_a_payload() -> None:
    key = EncryptionKey("k", b"v")
    frame = {"payload": "QQ==", "encryptionParam": "QQ=="}
    (made,) = read_frames(
        [json.dumps(frame).encode()], ManualClock(now_ms=NOW), properties_bytes_max=100, keys=(key,)
    )
    assert made.message is not None
    assert not made.plain
    assert not read({"payload": "?"}).plain


@given(
    st.binary(max_size=20).map(lambda data: b64encode(data).decode())
    | st.text(alphabet="ABQRgw+/=-_ \n\r.é", max_size=9)
    | st.text(max_size=5)
)
@example("SGVsbG8")
@example("QR==")
def test_a_payload_is_read_as_javas_decoder_does(text: str) -> None:
    (made,) = read_frames(
        [json.dumps({"payload": text}).encode()], ManualClock(now_ms=NOW), properties_bytes_max=100
    )
    try:
        wanted = decode_base64(text)
    except ValueError:
        assert made.message is None
        assert b"Invalid Base64" in made.answer
    else:
        assert made.message == OutMessage(payload=wanted)


@pytest.mark.parametrize("kind", ErrorKind)
def test_only_three_results_are_ever_told(kind: ErrorKind) -> None:
    body = json.loads(failure(PenstockError(kind, "why"), None))
    assert body["result"] in ("send-error:7", "send-error:8")
    assert body["errorMsg"] == "why"


@pytest.mark.parametrize("timeout", [3000, "3000", 0, -1, None, 2**63 - 1, 2**63, 1.5, "soon", True, [], {}])
def test_the_timeout_of_a_request_is_read_alike_alone_and_among_others(timeout: Any) -> None:
    made = read({"payload": "", "requestTimeoutMillis": timeout})
    if timeout in (3000, "3000"):
        assert made.timeout_ms == 3000

"""The frames of delivered messages, written by hand, are those of `ConsumerMessage`."""

from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, request_timeout_ms
from penstock.model.names import TopicName
from penstock.protocols.websocket.frames import ConsumerMessage, format_time
from penstock.protocols.websocket.messages import MessageWriter

TOPIC = TopicName.parse("t")
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(
    st.dictionaries(TEXT | st.just(REQUEST_TIMEOUT_PROPERTY), TEXT | st.integers(0).map(str), max_size=3),
    st.binary(max_size=20),
    TEXT,
    st.none() | st.integers(0, 9),
    st.booleans(),
)
@example({REQUEST_TIMEOUT_PROPERTY: "3000"}, b"?", "p", None, False)
@example({REQUEST_TIMEOUT_PROPERTY: "soon"}, b"?", "p", None, True)
@example({}, b"", "", 1, True)
def test_a_frame(
    properties: dict[str, str], payload: bytes, producer: str, version: int | None, names_topic: bool
) -> None:
    message = Message(
        payload=payload,
        properties=properties,
        publish_time=1_700_000_000_123,
        producer_name=producer,
        sequence_id=5,
        schema_version=version,
    )
    frame = MessageWriter(names_topic=names_topic).write(message, "CAAQAA==", TOPIC, 2)
    expected: dict[str, Any] = {
        "messageId": "CAAQAA==",
        "payload": msgspec.to_builtins(payload),
        "properties": properties,
        "publishTime": "2023-11-14T22:13:20.123Z",
        "redeliveryCount": 2,
        "sequenceId": 5,
    }
    expected |= {"topic": str(TOPIC)} if names_topic else {}
    expected |= {"producerName": producer} if producer else {}
    expected |= {} if version is None else {"schemaVersion": version}
    timeout_ms = request_timeout_ms(properties)
    if timeout_ms is not None:
        deadline = format_time(message.publish_time + timeout_ms)
        expected |= {"requestTimeoutMillis": timeout_ms, "requestDeadline": deadline}
    assert msgspec.json.decode(frame) == expected
    order = [field.encode_name for field in msgspec.structs.fields(ConsumerMessage)]
    assert [name for name in order if name in expected] == list(msgspec.json.decode(frame))

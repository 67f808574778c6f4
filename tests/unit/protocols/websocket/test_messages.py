"""Frames of delivered messages are those that the JSON encoder makes."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.model.message import Encryption, EncryptionKey, Message, request_timeout_ms
from penstock.model.names import TopicName
from penstock.protocols.websocket.delivery import MessageWriter
from penstock.protocols.websocket.encryption import context_of
from penstock.protocols.websocket.frames import ConsumerMessage, encode_base64, format_time, write

TEXT = st.text(max_size=20)
TIME = st.integers(-(2**63), 2**63 - 1)
TOPICS = [TopicName.parse("t"), TopicName.parse('persistent://a/b/gr\u00fc\u00df"e-partition-3')]

messages = st.builds(
    Message,
    payload=st.binary(max_size=50),
    key=st.none() | TEXT,
    properties=st.just({})
    | st.dictionaries(TEXT, TEXT, max_size=3)
    | st.just({"REQUEST_TIMEOUT_MILLIS": "5000"}),
    publish_time=st.integers(1_700_000_000_000, 1_700_000_000_003) | TIME,
    event_time=st.just(0) | TIME,
    producer_name=st.sampled_from(["p", "q", ""]) | TEXT,
    sequence_id=st.integers(0, 3) | TIME,
    schema_version=st.none() | st.integers(0, 3) | TIME,
    null_value=st.booleans(),
    encryption=st.none()
    | st.builds(
        Encryption,
        keys=st.builds(
            lambda name, value: (EncryptionKey(name, value, {name: name}),), TEXT, st.binary(max_size=9)
        ),
        param=st.binary(max_size=9),
        algorithm=TEXT,
        batch_size=st.integers(0, 2),
    ),
)


def expected(message: Message, message_id: str, topic: str | None, redeliveries: int) -> str:
    frame = ConsumerMessage(
        message_id=message_id,
        payload=encode_base64(message.payload),
        properties=message.properties,
        publish_time=format_time(message.publish_time),
        redelivery_count=redeliveries,
        event_time=format_time(message.event_time) if message.event_time else UNSET,
        key=UNSET if message.key is None else message.key,
        topic=UNSET if topic is None else topic,
        producer_name=message.producer_name or UNSET,
        sequence_id=message.sequence_id,
        schema_version=UNSET if message.schema_version is None else message.schema_version,
    )
    timeout_ms = request_timeout_ms(message.properties)
    if timeout_ms is not None:
        frame.request_timeout_millis = timeout_ms
        frame.request_deadline = format_time(message.publish_time + timeout_ms)
    if message.encryption is not None:
        frame.encryption_context = context_of(message.encryption)
    return write(frame)


@given(
    st.lists(st.tuples(messages, st.sampled_from(TOPICS), st.integers(0, 2)), min_size=1, max_size=6),
    st.booleans(),
)
def test_frames_are_as_the_encoder_makes_them(
    given_messages: list[tuple[Message, TopicName, int]], names_topic: bool
) -> None:
    writer = MessageWriter(names_topic=names_topic)
    for message, topic, redeliveries in given_messages:
        named = str(topic) if names_topic else None
        assert writer.write(message, b"CAAQAw==", topic, redeliveries).decode() == expected(
            message, "CAAQAw==", named, redeliveries
        )

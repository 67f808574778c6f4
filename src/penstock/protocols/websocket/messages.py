"""A delivered message as the JSON of its frame, `frames.ConsumerMessage`.

What repeats from message to message (the publish time, the producer, the topic) is written once; texts that may need escaping go
through the JSON encoder.
"""

from binascii import b2a_base64
from typing import Final

import msgspec
from msgspec import UNSET

from penstock.model.message import Message, request_timeout_ms
from penstock.model.names import TopicName

from .encryption import context_of
from .frames import ConsumerMessage, encode_base64, format_time

_encode: Final = msgspec.json.Encoder().encode


class MessageWriter:
    """Writes the frames of one consumer. `names_topic`: they say which topic (v3)."""

    def __init__(self, *, names_topic: bool) -> None:
        self._names_topic = names_topic
        # What a plain message has between its payload and its sequence id, and what that was made of.
        self._middle = b""
        self._made_of: tuple[int, int, str, TopicName] | None = None

    def write(self, message: Message, message_id: str, topic: TopicName, redeliveries: int) -> bytes:
        """The frame of a message."""
        if message.properties or message.event_time or message.key is not None or message.encryption:
            return self._write_any(message, message_id, topic, redeliveries)
        made_of = message.publish_time, redeliveries, message.producer_name, topic
        if made_of != self._made_of:
            self._made_of, self._middle = made_of, self._between(message, topic, redeliveries)
        return b'{"messageId":"%b","payload":"%b%b%d%b' % (
            message_id.encode(),
            b2a_base64(message.payload, newline=False),
            self._middle,
            message.sequence_id,
            b"}" if message.schema_version is None else b',"schemaVersion":%d}' % message.schema_version,
        )

    def _between(self, message: Message, topic: TopicName, redeliveries: int) -> bytes:
        named = b',"topic":%b' % _encode(str(topic)) if self._names_topic else b""
        if message.producer_name:
            named += b',"producerName":%b' % _encode(message.producer_name)
        time = format_time(message.publish_time).encode()
        return b'","properties":{},"publishTime":"%b","redeliveryCount":%d%b,"sequenceId":' % (
            time,
            redeliveries,
            named,
        )

    def _write_any(self, message: Message, message_id: str, topic: TopicName, redeliveries: int) -> bytes:
        frame = ConsumerMessage(
            message_id=message_id,
            payload=encode_base64(message.payload),
            properties=message.properties,
            publish_time=format_time(message.publish_time),
            redelivery_count=redeliveries,
            event_time=format_time(message.event_time) if message.event_time else UNSET,
            key=UNSET if message.key is None else message.key,
            topic=str(topic) if self._names_topic else UNSET,
            producer_name=message.producer_name or UNSET,
            sequence_id=message.sequence_id,
            schema_version=UNSET if message.schema_version is None else message.schema_version,
        )
        if message.properties:
            timeout_ms = request_timeout_ms(message.properties)
            if timeout_ms is not None:
                frame.request_timeout_millis = timeout_ms
                frame.request_deadline = format_time(message.publish_time + timeout_ms)
        if message.encryption is not None:
            frame.encryption_context = context_of(message.encryption)
        return _encode(frame)

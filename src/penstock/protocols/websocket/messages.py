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

PRODUCERS_MAX: Final = 256  # whose names are remembered as they are written, of one time

_encode: Final = msgspec.json.Encoder().encode


class MessageWriter:
    """Writes the frames of one consumer. `names_topic`: they say which topic (v3)."""

    def __init__(self, *, names_topic: bool) -> None:
        self._names_topic = names_topic
        # What messages of one time have between their properties and their sequence id, by their producers.
        self._middles: dict[str, bytes] = {}
        self._made_of: tuple[int, int, TopicName] | None = None
        # The last properties, as JSON, and what the frame of a request says of its time (PIP-371).
        self._properties: dict[str, str] = {}
        self._written = b"{}"
        self._timeout_ms: int | None = None
        self._ending = b"}"

    def write(self, message: Message, message_id: bytes, topic: TopicName, redeliveries: int) -> bytes:
        """The frame of a message."""
        if message.event_time or message.key is not None or message.encryption:
            return self._write_any(message, message_id.decode(), topic, redeliveries)
        made_of = message.publish_time, redeliveries, topic
        if made_of != self._made_of:
            self._made_of = made_of
            self._middles.clear()
            self._end(message.publish_time)
        properties = message.properties
        if properties is not self._properties and properties != self._properties:
            self._properties = properties
            self._written, self._timeout_ms = _encode(properties), request_timeout_ms(properties)
            self._end(message.publish_time)
        middle = self._middles.get(message.producer_name)
        if middle is None:
            if len(self._middles) >= PRODUCERS_MAX:
                self._middles.clear()
            middle = self._middles[message.producer_name] = self._between(message, topic, redeliveries)
        return b'{"messageId":"%b","payload":"%b","properties":%b%b%d%b%b' % (
            message_id,
            b2a_base64(message.payload, newline=False),
            self._written,
            middle,
            message.sequence_id,
            b"" if message.schema_version is None else b',"schemaVersion":%d' % message.schema_version,
            self._ending,
        )

    def _end(self, publish_time: int) -> None:
        if self._timeout_ms is None:
            self._ending = b"}"
        else:
            deadline = format_time(publish_time + self._timeout_ms).encode()
            self._ending = b',"requestTimeoutMillis":%d,"requestDeadline":"%b"}' % (
                self._timeout_ms,
                deadline,
            )

    def _between(self, message: Message, topic: TopicName, redeliveries: int) -> bytes:
        named = b',"topic":%b' % _encode(str(topic)) if self._names_topic else b""
        if message.producer_name:
            named += b',"producerName":%b' % _encode(message.producer_name)
        time = format_time(message.publish_time).encode()
        return b',"publishTime":"%b","redeliveryCount":%d%b,"sequenceId":' % (
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

"""Entries of a log as records of Kafka: keys and values as bytes, properties as headers."""

from base64 import b64decode
from binascii import Error as Base64Error

from penstock.broker.groups import GroupRecord, TopicPartition
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.headers import headers_of
from penstock.model.message import Message
from penstock.wire import entry as wire


def records_of(partition: TopicPartition, entry: Entry, at: int) -> list[GroupRecord]:
    """The records of an entry from offset `at` on. A batch that only its receiver can open is one record."""
    topic, number = partition.topic, partition.partition
    skipped = max(0, at - entry.offset)
    plain = wire.plain(entry)
    if plain is not None:
        return [
            GroupRecord(
                topic=topic,
                partition=number,
                offset=offset,
                timestamp=plain.publish_time,
                value=payload,
                schema_version=plain.schema_version,
            )
            for offset, payload in enumerate(plain.payloads[skipped:], entry.offset + skipped)
        ]
    try:
        messages = wire.decode(entry)
    except PenstockError as error:
        return [_unopened(partition, entry, max(at, entry.offset), error.message)]
    if len(messages) < entry.count:
        return [_unopened(partition, entry, entry.offset, "it is encrypted")] if not skipped else []
    return [
        _record(partition, entry.offset + place, message)
        for place, message in enumerate(messages[skipped:], skipped)
        if not message.compacted_out
    ]


def key_of(message: Message) -> bytes | None:
    """The bytes of a key."""
    if message.key is None:
        return None
    if message.key_is_base64:
        try:
            return b64decode(message.key, validate=True)
        except Base64Error:
            pass  # as a client wrote it
    return message.key.encode()


def _record(partition: TopicPartition, offset: int, message: Message) -> GroupRecord:
    encrypted = message.encryption is not None
    return GroupRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp=message.event_time or message.publish_time,
        key=key_of(message),
        value=None if message.null_value or encrypted else message.payload,
        headers=headers_of(message.properties),
        schema_version=message.schema_version,
        error="it is encrypted" if encrypted else None,
    )


def _unopened(partition: TopicPartition, entry: Entry, offset: int, why: str) -> GroupRecord:
    return GroupRecord(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        timestamp=entry.publish_time,
        error=why,
    )

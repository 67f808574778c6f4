"""The messages of an entry."""

from collections.abc import Sequence

from penstock.model.message import Message

from .batch import split
from .compression import decompress
from .contents import METADATA_AT, is_sealed, open_body
from .metadata import (
    parse_metadata,
    read_encryption,
    read_properties,
    read_text,
    schema_version_number,
    signed,
)
from .plain import PlainMetadata, plain_part, read_plain
from .pulsar_pb2 import MessageMetadata, SingleMessageMetadata


def read_messages(data: bytes, offset: int) -> list[Message]:
    """Every message of an entry that begins at `offset`. Raises CHECKSUM or BAD_ENCODING."""
    body, at = open_body(data)
    plain = read_plain(body, METADATA_AT, at)
    if plain is not None:
        return _of_plain(plain, body[at:], offset)
    metadata, payload = parse_metadata(body[METADATA_AT:at]), body[at:]
    if is_sealed(metadata):
        return [read_alone(metadata, payload, offset)]
    payload = decompress(metadata.compression, payload, metadata.uncompressed_size)
    if not metadata.HasField("num_messages_in_batch"):
        return [read_alone(metadata, payload, offset)]
    return _of_batch(
        plain_part(metadata),
        split(payload, metadata.num_messages_in_batch),
        offset,
        max(0, metadata.deliver_at_time),
        [read_text(cluster) for cluster in metadata.replicate_to] or None,
    )


def read_alone(metadata: MessageMetadata, payload: bytes, offset: int) -> Message:
    """The message of an entry that is not a batch. Raises BAD_ENCODING."""
    has_key = metadata.HasField("partition_key") and not metadata.null_partition_key
    return Message(
        payload=payload,
        offset=offset,
        key=read_text(metadata.partition_key) if has_key else None,
        key_is_base64=metadata.partition_key_b64_encoded,
        ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
        properties=read_properties(metadata.properties),
        publish_time=signed(metadata.publish_time),
        event_time=signed(metadata.event_time),
        deliver_at=max(0, metadata.deliver_at_time),
        producer_name=read_text(metadata.producer_name),
        sequence_id=signed(metadata.sequence_id),
        schema_version=schema_version_number(metadata.schema_version),
        replicate_to=[read_text(cluster) for cluster in metadata.replicate_to] or None,
        null_value=metadata.null_value,
        encryption=read_encryption(metadata) if metadata.encryption_keys else None,
    )


def _of_plain(metadata: PlainMetadata, payload: bytes, offset: int) -> list[Message]:
    producer, sequence_id, publish_time, batch_size, schema_version, properties = metadata
    if batch_size:
        return _of_batch(metadata, split(payload, batch_size), offset)
    return [
        Message(
            payload=payload,
            offset=offset,
            properties=properties or {},
            publish_time=publish_time,
            producer_name=producer,
            sequence_id=sequence_id,
            schema_version=schema_version,
        )
    ]


def _of_batch(
    metadata: PlainMetadata,
    parts: Sequence[tuple[SingleMessageMetadata | None, bytes]],
    offset: int,
    deliver_at: int = 0,
    replicate_to: list[str] | None = None,
) -> list[Message]:
    producer, first, publish_time, _, schema_version, _ = metadata
    messages: list[Message] = []
    for index, (single, body) in enumerate(parts):
        message = Message(
            payload=body,
            index=index,
            offset=offset + index,
            properties={},
            publish_time=publish_time,
            deliver_at=deliver_at,
            producer_name=producer,
            sequence_id=first + index,
            schema_version=schema_version,
            replicate_to=replicate_to,
        )
        if single is not None:
            message.properties = read_properties(single.properties)
            # HasField costs more than the field: it is asked only if an empty value may mean none.
            key = single.partition_key
            if (key or single.HasField("partition_key")) and not single.null_partition_key:
                message.key = read_text(key)
                message.key_is_base64 = single.partition_key_b64_encoded
            if single.HasField("ordering_key"):
                message.ordering_key = single.ordering_key
            if single.sequence_id or single.HasField("sequence_id"):
                message.sequence_id = signed(single.sequence_id)
            message.event_time = signed(single.event_time)
            message.null_value = single.null_value
            message.compacted_out = single.compacted_out
        messages.append(message)
    return messages

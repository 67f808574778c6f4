"""The bytes whose hash decides which consumer of a Key_Shared subscription gets a message."""

from base64 import b64decode

from .pulsar_pb2 import MessageMetadata, SingleMessageMetadata


def sticky_key(
    metadata: MessageMetadata | SingleMessageMetadata, producer: str | bytes, sequence_id: int
) -> bytes:
    """The ordering key, else the key, else `{producer}-{sequence id}`; never fails."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    if metadata.HasField("partition_key") and not metadata.null_partition_key:
        return _key_bytes(metadata.partition_key, metadata.partition_key_b64_encoded)
    return unkeyed(producer, sequence_id)


def unkeyed(producer: str | bytes, sequence_id: int) -> bytes:
    """What stands for the key of a message without one."""
    name = producer if isinstance(producer, bytes) else producer.encode()
    return b"%b-%d" % (name, sequence_id)


def _key_bytes(key: str | bytes, is_base64: bool) -> bytes:
    data = key if isinstance(key, bytes) else key.encode()
    if is_base64:
        try:
            return b64decode(data, validate=True)
        except ValueError:  # not base64 after all: then its text is the key
            return data
    return data

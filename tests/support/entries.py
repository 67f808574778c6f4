"""Entries made by protobuf's own encoder, as a client of another language makes them."""

import struct
from typing import Any

import cramjam
import google_crc32c

from penstock.wire import pulsar_pb2 as pb

TIME = 1_700_000_000_000


def pack(metadata: Any, payload: bytes) -> bytes:
    """An entry's bytes."""
    raw = metadata.SerializeToString()
    body = struct.pack(">I", len(raw)) + raw + payload
    return struct.pack(">HI", 0x0E01, google_crc32c.value(body)) + body


def compress(codec: int, data: bytes) -> bytes:
    match codec:
        case 1:
            return bytes(cramjam.lz4.compress_block(data, store_size=False))
        case 2:
            return bytes(cramjam.zlib.compress(data))
        case 3:
            return bytes(cramjam.zstd.compress(data))
        case 4:
            return bytes(cramjam.snappy.compress_raw(data))
    return data


def batch(messages: list[dict[str, Any]], codec: int = 0, **metadata: Any) -> bytes:
    """A batch entry; a message is the fields of SingleMessageMetadata and `payload`."""
    parts = []
    for message in messages:
        own = dict(message)
        payload = own.pop("payload", b"")
        properties = own.pop("properties", {})
        single = pb.SingleMessageMetadata(payload_size=len(payload), **own)
        for key, value in properties.items():
            single.properties.add(key=key, value=value)
        raw = single.SerializeToString()
        parts += [struct.pack(">I", len(raw)), raw, payload]
    joined = b"".join(parts)
    fields = {"producer_name": "p", "sequence_id": 0, "publish_time": TIME} | metadata
    head = pb.MessageMetadata(
        num_messages_in_batch=len(messages), compression=codec, uncompressed_size=len(joined), **fields
    )
    return pack(head, compress(codec, joined))


def lone(payload: bytes, codec: int = 0, properties: dict[str, str] | None = None, **metadata: Any) -> bytes:
    """An entry of one message that was sent alone."""
    fields = {"producer_name": "p", "sequence_id": 0, "publish_time": TIME} | metadata
    head = pb.MessageMetadata(**fields)
    if codec:
        head.compression, head.uncompressed_size = codec, len(payload)
    for key, value in (properties or {}).items():
        head.properties.add(key=key, value=value)
    return pack(head, compress(codec, payload))

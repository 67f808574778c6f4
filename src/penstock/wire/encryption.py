"""How a payload was encrypted, as it stands in `MessageMetadata` (PIP-4, PIP-290). Nothing is encrypted here."""

from penstock.model.message import Encryption, EncryptionKey

from .fields import properties, read_properties, read_text, sized, text
from .pulsar_pb2 import CompressionType, MessageMetadata


def encryption_fields(encryption: Encryption) -> bytes:
    """The fields 13 to 15. Raises BAD_ENCODING."""
    out = b""
    for key in encryption.keys:
        one = b"\x0a" + text(key.name) + b"\x12" + sized(key.value) + properties(b"\x1a", key.metadata)
        out += b"\x6a" + sized(one)
    if encryption.algorithm:
        out += b"\x72" + text(encryption.algorithm)
    return out + b"\x7a" + sized(encryption.param)


def read_encryption(metadata: MessageMetadata) -> Encryption:
    """What the metadata of an encrypted entry says. Raises BAD_ENCODING."""
    return Encryption(
        keys=tuple(
            EncryptionKey(read_text(key.key), key.value, read_properties(key.metadata))
            for key in metadata.encryption_keys
        ),
        param=metadata.encryption_param,
        algorithm=read_text(metadata.encryption_algo),
        compression=CompressionType.Name(metadata.compression),
        uncompressed_size=metadata.uncompressed_size,
        batch_size=metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0,
    )

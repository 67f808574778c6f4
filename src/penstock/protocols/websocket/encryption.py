"""Payloads that clients encrypt themselves (PIP-290): what they say of it, to the message's metadata and back.

Nothing is encrypted or opened here: the keys travel encrypted, and only the receiver has what opens them.
"""

from binascii import a2b_base64
from typing import Final

import msgspec
from msgspec import UNSET

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Encryption, EncryptionKey

from .frames import BAD_PAYLOAD, BadFrame, EncryptionContext, KeyInfo, ProducerMessage, as_text, decode_base64

COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
KEYS_MAX: Final = 100
_SIZE_MAX: Final = 2**31 - 1
_URL_SAFE: Final = str.maketrans("-_ ", "+/+")  # a + that was not escaped comes as a space

_keys: Final = msgspec.json.Decoder(dict[str, KeyInfo])


def parse_keys(text: str | None) -> tuple[EncryptionKey, ...]:
    """The parameter `encryptionKeys`; empty without it.

    Raises BAD_PARAMETER, and INTERNAL, as Pulsar does, for names of keys that the server would have to find.
    """
    if text is None or not text.strip():
        return ()
    try:
        document = a2b_base64(text.strip().translate(_URL_SAFE), strict_mode=True)
        msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    except ValueError:
        raise PenstockError(
            ErrorKind.INTERNAL, "Can't add encryption key without configuring cryptoKeyReaderFactoryClassName"
        ) from None
    try:
        given = _keys.decode(document)
    except (ValueError, RecursionError) as error:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"Invalid encryptionKeys: {error}") from None
    if not 0 < len(given) <= KEYS_MAX:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"encryptionKeys must hold between 1 and {KEYS_MAX} keys"
        )
    return tuple(EncryptionKey(name, info.key_value, info.metadata or {}) for name, info in given.items())


def seal(frame: ProducerMessage, keys: tuple[EncryptionKey, ...]) -> Encryption:
    """What a frame says of how its payload was encrypted; raises BadFrame."""
    text = as_text(frame.encryption_param)
    if text is None:
        raise BadFrame(BAD_PAYLOAD, "encryptionParam is missing")
    try:
        param = decode_base64(text)
    except ValueError as error:
        raise BadFrame(BAD_PAYLOAD, f"Invalid Base64 encryptionParam error={error}") from None
    compression, size = as_text(frame.compression_type), frame.uncompressed_message_size
    if (compression is None) != (size is None):
        raise BadFrame(BAD_PAYLOAD, "compressionType and uncompressedMessageSize go together")
    if compression is not None and compression not in COMPRESSIONS:
        raise BadFrame(BAD_PAYLOAD, f"Invalid compressionType {compression[:80]}")
    if size is not None and not 0 <= size <= _SIZE_MAX:
        raise BadFrame(BAD_PAYLOAD, f"Invalid uncompressedMessageSize {size}")
    return Encryption(keys, param, compression=compression or "NONE", uncompressed_size=size or 0)


def context_of(encryption: Encryption) -> EncryptionContext:
    """The same for its receiver."""
    return EncryptionContext(
        keys={key.name: KeyInfo(key.value, key.metadata) for key in encryption.keys},
        param=encryption.param,
        algorithm=encryption.algorithm,
        compression_type=encryption.compression,
        uncompressed_message_size=encryption.uncompressed_size,
        batch_size=encryption.batch_size or UNSET,
    )

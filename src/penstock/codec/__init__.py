"""Values to payloads and back by schema, and which schema may follow which."""

from .codec import Codec, Part
from .compatibility import cannot_read, check
from .definition import check_definition, fingerprint, same
from .key_value import KeyValueCodec, key_value_parts, key_value_schema
from .lookup import codec_for

__all__ = [
    "Codec",
    "KeyValueCodec",
    "Part",
    "cannot_read",
    "check",
    "check_definition",
    "codec_for",
    "fingerprint",
    "key_value_parts",
    "key_value_schema",
    "same",
]

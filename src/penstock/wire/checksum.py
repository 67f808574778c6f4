"""The checksum in front of an entry.

    0x0e01 | CRC-32C u32 | body

The checksum covers the body: the metadata's size, the metadata and the payload. Old clients leave the first
two out; a body never begins like a checksum, as its metadata would be of 225 MiB.
"""

from typing import Final

import google_crc32c

from penstock.model.errors import ErrorKind, PenstockError

MAGIC: Final = b"\x0e\x01"
BODY_AT: Final = 6


def crc32c(data: bytes) -> int:
    """CRC-32 with Castagnoli's polynomial."""
    value: int = google_crc32c.value(data)
    return value


def seal(body: bytes) -> bytes:
    """The entry of that body, with its checksum."""
    return b"".join((MAGIC, crc32c(body).to_bytes(4, "big"), body))


def unseal(data: bytes) -> bytes:
    """The body of an entry with or without checksum. Raises CHECKSUM, and BAD_ENCODING when it is cut short."""
    if not data.startswith(MAGIC):
        return data
    if len(data) < BODY_AT:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry ends within its checksum")
    body = data[BODY_AT:]
    if crc32c(body) != int.from_bytes(data[2:BODY_AT], "big"):
        raise PenstockError(ErrorKind.CHECKSUM, "the entry's checksum is wrong")
    return body


def with_checksum(data: bytes) -> bytes:
    """The entry with a checksum; one that has it already is returned as it is, unverified."""
    return data if data.startswith(MAGIC) else seal(data)

"""Base64 as Java's basic decoder reads it: strict, but for padding, which may be missing."""

from binascii import Error, a2b_base64, b2a_base64


def decode(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return a2b_base64(text, strict_mode=True)
    except Error:
        missing = -len(text) % 4
        if missing not in (1, 2) or "=" in text:
            raise
        return a2b_base64(text + "=" * missing, strict_mode=True)


def encode(data: bytes) -> str:
    """With padding, in one line."""
    return b2a_base64(data, newline=False).decode("ascii")

"""What one request may unfold to: bytes, and messages. A bomb stops at the bound, not at the end of memory."""

import zlib
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

# Logs compress well, seldom beyond this; deflate itself can reach 1032.
RATIO_MAX: Final = 200
RATIO_FREE_BYTES: Final = 64 * 1024  # a short text of one letter is no bomb

_GZIP_WINDOW: Final = 31  # the largest, and a gzip header


class Budget:
    """What is left of a request's bounds."""

    def __init__(self, bytes_max: int, messages_max: int) -> None:
        self._bytes_max = self._bytes_left = bytes_max
        self._messages_max = self._messages_left = messages_max

    def message(self) -> None:
        """Count a message; raises TOO_LARGE."""
        self._messages_left -= 1
        if self._messages_left < 0:
            raise PenstockError(
                ErrorKind.TOO_LARGE, f"more than {self._messages_max} messages in one request"
            )

    def gunzip(self, data: bytes) -> bytes:
        """Decompress one gzip stream of possibly several members. Raises BAD_ENCODING, TOO_LARGE."""
        allowed = min(self._bytes_left, RATIO_FREE_BYTES + RATIO_MAX * len(data))
        parts: list[bytes] = []
        size, rest = 0, data
        while rest:
            member = zlib.decompressobj(_GZIP_WINDOW)
            try:
                part = member.decompress(rest, allowed - size + 1)
            except zlib.error as error:
                raise PenstockError(ErrorKind.BAD_ENCODING, f"the gzip data is broken: {error}") from None
            size += len(part)
            if size > allowed:
                raise PenstockError(
                    ErrorKind.TOO_LARGE,
                    f"the gzip data unfolds to more than {allowed} bytes; at most {self._bytes_max},"
                    f" and {RATIO_MAX} times its size, are taken",
                )
            if not member.eof:
                raise PenstockError(ErrorKind.BAD_ENCODING, "the gzip data is cut short")
            parts.append(part)
            rest = member.unused_data.lstrip(b"\0")  # padding, as gzip itself allows
        if not parts:
            raise PenstockError(ErrorKind.BAD_ENCODING, "the gzip data is empty")
        self._bytes_left -= size
        return b"".join(parts)

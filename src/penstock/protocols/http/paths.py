"""The path of a request as it was sent, and its segments."""

from typing import Final
from urllib.parse import unquote_to_bytes

from penstock.model.errors import ErrorKind, PenstockError

from .exchange import Scope

# Of a scope: how its path begins because of the port that its client reached, where paths have no prefix.
PREFIX_KEY: Final = "penstock.prefix"


def raw_path(scope: Scope) -> bytes:
    """The path, still percent-encoded, without what the server is mounted under."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())


def segments(scope: Scope) -> list[str]:
    """The segments of the path, decoded one by one; raises INVALID_NAME."""
    try:
        return [unquote_to_bytes(part).decode() for part in raw_path(scope)[1:].split(b"/")]
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.INVALID_NAME, "the path is no UTF-8") from None

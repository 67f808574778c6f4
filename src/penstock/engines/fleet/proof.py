"""How processes prove that they belong to one service: message authentication codes (RFC 2104) with a shared secret.

Every code names its purpose, so that no code is valid for another purpose.
"""

import base64
import hmac
import secrets
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret

SECRET_BYTES_MIN: Final = 16
_ID_BYTES: Final = 8  # of a process
_RANDOM_BYTES: Final = 12  # of an id that a process creates
_TAG_BYTES: Final = 10


class Proof:
    """Codes with one secret. Raises BAD_PARAMETER for a secret that is too short."""

    def __init__(self, secret: Secret) -> None:
        key = secret.reveal().encode()
        if len(key) < SECRET_BYTES_MIN:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"fleet.secret is shorter than {SECRET_BYTES_MIN} bytes: make one with openssl rand -hex 32",
            )
        self._key = hmac.digest(key, b"penstock fleet", "sha256")

    def code(self, purpose: str, *parts: bytes) -> bytes:
        """The code of some parts for a purpose."""
        return code_of(self._key, purpose.encode(), *parts)

    def new_id(self, process: str) -> str:
        """An id that names its process, and that no client can guess or create."""
        content = bytes.fromhex(process) + secrets.token_bytes(_RANDOM_BYTES)
        return base64.urlsafe_b64encode(content + self._tag(content)).decode()

    def owner_of(self, id: str) -> str | None:
        """The process that created an id; None if it was not created with this secret."""
        try:
            content = base64.b64decode(id.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:  # and UnicodeEncodeError, which is one
            return None
        if len(content) != _ID_BYTES + _RANDOM_BYTES + _TAG_BYTES:
            return None
        named, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
        return content[:_ID_BYTES].hex() if hmac.compare_digest(self._tag(named), tag) else None

    def _tag(self, content: bytes) -> bytes:
        return self.code("id", content)[:_TAG_BYTES]


def new_process_id() -> str:
    """A random id of a process, in hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)


def code_of(key: bytes, *parts: bytes) -> bytes:
    """The code of some parts; their lengths are part of it."""
    return hmac.digest(key, b"".join([b"%d:%b," % (len(part), part) for part in parts]), "sha256")

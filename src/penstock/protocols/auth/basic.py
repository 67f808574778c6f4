"""Basic authentication: names and passwords against a file of hashes.

A password costs a tenth of a second to check, on purpose: it is checked in a thread, by few at a time, and what
was right is remembered under a digest that only this process can compute.
"""

import asyncio
import base64
import binascii
import hashlib
import secrets
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .passwords import NOBODY, PASSWORD_BYTES_MAX, Hash
from .principal import Principal, check_role
from .watched import WatchedFile

REMEMBERED_MAX: Final = 10_000
AT_ONCE: Final = 2  # of 32 MiB each; the threads are the store's and others' too
WAITING_MAX: Final = 64  # then who comes is told to come again: guessing must not hold up the rest


class Basic:
    """The users of one file."""

    def __init__(self, users: WatchedFile[dict[str, Hash]]) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, Principal] = {}
        self._version = users.version
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    def known(self, pair: bytes) -> Principal | None:
        """Who `name:password` was found to be before."""
        self._users.refresh()
        if self._users.version != self._version:
            self._version = self._users.version
            self._known.clear()
        return self._known.get(self._digest(pair))

    async def verify(self, pair: bytes) -> Principal:
        """Who `name:password` is; raises UNAUTHENTICATED, TOO_MANY_REQUESTS."""
        known = self.known(pair)
        if known is not None:
            return known
        name, separator, password = pair.partition(b":")
        if not separator or len(password) > PASSWORD_BYTES_MAX:
            raise _refused()
        if self._waiting >= WAITING_MAX:
            raise PenstockError(ErrorKind.TOO_MANY_REQUESTS, "too many passwords wait to be checked")
        version, text = self._version, name.decode("utf-8", "replace")
        found = self._users.value.get(text)
        self._waiting += 1
        try:
            async with self._turns:
                right = await asyncio.to_thread((found or NOBODY).matches, password)
        finally:
            self._waiting -= 1
        if found is None or not right:
            raise _refused()
        principal = Principal(check_role(text), None, "basic")
        if version == self._version:  # else the file changed meanwhile
            if len(self._known) >= REMEMBERED_MAX:
                del self._known[next(iter(self._known))]
            self._known[self._digest(pair)] = principal
        return principal

    def _digest(self, pair: bytes) -> bytes:
        return hashlib.blake2b(pair, key=self._key, digest_size=32).digest()


def pair_of(text: bytes) -> bytes:
    """`name:password` of a header's base64; raises UNAUTHENTICATED."""
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise PenstockError(ErrorKind.UNAUTHENTICATED, "the Authorization header is no base64") from None


def _refused() -> PenstockError:
    return PenstockError(ErrorKind.UNAUTHENTICATED, "the name or the password is wrong")

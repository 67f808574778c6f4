"""Users and their passwords: a file of a line each, `name:scrypt:n:r:p:salt:hash` (RFC 7914; salt and hash in base64).

A password costs a tenth of a second to check, on purpose: it is checked in a thread, by few at a time, and what
was right is remembered under a digest that only this process can compute.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .principal import Principal, check_role
from .watched import WatchedFile

# 32 MiB and about a tenth of a second for each guess: more would let a few logins fill a small machine.
_N: Final = 1 << 15
_R: Final = 8
_P: Final = 1
_N_MAX: Final = 1 << 20
_MEMORY_MAX: Final = 1 << 30
PASSWORD_BYTES_MAX: Final = 1024

REMEMBERED_MAX: Final = 10_000
AT_ONCE: Final = 2  # of 32 MiB each; the threads are the store's and others' too
WAITING_MAX: Final = 64  # beyond it a client has to try again: guessing must not hold up the rest


class Hash(msgspec.Struct, frozen=True):
    """A password that can be recognized and not be read back."""

    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        """Whether it is the password; takes as long for any."""
        return hmac.compare_digest(_scrypt(password, self.salt, self.n, self.r, self.p), self.digest)

    def __str__(self) -> str:
        salt, digest = (base64.b64encode(part).decode() for part in (self.salt, self.digest))
        return f"scrypt:{self.n}:{self.r}:{self.p}:{salt}:{digest}"


def hash_password(password: bytes) -> Hash:
    """A new hash; raises ValueError for a password that is empty or longer than `PASSWORD_BYTES_MAX`."""
    if not 0 < len(password) <= PASSWORD_BYTES_MAX:
        raise ValueError(f"a password has between 1 and {PASSWORD_BYTES_MAX} bytes")
    salt = secrets.token_bytes(16)
    return Hash(_N, _R, _P, salt, _scrypt(password, salt, _N, _R, _P))


# What an unknown name is compared with, so that it takes as long as a known one.
NO_USER: Final = Hash(_N, _R, _P, b"\0" * 16, b"\0" * 32)


def check_name(name: str) -> str:
    """Return a user's name; raises ValueError."""
    if not name.strip() or ":" in name or name.startswith("#") or len(name) > 256 or not name.isprintable():
        raise ValueError(
            f"{name[:80]!r} is no user's name: no colon, nothing unprintable, no # to begin with"
        )
    return name


def read_users(content: bytes) -> dict[str, Hash]:
    """The users of a file; empty lines and those that begin with # say nothing. Raises ValueError."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    users: dict[str, Hash] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, text = line.strip().partition(":")
        try:
            users[check_name(name)] = _parse(text)
        except ValueError:
            raise ValueError(f"line {number} is not name:scrypt:n:r:p:salt:hash") from None
    return users


def write_users(users: dict[str, Hash]) -> bytes:
    """The file of `users`."""
    return "".join(f"{name}:{users[name]}\n" for name in sorted(users)).encode()


def _parse(text: str) -> Hash:
    kind, *rest = text.split(":")
    if kind != "scrypt" or len(rest) != 5:
        raise ValueError(text)
    n, r, p = (int(number) for number in rest[:3])
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in rest[3:])
    except binascii.Error:
        raise ValueError(text) from None
    sound = 1 < n <= _N_MAX and not n & (n - 1) and 0 < r <= 32 and 0 < p <= 16
    if not sound or 128 * n * r > _MEMORY_MAX or len(salt) < 8 or len(digest) != 32:
        raise ValueError(text)
    return Hash(n, r, p, salt, digest)


def _scrypt(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=n, r=r, p=p, maxmem=128 * n * r + (1 << 20) * p + (1 << 20), dklen=32
    )


# -- Basic authentication


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
        """The cached principal of `name:password`."""
        self._users.refresh()
        if self._users.version != self._version:
            self._version = self._users.version
            self._known.clear()
        return self._known.get(self._digest(pair))

    async def verify(self, pair: bytes) -> Principal:
        """The principal of `name:password`; raises UNAUTHENTICATED, TOO_MANY_REQUESTS."""
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
                right = await asyncio.to_thread((found or NO_USER).matches, password)
        finally:
            self._waiting -= 1
        if found is None or not right:
            raise _refused()
        principal = Principal(check_role(text), None, "basic")
        if version == self._version:  # else the file changed
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

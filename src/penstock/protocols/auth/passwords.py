"""Users and their passwords: a line each, `name:scrypt:n:r:p:salt:hash` (RFC 7914; salt and hash in base64)."""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

import msgspec

# 32 MiB and about a tenth of a second for each guess: more would let a few logins fill a small machine.
_N: Final = 1 << 15
_R: Final = 8
_P: Final = 1
_N_MAX: Final = 1 << 20
_MEMORY_MAX: Final = 1 << 30
PASSWORD_BYTES_MAX: Final = 1024


class Hash(msgspec.Struct, frozen=True):
    """A password that can be recognized and not be told."""

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
NOBODY: Final = Hash(_N, _R, _P, b"\0" * 16, b"\0" * 32)


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

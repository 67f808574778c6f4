"""Making tokens and keys, for the command line and for tests; a server only verifies."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)

from .keys import Key, public_key, secret_key

RSA_BITS: Final = 3072
KINDS: Final = ("RS256", "ES256", "ES384", "ES512", "EdDSA")  # of key pairs, by the algorithm they begin with

_CURVES: Final[dict[str, Callable[[], ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}


class Signer(NamedTuple):
    """A key that signs, and the algorithms it may sign by."""

    key: Any
    algorithms: frozenset[str]
    kid: str = ""

    @property
    def algorithm(self) -> str:
        """The default algorithm of the key's kind."""
        preferred = ("HS256", "RS256", "ES256", "ES384", "ES512", "EdDSA")
        return next(name for name in preferred if name in self.algorithms)

    def sign(self, claims: Mapping[str, Any], algorithm: str = "") -> str:
        """A token; raises ValueError for an algorithm that is not for the key."""
        chosen = algorithm or self.algorithm
        if chosen not in self.algorithms:
            raise ValueError(f"{chosen} is not for this key; {', '.join(sorted(self.algorithms))} are")
        headers = {"kid": self.kid} if self.kid else None
        return jwt.encode(dict(claims), self.key, chosen, headers=headers)


def secret_signer(content: bytes, kid: str = "") -> Signer:
    """A signer by a secret key's file; raises ValueError."""
    key = _alone(secret_key(content).find(None))
    return Signer(key.key, key.algorithms, kid)


def private_signer(content: bytes, kid: str = "") -> Signer:
    """A signer by a private key, PEM or DER; raises ValueError."""
    load = load_pem_private_key if content.lstrip().startswith(b"-----") else load_der_private_key
    try:
        loaded = load(content, None)
    except Exception:
        raise ValueError("holds no private key in PEM or DER without a password") from None
    public = loaded.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return Signer(loaded, _alone(public_key(public).find(None)).algorithms, kid)


def new_secret_key() -> bytes:
    """64 random bytes, enough for any of HS256, HS384 and HS512."""
    return secrets.token_bytes(64)


def new_key_pair(kind: str) -> tuple[bytes, bytes]:
    """A private key and its public one, in PEM; `kind` is one of KINDS."""
    made: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if kind == "EdDSA":
        made = ed25519.Ed25519PrivateKey.generate()
    elif kind in _CURVES:
        made = ec.generate_private_key(_CURVES[kind]())
    else:
        made = rsa.generate_private_key(65_537, RSA_BITS)
    private = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private, made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _alone(key: Key | None) -> Key:
    assert key is not None
    return key

"""Keys that verify tokens: what a file holds, and which algorithms a key is for.

The algorithms are fixed by the key's kind, never by the token: a public key cannot be taken for a secret, and
`none` is for no key.
"""

import base64
import binascii
from typing import Any, Final, NamedTuple

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

SECRET_BYTES_MIN: Final = 32  # RFC 7518 3.2: as many as the hash has
RSA_BITS_MIN: Final = 2048  # RFC 7518 3.3

_HMAC: Final = ((32, "HS256"), (48, "HS384"), (64, "HS512"))
_RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


class Key(NamedTuple):
    """A key and the algorithms that it verifies."""

    key: Any
    algorithms: frozenset[str]


class Keys:
    """One key, or several by their ids. `alone` is the one that a token without an id means."""

    def __init__(self, by_id: dict[str, Key], alone: Key | None) -> None:
        self._by_id = by_id
        self._alone = alone

    def find(self, kid: str | None) -> Key | None:
        """The key for a token's `kid`; a single key without one is for all."""
        if kid is not None and self._by_id:
            return self._by_id.get(kid)
        return self._alone


def secret_key(content: bytes) -> Keys:
    """A secret: its bytes, or `data:;base64,…`. Raises ValueError."""
    prefix, separator, text = content.partition(b",")
    if separator and prefix.startswith(b"data:") and prefix.endswith(b";base64"):
        try:
            content = base64.b64decode(text.strip(), validate=True)
        except binascii.Error:
            raise ValueError("is not base64 after data:;base64,") from None
    return Keys({}, _secret(content))


def public_key(content: bytes) -> Keys:
    """A public key, PEM or DER. Raises ValueError."""
    try:
        loaded = load_pem_public_key(content) if content.lstrip().startswith(b"-----") else None
        loaded = loaded or load_der_public_key(content)
    except Exception:
        raise ValueError("holds no public key in PEM or DER") from None
    return Keys({}, _public(loaded))


def jwks(content: bytes) -> Keys:
    """A set of JSON web keys (RFC 7517); those for encryption are passed over. Raises ValueError."""
    try:
        found = msgspec.json.decode(content, type=_Set).keys
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError('is no set of keys: {"keys": […]} is expected') from None
    by_id: dict[str, Key] = {}
    nameless: list[Key] = []
    for number, one in enumerate(found):
        if one.get("use", "sig") != "sig" or "verify" not in one.get("key_ops", ("verify",)):
            continue
        try:
            key = _of_jwk(one)
        except Exception as error:
            raise ValueError(f"key {number} cannot be used: {error}") from None
        kid = one.get("kid")
        if not isinstance(kid, str):
            nameless.append(key)
        elif by_id.setdefault(kid, key) is not key:
            raise ValueError(f"has two keys of the id {kid[:80]!r}")
    keys = [*by_id.values(), *nameless]
    if not keys:
        raise ValueError("holds no key that verifies")
    return Keys(by_id, keys[0] if len(keys) == 1 else None)


class _Set(msgspec.Struct):
    keys: list[dict[str, Any]]


def _of_jwk(one: dict[str, Any]) -> Key:
    if one.get("kty") == "oct":
        text = str(one.get("k", ""))
        key = _secret(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    else:
        if "d" in one:
            raise ValueError("it is private: give the server the public part alone")
        key = _public(jwt.PyJWK({name: value for name, value in one.items() if name != "alg"}).key)
    named = one.get("alg")
    if named is None:
        return key
    if named not in key.algorithms:
        raise ValueError(f"alg {str(named)[:80]!r} is not for a key of its kind")
    return Key(key.key, frozenset((named,)))


def _secret(content: bytes) -> Key:
    if len(content) < SECRET_BYTES_MIN:
        raise ValueError(f"is a secret of {len(content)} bytes; at least {SECRET_BYTES_MIN} are needed")
    if b"-----BEGIN" in content:
        raise ValueError("is no secret but a key in PEM: it belongs in auth.token_public_key_file")
    return Key(content, frozenset(name for size, name in _HMAC if len(content) >= size))


def _public(loaded: Any) -> Key:
    if isinstance(loaded, RSAPublicKey):
        if loaded.key_size < RSA_BITS_MIN:
            raise ValueError(f"is an RSA key of {loaded.key_size} bits; at least {RSA_BITS_MIN} are needed")
        return Key(loaded, _RSA)
    if isinstance(loaded, EllipticCurvePublicKey) and loaded.curve.name in _CURVES:
        return Key(loaded, frozenset((_CURVES[loaded.curve.name],)))
    if isinstance(loaded, Ed25519PublicKey | Ed448PublicKey):
        return Key(loaded, frozenset(("EdDSA",)))
    raise ValueError("is a key of a kind that signs no tokens here: RSA, P-256, P-384, P-521 or Ed25519")

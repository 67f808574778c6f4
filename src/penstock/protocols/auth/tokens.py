"""Tokens: JWTs whose signature, times and audience are verified, and the role that they name.

Verified tokens are remembered: a known token costs a dict lookup.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import jwt
import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .keys import Key, Keys
from .principal import Principal, check_role
from .watched import LOOK_MS, WatchedFile

TOKEN_CHARACTERS_MAX: Final = 16_384  # a token travels in every request's head
REMEMBERED_MAX: Final = 10_000


class _Known(msgspec.Struct, gc=False):
    principal: Principal
    look_ms: int  # from then on it is verified whether the keys are still the same, and the time


class Tokens:
    """Verifies tokens by the keys of one or several sources."""

    def __init__(
        self,
        sources: Sequence[Keys | WatchedFile[Keys]],
        now_ms: Callable[[], int],
        *,
        role_claim: str = "sub",
        audience: str = "",
        leeway_s: int = 10,
    ) -> None:
        self._sources = sources
        self._now_ms = now_ms
        self._role_claim = role_claim
        self._audience = audience
        self._leeway_ms = 1000 * leeway_s
        self._known: dict[str, _Known] = {}
        self._version = 0

    def verify(self, token: str) -> Principal:
        """The principal of a token; raises UNAUTHENTICATED. The token itself is in no message."""
        known = self._known.get(token)
        now = self._now_ms()
        if known is not None:
            if now < known.look_ms:
                return known.principal
            self._follow_changes()
            known = self._known.get(token)
            expires = None if known is None else known.principal.expires_ms
            if known is not None and (expires is None or now < expires):
                known.look_ms = _look_ms(now, expires)
                return known.principal
        self._known.pop(token, None)
        principal = self._verify(token, now)
        if len(self._known) >= REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        self._known[token] = _Known(principal, _look_ms(now, principal.expires_ms))
        return principal

    def _follow_changes(self, *, at_once: bool = False) -> None:
        """Read key files that changed; tokens verified by former keys are verified again."""
        version = 0
        for source in self._sources:
            if isinstance(source, WatchedFile):
                source.refresh(at_once=at_once)
                version += source.version
        if version != self._version:
            self._version = version
            self._known.clear()

    def _verify(self, token: str, now: int) -> Principal:
        if len(token) > TOKEN_CHARACTERS_MAX:
            raise refused("the token is too long")
        self._follow_changes()
        claims = self._claims(token)
        expires = self._time(claims, "exp")
        if expires is not None and now >= expires + self._leeway_ms:
            raise refused("the token has expired")
        for claim in ("nbf", "iat"):
            begins = self._time(claims, claim)
            if begins is not None and now < begins - self._leeway_ms:
                raise refused("the token is not valid yet")
        if self._audience and self._audience not in _texts(claims.get("aud")):
            raise refused("the token is for another server: its audience is not this server's")
        roles = _texts(claims.get(self._role_claim))
        if not roles:
            raise refused(f"the token has no claim {self._role_claim!r} that names a role")
        return Principal(
            check_role(roles[0]), None if expires is None else expires + self._leeway_ms, "token"
        )

    def _claims(self, token: str) -> dict[str, Any]:
        """The claims of a token whose signature is right."""
        try:
            head = jwt.get_unverified_header(token)
        except Exception:  # whatever the library does with bytes of an unknown client
            raise refused("the token is no JWT") from None
        kid, algorithm = head.get("kid"), head.get("alg")
        keys = self._find(kid)
        if not keys:
            self._follow_changes(at_once=True)  # it may have been added a moment ago
            keys = self._find(kid)
        if not keys:
            raise refused("the token is signed by a key that is not known here")
        fitting = [key for key in keys if isinstance(algorithm, str) and algorithm in key.algorithms]
        if not fitting:
            raise refused("the token is signed by an algorithm that is not for this server's keys")
        for key in fitting:
            try:
                return dict(jwt.decode(token, key.key, sorted(key.algorithms), options=_SIGNATURE_ONLY))
            except Exception:  # noqa: S112 - the next key may be the one
                continue
        raise refused("the token's signature is wrong")

    def _find(self, kid: object) -> list[Key]:
        """The keys that a token of that id may be signed by."""
        wanted = kid if isinstance(kid, str) else None
        found = (source.value if isinstance(source, WatchedFile) else source for source in self._sources)
        return [key for keys in found if (key := keys.find(wanted)) is not None]

    @staticmethod
    def _time(claims: dict[str, Any], name: str) -> int | None:
        """A time of a token in ms."""
        value = claims.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
            raise refused(f"the token's claim {name!r} is no time")
        return int(value * 1000)


# The times and the audience are compared here, by the server's clock.
_SIGNATURE_ONLY: Final[Any] = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


def refused(message: str) -> PenstockError:
    return PenstockError(ErrorKind.UNAUTHENTICATED, message)


def _look_ms(now: int, expires: int | None) -> int:
    return now + LOOK_MS if expires is None else min(now + LOOK_MS, expires)


def _texts(value: object) -> list[str]:
    """A claim of one text or several."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]

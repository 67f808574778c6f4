"""Keys and tokens for tests of servers with authentication.

with running(auth=Issuer().settings(super_users=("admin",))) as server: ...
"""

import time
from typing import Any

from penstock.model.secret import Secret
from penstock.protocols.auth.mint import Signer, secret_signer
from penstock.protocols.auth.settings import AuthSettings

KEY = "a key of tests, as long as HS256, HS384 and HS512 want it to be: 64"


class Issuer:
    """Signs tokens by a secret key that the server knows."""

    def __init__(self, key: str = KEY) -> None:
        self.key = key
        self._signer: Signer = secret_signer(key.encode())

    def settings(self, **more: Any) -> AuthSettings:
        """`auth` of a server that takes these tokens."""
        return AuthSettings(enabled=True, token_secret_key=Secret(self.key), **more)

    def token(self, role: str, *, expires_s: float | None = None, **claims: Any) -> str:
        """A token of a role, which lasts `expires_s` from now (None: for ever)."""
        payload: dict[str, Any] = {"sub": role, **claims}
        if expires_s is not None:
            payload["exp"] = time.time() + expires_s
        return self._signer.sign(payload)

    def headers(self, role: str, **options: Any) -> dict[str, str]:
        """The header of a request."""
        return {"Authorization": f"Bearer {self.token(role, **options)}"}

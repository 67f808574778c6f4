"""The workers of this server, as the process that owns the log knows them (`penstock serve --workers`).

A worker proves itself by the secret that the supervisor gave both. It has authenticated its caller and checked what the caller
may do; the owner checks it again, by its own permissions. A worker that names no role acts for itself: it may do everything.
"""

import hmac
from base64 import b64decode

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.model.worker import METHOD, WorkerCredentials

from .principal import Principal, check_role

_SCHEME = METHOD.encode()
_decoder = msgspec.json.Decoder(WorkerCredentials)


class Workers:
    """Recognises workers. Raises UNAUTHENTICATED for all other clients."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret.reveal().encode()

    def is_own(self, authorization: bytes | None) -> bool:
        """Whether an HTTP request has the credentials of a worker that acts for itself; raises UNAUTHENTICATED for wrong ones."""
        if authorization is None:
            return False
        scheme, _, given = authorization.partition(b" ")
        if scheme.lower() != _SCHEME:
            return False
        try:
            data = b64decode(given, validate=True)
        except ValueError:
            raise _refused() from None
        return self._verified(data).role is None

    def acting(self, data: bytes) -> Principal | None:
        """The principal that a worker connects for by Pulsar's protocol; None if it names no role."""
        found = self._verified(data)
        if found.role is None:
            return None
        proxy = None if found.proxy is None else Principal(check_role(found.proxy), None, METHOD)
        return Principal(check_role(found.role), None, METHOD, proxy)

    def _verified(self, data: bytes) -> WorkerCredentials:
        try:
            found = _decoder.decode(data)
        except msgspec.MsgspecError:
            raise _refused() from None
        if not hmac.compare_digest(found.secret.encode(), self._secret):
            raise _refused()
        return found


def _refused() -> PenstockError:
    return PenstockError(
        ErrorKind.UNAUTHENTICATED, "these are not the credentials of a worker of this server"
    )

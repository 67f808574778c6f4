"""Errors of the server's own requests."""

from typing import Final

from penstock.client.errors import AuthorizationError, PulsarException
from penstock.engines.attached.errors import engine_error
from penstock.model.errors import PenstockError

_NOT_ALLOWED: Final = "the cluster does not allow it to this server"


def own_error(error: PulsarException, what: str = "") -> PenstockError:
    """The same of what the server asks for as itself, whoever its caller is."""
    if isinstance(error, AuthorizationError):
        what = f"{what}: {_NOT_ALLOWED}" if what else _NOT_ALLOWED
    return engine_error(error, what)

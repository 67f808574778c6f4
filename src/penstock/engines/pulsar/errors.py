"""The cluster's errors as the endpoints answer them."""

from penstock.client.errors import AuthenticationError, PulsarException
from penstock.model.errors import ErrorKind, PenstockError


def penstock_error(error: PulsarException) -> PenstockError:
    """An error of the client; credentials that the cluster refuses are the server's, never the caller's."""
    if isinstance(error, AuthenticationError):
        return PenstockError(
            ErrorKind.UNAVAILABLE, f"the cluster refuses the credentials of this server: {error.message}"
        )
    return PenstockError(error.kind, error.message)

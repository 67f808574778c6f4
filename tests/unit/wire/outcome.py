"""What comes of a call that may be refused."""

from collections.abc import Callable

from penstock.model.errors import ErrorKind, PenstockError


def refusal(call: Callable[[], object]) -> ErrorKind | None:
    """The kind of error that `call` raises, None when it succeeds; any other exception goes through."""
    try:
        call()
    except PenstockError as error:
        return error.kind
    return None

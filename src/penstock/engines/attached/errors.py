"""What the cluster refuses, as the endpoints answer it: one place for all that the engine asks of it."""

import re
from typing import Final

from penstock.client import errors
from penstock.client.errors import (
    AlreadyClosed,
    AuthenticationError,
    AuthorizationError,
    BrokerMetadataError,
    ConsumerBusy,
    NotAllowedError,
    ProducerBusy,
    ProducerFenced,
    PulsarException,
    Timeout,
    TopicNotFound,
    UnknownError,
)
from penstock.model.errors import ErrorKind, PenstockError

# Java's names of exceptions, and what repeats the sentence before it.
_JAVA: Final = re.compile(r"(?:[\w$]+\.){2,}[\w$]*(?:Exception|Error)(?:: ?|\Z)")
_CAUSE: Final = re.compile(r" caused by (?:[\w$]+\.)+[\w$]*(?:Exception|Error): .*\Z")
_REASON_MAX: Final = 500  # characters
# Errors whose number says less than their text does: the kind by what the text holds, the first that fits.
_BY_TEXT: Final[dict[type[PulsarException], tuple[tuple[str, ErrorKind], ...]]] = {
    ProducerBusy: (
        ("exclusive producer", ErrorKind.EXCLUSIVE_PRODUCER),
        ("existing producer", ErrorKind.EXCLUSIVE_PRODUCER),
    ),
    ProducerFenced: (("existing exclusive producer", ErrorKind.PRODUCER_FENCED),),
    ConsumerBusy: (("type", ErrorKind.SUBSCRIPTION_BUSY), ("exclusive", ErrorKind.SUBSCRIPTION_BUSY)),
    NotAllowedError: (
        ("maximum message size", ErrorKind.TOO_LARGE),
        ("Exceed maximum", ErrorKind.TOO_LARGE),
        ("topics limit", ErrorKind.TOO_MANY_TOPICS),
    ),
    TopicNotFound: (("Namespace not found", ErrorKind.NAMESPACE_NOT_FOUND),),
    BrokerMetadataError: (
        ("Policies not found", ErrorKind.NAMESPACE_NOT_FOUND),
        ("Namespace not found", ErrorKind.NAMESPACE_NOT_FOUND),
        ("Namespace missing", ErrorKind.NAMESPACE_NOT_FOUND),
        ("must be encrypted", ErrorKind.BAD_PARAMETER),
        ("Encryption is required", ErrorKind.BAD_PARAMETER),
        ("attempting to unsubscribe", ErrorKind.SUBSCRIPTION_SHARED),
    ),
}
# Kinds of the client that mean something else to the callers of this server.
_KINDS: Final[dict[type[PulsarException], ErrorKind]] = {
    AlreadyClosed: ErrorKind.UNAVAILABLE,
    AuthenticationError: ErrorKind.UNAVAILABLE,  # it is the server that is refused, not its caller
    BrokerMetadataError: ErrorKind.UNAVAILABLE,
    errors.LookupError: ErrorKind.UNAVAILABLE,
    Timeout: ErrorKind.UNAVAILABLE,
    UnknownError: ErrorKind.UNAVAILABLE,
}
_NOT_ALLOWED: Final = "the cluster does not allow it to this server"


def reason_of(text: str) -> str:
    """What a broker says, without Java's names of exceptions and stacks, on one line."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("\tat ", "Caused by: "))]
    said = _JAVA.sub("", _CAUSE.sub("", " ".join(lines))).strip()
    return said if len(said) <= _REASON_MAX else said[:_REASON_MAX] + "…"


def engine_error(error: PenstockError, what: str = "") -> PenstockError:
    """An error of the cluster's; `what` begins the sentence, such as a topic's name. An error of this process is returned as
    it is."""
    if not isinstance(error, PulsarException):
        return error
    text = reason_of(error.message)
    kind = next(
        (kind for part, kind in _BY_TEXT.get(type(error), ()) if part.lower() in text.lower()),
        _KINDS.get(type(error), error.kind),
    )
    if type(error) is AuthenticationError:
        text = f"the cluster refuses the credentials of this server: {text}"
    elif isinstance(error, UnknownError):
        text = f"the cluster failed: {text or 'it does not say why'}"
    elif not text:
        text = f"the cluster refuses it ({type(error).__name__})"
    return PenstockError(kind, f"{what}: {text}" if what else text)


def own_error(error: PulsarException, what: str = "") -> PenstockError:
    """The same for requests that the server makes as itself."""
    if isinstance(error, AuthorizationError):
        what = f"{what}: {_NOT_ALLOWED}" if what else _NOT_ALLOWED
    return engine_error(error, what)

"""The base of the client's errors, and those that the client finds itself."""

from __future__ import annotations

import builtins
from typing import ClassVar

from penstock.client.result import Result
from penstock.model.errors import ErrorKind, PenstockError

__all__ = [
    "AlreadyClosed",
    "ConnectError",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotConnected",
    "OperationNotSupported",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Timeout",
    "TimeoutError",
]


class PulsarException(PenstockError):
    """Any failure of the client's. `can_retry` says whether the same call may succeed later."""

    KIND: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    can_retry: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(self.KIND, message or type(self).__name__)

    def error(self) -> Result:
        """The error's code, as the official asyncio client tells it."""
        return Result.__members__.get(type(self).__name__, Result.UnknownError)

    @property
    def retriable(self) -> bool:
        return self.can_retry

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"

    def __reduce__(self) -> tuple[type[PulsarException], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


class InvalidConfiguration(PulsarException):
    """Arguments that cannot be used, or not together."""

    KIND = ErrorKind.BAD_PARAMETER


class Timeout(PulsarException, builtins.TimeoutError):
    """No answer, no message or no reply in time."""

    KIND = ErrorKind.REQUEST_TIMEOUT
    can_retry = True


TimeoutError = Timeout  # noqa: A001  # the name PIP-371 speaks of


class LookupError(PulsarException):  # noqa: A001
    """The broker of a topic cannot be found."""

    can_retry = True


class ConnectError(PulsarException):
    """The broker cannot be reached."""

    KIND = ErrorKind.UNAVAILABLE
    can_retry = True


class ReadError(PulsarException):
    """The connection broke, or carried what is not the protocol."""

    KIND = ErrorKind.UNAVAILABLE
    can_retry = True


class ErrorGettingAuthenticationData(PulsarException):
    """The function that gives the token failed."""

    KIND = ErrorKind.UNAUTHENTICATED


class NotConnected(PulsarException):
    """There is no connection now; one is being made."""

    KIND = ErrorKind.UNAVAILABLE
    can_retry = True


class AlreadyClosed(PulsarException):
    """The client, producer, consumer or reader was closed."""


class InvalidMessage(PulsarException):
    """A value that does not fit its schema, or a message that cannot be sent."""

    KIND = ErrorKind.BAD_MESSAGE


class ConsumerNotInitialized(PulsarException):
    """The consumer never came to be."""


class ProducerNotInitialized(PulsarException):
    """The producer never came to be."""


class InvalidUrl(PulsarException):
    """A service URL that cannot be understood."""

    KIND = ErrorKind.BAD_PARAMETER


class OperationNotSupported(PulsarException):
    """This client or this broker does not know how."""

    KIND = ErrorKind.BAD_PARAMETER


class ProducerQueueIsFull(PulsarException):
    """As many messages wait for receipts as `max_pending_messages` allows."""

    can_retry = True


class MessageTooBig(PulsarException):
    """Larger than the broker takes; `chunking_enabled` splits such messages."""

    KIND = ErrorKind.TOO_LARGE


class CryptoError(PulsarException):
    """A message is encrypted and cannot be opened."""


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """A shared subscription has no order to acknowledge up to."""

    KIND = ErrorKind.BAD_PARAMETER


class MemoryBufferIsFull(PulsarException):
    """The client's memory is used up."""


class Interrupted(PulsarException):
    """The wait was interrupted."""

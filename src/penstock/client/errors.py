"""Everything the client may raise, by the official client's names, and the broker's errors as these.

PenstockError
└── PulsarException
    ├── Timeout (also builtins.TimeoutError; TimeoutError is another name for it)
    ├── ConnectError, NotConnected, AlreadyClosed, ServiceUnitNotReady, TooManyLookupRequestException …
    ├── ProducerBusy, ProducerFenced, ProducerQueueIsFull, MessageTooBig, TopicTerminated …
    └── ConsumerBusy, TopicNotFound, SubscriptionNotFound, IncompatibleSchema, InvalidMessage …
"""

from __future__ import annotations

import builtins
from typing import ClassVar, Final

from penstock.model.errors import ErrorKind, PenstockError

from .result import Result

__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TimeoutError",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
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


class UnknownError(PulsarException):
    """The broker failed without saying why."""


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


class AuthenticationError(PulsarException):
    """The broker does not know who this is."""

    KIND = ErrorKind.UNAUTHENTICATED


class AuthorizationError(PulsarException):
    """The broker knows who this is, and says no."""

    KIND = ErrorKind.FORBIDDEN


class ErrorGettingAuthenticationData(PulsarException):
    """The function that gives the token failed."""

    KIND = ErrorKind.UNAUTHENTICATED


class BrokerMetadataError(PulsarException):
    """The broker's records of its topics cannot be read or written now."""


class BrokerPersistenceError(PulsarException):
    """The broker could not store a message."""

    KIND = ErrorKind.STORAGE_FAILED
    can_retry = True


class ChecksumError(PulsarException):
    """What arrived is not what was sent."""

    KIND = ErrorKind.CHECKSUM


class ConsumerBusy(PulsarException):
    """The subscription has a consumer, or is of another type."""

    KIND = ErrorKind.CONSUMER_BUSY


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


class ProducerBusy(PulsarException):
    """Another producer of this name is connected."""

    KIND = ErrorKind.PRODUCER_BUSY


class TooManyLookupRequestException(PulsarException):
    """The broker asks to slow down."""

    KIND = ErrorKind.TOO_MANY_REQUESTS
    can_retry = True


class InvalidTopicName(PulsarException):
    """A name that no topic can have."""

    KIND = ErrorKind.INVALID_NAME


class InvalidUrl(PulsarException):
    """A service URL that cannot be understood."""

    KIND = ErrorKind.BAD_PARAMETER


class ServiceUnitNotReady(PulsarException):
    """The topic is moving; look it up again."""

    KIND = ErrorKind.UNAVAILABLE
    can_retry = True


class OperationNotSupported(PulsarException):
    """This client or this broker does not know how."""

    KIND = ErrorKind.BAD_PARAMETER


class ProducerBlockedQuotaExceededError(PulsarException):
    """The backlog's quota is used up; the broker holds producers back."""

    KIND = ErrorKind.BACKLOG_QUOTA_HOLD
    can_retry = True


class ProducerBlockedQuotaExceededException(PulsarException):
    """The backlog's quota is used up; the broker refuses producers."""

    KIND = ErrorKind.BACKLOG_QUOTA_EXCEPTION


class ProducerQueueIsFull(PulsarException):
    """As many messages wait for receipts as `max_pending_messages` allows."""

    can_retry = True


class MessageTooBig(PulsarException):
    """Larger than the broker takes; `chunking_enabled` splits such messages."""

    KIND = ErrorKind.TOO_LARGE


class TopicNotFound(PulsarException):
    """There is no such topic."""

    KIND = ErrorKind.TOPIC_NOT_FOUND


class SubscriptionNotFound(PulsarException):
    """There is no such subscription."""

    KIND = ErrorKind.SUBSCRIPTION_NOT_FOUND


class ConsumerNotFound(PulsarException):
    """The broker does not know the consumer (any more)."""

    KIND = ErrorKind.CONSUMER_NOT_FOUND


class UnsupportedVersionError(PulsarException):
    """The broker speaks another version of the protocol."""


class TopicTerminated(PulsarException):
    """The topic takes no more messages."""

    KIND = ErrorKind.TOPIC_TERMINATED


class CryptoError(PulsarException):
    """A message is encrypted and cannot be opened."""


class IncompatibleSchema(PulsarException):
    """A schema that may not follow the topic's."""

    KIND = ErrorKind.INCOMPATIBLE_SCHEMA


class ConsumerAssignError(PulsarException):
    """Key ranges that another consumer has."""

    KIND = ErrorKind.KEY_RANGE_TAKEN


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """A shared subscription has no order to acknowledge up to."""

    KIND = ErrorKind.BAD_PARAMETER


class TransactionCoordinatorNotFoundError(PulsarException):
    """Nobody coordinates transactions."""


class InvalidTxnStatusError(PulsarException):
    """The transaction is over."""


class NotAllowedError(PulsarException):
    """The broker does not allow it."""

    KIND = ErrorKind.BAD_PARAMETER


class TransactionConflict(PulsarException):
    """Another transaction has it."""


class TransactionNotFound(PulsarException):
    """There is no such transaction."""


class ProducerFenced(PulsarException):
    """Another producer has the topic for itself."""

    KIND = ErrorKind.PRODUCER_FENCED


class MemoryBufferIsFull(PulsarException):
    """The client's memory is used up."""


class Interrupted(PulsarException):
    """The wait was interrupted."""


_BY_SERVER_ERROR: Final[dict[int, type[PulsarException]]] = {
    0: UnknownError,
    1: BrokerMetadataError,
    2: BrokerPersistenceError,
    3: AuthenticationError,
    4: AuthorizationError,
    5: ConsumerBusy,
    6: ServiceUnitNotReady,
    7: ProducerBlockedQuotaExceededError,
    8: ProducerBlockedQuotaExceededException,
    9: ChecksumError,
    10: UnsupportedVersionError,
    11: TopicNotFound,
    12: SubscriptionNotFound,
    13: ConsumerNotFound,
    14: TooManyLookupRequestException,
    15: TopicTerminated,
    16: ProducerBusy,
    17: InvalidTopicName,
    18: IncompatibleSchema,
    19: ConsumerAssignError,
    20: TransactionCoordinatorNotFoundError,
    21: InvalidTxnStatusError,
    22: NotAllowedError,
    23: TransactionConflict,
    24: TransactionNotFound,
    25: ProducerFenced,
}


def server_error(number: int, message: str) -> PulsarException:
    """The broker's `ServerError` as an exception."""
    return _BY_SERVER_ERROR.get(number, UnknownError)(message)

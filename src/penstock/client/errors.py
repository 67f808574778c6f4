"""Everything the client may raise, by the official client's names: first its own errors, then those a broker answers.

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

from .enums import Result

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

_BY_NUMBER: Final[dict[int, type[PulsarException]]] = {}


class PulsarException(PenstockError):
    """Any failure of the client's. `can_retry` says whether the same call may succeed later.

    A subclass says of which kind it is, whether a retry may help, and its number among the protocol's `ServerError`s.
    """

    KIND: ClassVar[ErrorKind] = ErrorKind.INTERNAL
    can_retry: ClassVar[bool] = False
    passing: ClassVar[bool] = False
    """Whether a connection that was there before may be made again all the same: the broker may not have noticed yet that
    the old one is gone, or is just starting."""

    def __init_subclass__(
        cls,
        kind: ErrorKind | None = None,
        retry: bool = False,
        number: int | None = None,
        passing: bool = False,
    ) -> None:
        super().__init_subclass__()
        cls.KIND = kind or cls.KIND
        cls.can_retry = retry or cls.can_retry
        cls.passing = passing or cls.passing
        if number is not None:
            _BY_NUMBER[number] = cls

    def __init__(self, message: str = "") -> None:
        super().__init__(self.KIND, message or type(self).__name__)

    def error(self) -> Result:
        """The error's code, as the official asyncio client reports it."""
        return Result.__members__.get(type(self).__name__, Result.UnknownError)

    @property
    def retriable(self) -> bool:
        return self.can_retry

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"

    def __reduce__(self) -> tuple[type[PulsarException], tuple[str]]:  # type: ignore[override]
        return type(self), (self.message,)


def server_error(number: int, message: str) -> PulsarException:
    """The broker's `ServerError` as an exception."""
    return _BY_NUMBER.get(number, UnknownError)(message)


class InvalidConfiguration(PulsarException, kind=ErrorKind.BAD_PARAMETER):
    """Arguments that cannot be used, or not together."""


class Timeout(PulsarException, builtins.TimeoutError, kind=ErrorKind.REQUEST_TIMEOUT, retry=True):
    """No answer, no message or no reply in time."""


TimeoutError = Timeout  # noqa: A001  # the name PIP-371 speaks of


class LookupError(PulsarException, retry=True):  # noqa: A001
    """The broker of a topic cannot be found."""


class ConnectError(PulsarException, kind=ErrorKind.UNAVAILABLE, retry=True):
    """The broker cannot be reached."""


class ReadError(PulsarException, kind=ErrorKind.UNAVAILABLE, retry=True):
    """The connection broke, or violated the protocol."""


class ErrorGettingAuthenticationData(PulsarException, kind=ErrorKind.UNAUTHENTICATED):
    """The function that gives the token failed."""


class NotConnected(PulsarException, kind=ErrorKind.UNAVAILABLE, retry=True):
    """Not connected; a connection is being opened."""


class AlreadyClosed(PulsarException):
    """The client, producer, consumer or reader was closed."""


class InvalidMessage(PulsarException, kind=ErrorKind.BAD_MESSAGE):
    """A value that does not fit its schema, or a message that cannot be sent."""


class ConsumerNotInitialized(PulsarException):
    """The consumer never came to be."""


class ProducerNotInitialized(PulsarException):
    """The producer never came to be."""


class InvalidUrl(PulsarException, kind=ErrorKind.BAD_PARAMETER):
    """A service URL that cannot be understood."""


class OperationNotSupported(PulsarException, kind=ErrorKind.BAD_PARAMETER):
    """This client or this broker does not know how."""


class ProducerQueueIsFull(PulsarException, retry=True):
    """As many messages wait for receipts as `max_pending_messages` allows."""


class MessageTooBig(PulsarException, kind=ErrorKind.TOO_LARGE):
    """Larger than the broker takes; `chunking_enabled` splits such messages."""


class CryptoError(PulsarException):
    """A message is encrypted and cannot be opened."""


class CumulativeAcknowledgementNotAllowedError(PulsarException, kind=ErrorKind.BAD_PARAMETER):
    """A shared subscription has no order to acknowledge up to."""


class MemoryBufferIsFull(PulsarException):
    """The client's memory is used up."""


class Interrupted(PulsarException):
    """The wait was interrupted."""


class UnknownError(PulsarException, number=0, passing=True):
    """The broker failed without saying why."""


class AuthenticationError(PulsarException, kind=ErrorKind.UNAUTHENTICATED, number=3):
    """Authentication failed."""


class AuthorizationError(PulsarException, kind=ErrorKind.FORBIDDEN, number=4):
    """The role has no permission."""


class BrokerMetadataError(PulsarException, number=1, passing=True):
    """The broker's records of its topics cannot be read or written now."""


class BrokerPersistenceError(PulsarException, kind=ErrorKind.STORAGE_FAILED, retry=True, number=2):
    """The broker could not store a message."""


class ChecksumError(PulsarException, kind=ErrorKind.CHECKSUM, number=9):
    """The message was damaged in transit: its checksum is wrong."""


class ConsumerBusy(PulsarException, kind=ErrorKind.CONSUMER_BUSY, number=5, passing=True):
    """The subscription has a consumer, or is of another type."""


class ProducerBusy(PulsarException, kind=ErrorKind.PRODUCER_BUSY, number=16, passing=True):
    """Another producer of this name is connected."""


class TooManyLookupRequestException(PulsarException, kind=ErrorKind.TOO_MANY_REQUESTS, retry=True, number=14):
    """The broker asks to slow down."""


class InvalidTopicName(PulsarException, kind=ErrorKind.INVALID_NAME, number=17):
    """A name that no topic can have."""


class ServiceUnitNotReady(PulsarException, kind=ErrorKind.UNAVAILABLE, retry=True, number=6):
    """The topic is moving; look it up again."""


class ProducerBlockedQuotaExceededError(
    PulsarException, kind=ErrorKind.BACKLOG_QUOTA_HOLD, retry=True, number=7
):
    """The backlog's quota is used up; the broker holds producers back."""


class ProducerBlockedQuotaExceededException(
    PulsarException, kind=ErrorKind.BACKLOG_QUOTA_EXCEPTION, number=8
):
    """The backlog's quota is used up; the broker refuses producers."""


class TopicNotFound(PulsarException, kind=ErrorKind.TOPIC_NOT_FOUND, number=11):
    """The topic does not exist."""


class SubscriptionNotFound(PulsarException, kind=ErrorKind.SUBSCRIPTION_NOT_FOUND, number=12):
    """The subscription does not exist."""


class ConsumerNotFound(PulsarException, kind=ErrorKind.CONSUMER_NOT_FOUND, number=13):
    """The broker does not know the consumer (any more)."""


class UnsupportedVersionError(PulsarException, number=10):
    """The broker speaks another version of the protocol."""


class TopicTerminated(PulsarException, kind=ErrorKind.TOPIC_TERMINATED, number=15):
    """The topic takes no more messages."""


class IncompatibleSchema(PulsarException, kind=ErrorKind.INCOMPATIBLE_SCHEMA, number=18):
    """A schema that may not follow the topic's."""


class ConsumerAssignError(PulsarException, kind=ErrorKind.KEY_RANGE_TAKEN, number=19):
    """Key ranges that another consumer has."""


class TransactionCoordinatorNotFoundError(PulsarException, number=20):
    """No transaction coordinator was found."""


class InvalidTxnStatusError(PulsarException, number=21):
    """The transaction is over."""


class NotAllowedError(PulsarException, kind=ErrorKind.BAD_PARAMETER, number=22):
    """The broker does not allow it."""


class TransactionConflict(PulsarException, number=23):
    """Another transaction has it."""


class TransactionNotFound(PulsarException, number=24):
    """The transaction does not exist."""


class ProducerFenced(PulsarException, kind=ErrorKind.PRODUCER_FENCED, number=25):
    """Another producer has the topic for itself."""

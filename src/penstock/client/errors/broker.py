"""The errors that a broker answers with, and its `ServerError` numbers."""

from __future__ import annotations

from typing import Final

from penstock.model.errors import ErrorKind

from .own import PulsarException

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "IncompatibleSchema",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "NotAllowedError",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
]


class UnknownError(PulsarException):
    """The broker failed without saying why."""


class AuthenticationError(PulsarException):
    """The broker does not know who this is."""

    KIND = ErrorKind.UNAUTHENTICATED


class AuthorizationError(PulsarException):
    """The broker knows who this is, and says no."""

    KIND = ErrorKind.FORBIDDEN


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


class ServiceUnitNotReady(PulsarException):
    """The topic is moving; look it up again."""

    KIND = ErrorKind.UNAVAILABLE
    can_retry = True


class ProducerBlockedQuotaExceededError(PulsarException):
    """The backlog's quota is used up; the broker holds producers back."""

    KIND = ErrorKind.BACKLOG_QUOTA_HOLD
    can_retry = True


class ProducerBlockedQuotaExceededException(PulsarException):
    """The backlog's quota is used up; the broker refuses producers."""

    KIND = ErrorKind.BACKLOG_QUOTA_EXCEPTION


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


class IncompatibleSchema(PulsarException):
    """A schema that may not follow the topic's."""

    KIND = ErrorKind.INCOMPATIBLE_SCHEMA


class ConsumerAssignError(PulsarException):
    """Key ranges that another consumer has."""

    KIND = ErrorKind.KEY_RANGE_TAKEN


class TransactionCoordinatorNotFoundError(PulsarException):
    """There is no coordinator of transactions."""


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

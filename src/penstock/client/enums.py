"""The choices of the client's arguments, by the official client's names and the wire's numbers."""

from enum import Enum, IntEnum
from typing import Final


class ConsumerType(IntEnum):
    """How consumers share a subscription."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


# Of these, consumers share the messages: none may acknowledge up to a message, and single ones are delivered again.
SHARED_TYPES: Final = (ConsumerType.Shared, ConsumerType.KeyShared)


class InitialPosition(IntEnum):
    """The initial position of a new subscription."""

    Latest = 0
    Earliest = 1


class CompressionType(IntEnum):
    """How payloads are compressed."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class PartitionsRoutingMode(IntEnum):
    """How messages without a key find their partition."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2


class BatchingType(IntEnum):
    """Which messages share a batch: any, or those of one key (what Key_Shared needs)."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(IntEnum):
    """How a producer shares its topic."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class KeySharedMode(IntEnum):
    """How keys are divided among the consumers: by the broker, or by themselves."""

    AutoSplit = 0
    Sticky = 1


class RegexSubscriptionMode(IntEnum):
    """Which topics a pattern is tried on."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class ConsumerCryptoFailureAction(IntEnum):
    """What becomes of a message that is encrypted: it stays, is acknowledged, or is handed out as it is."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class KeyValueEncodingType(Enum):
    """The place of the key of a key/value message: the payload, or the message's key."""

    INLINE = "INLINE"
    SEPARATED = "SEPARATED"


class Result(Enum):
    """The result given to the callback of the blocking `send_async`: Ok, or the name of an error."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45

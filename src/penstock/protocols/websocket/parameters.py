"""What the query of an upgrade says about a producer, a consumer or a reader (Pulsar's WebSocket API)."""

from enum import Enum
from typing import Final

import msgspec

from penstock.model.message import EncryptionKey
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import DEFAULT_NAMESPACE, NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, DeadLetter, ProducerOptions, Routing, SubscriptionType

from .encryption import parse_keys
from .upgrade import Query, bad

WINDOW_MAX: Final = 1000  # Pulsar's cap of receiverQueueSize
PENDING_DEFAULT: Final = 1000  # maxPendingMessages as documented
ACK_TIMEOUT_MS_MIN: Final = 1000
REDELIVERIES_DEFAULT: Final = 16  # if only deadLetterTopic is given; Pulsar's MAX_RECONSUMETIMES
TOPICS_MAX: Final = 1000  # of one v3 consumer: each is attached to on the way
PATTERN_CHARACTERS_MAX: Final = 1000


class Compression(Enum):
    """Accepted, as producers name it; messages are stored as they come."""

    NONE = "NONE"
    LZ4 = "LZ4"
    ZLIB = "ZLIB"
    ZSTD = "ZSTD"
    SNAPPY = "SNAPPY"


class Hashing(Enum):
    """How a key chooses its partition (hashingScheme)."""

    JAVA_STRING = "JavaStringHash"
    MURMUR3_32 = "Murmur3_32Hash"


_PARTITIONERS: Final = {
    None: None,
    Hashing.JAVA_STRING: Partitioner.JAVA,
    Hashing.MURMUR3_32: Partitioner.MURMUR3,
}


class SubscriptionMode(Enum):
    """Whether a subscription outlives its consumers."""

    DURABLE = "Durable"
    NON_DURABLE = "NonDurable"


class InitialPosition(Enum):
    """The initial position of a new subscription."""

    LATEST = "Latest"
    EARLIEST = "Earliest"


class ProducerParameters(msgspec.Struct, frozen=True):
    """A producer's query."""

    options: ProducerOptions
    send_timeout_ms: int  # 0: none
    batching: bool
    batch_messages_max: int
    pending_max: int
    keys: tuple[EncryptionKey, ...] = ()  # payloads come encrypted (PIP-290)


class TopicsPattern(msgspec.Struct, frozen=True):
    """A v3 consumer's pattern, `tenant/namespace/regex`, and its namespace."""

    pattern: str
    namespace: NamespaceName
    domain: str


class ConsumerParameters(msgspec.Struct, frozen=True):
    """A consumer's query; `topics` and `pattern` are v3's."""

    options: ConsumerOptions
    topics: tuple[TopicName, ...] = ()
    pattern: TopicsPattern | None = None


def producer_parameters(query: Query) -> ProducerParameters:
    """Read 1.2; raises BAD_PARAMETER, and INTERNAL for encryption on the server's side."""
    keys = parse_keys(query.text("encryptionKeys"))
    batching = query.flag("batchingEnabled") and not keys
    name = query.name("producerName")
    options = ProducerOptions(
        name=name,
        shared_name=bool(name),
        initial_sequence_id=query.long("initialSequenceId", -1),
        encrypted=bool(keys),
        partitioner=_PARTITIONERS[query.choice("hashingScheme", Hashing, None)],
        # CustomPartition is accepted and does what the default does, as in Pulsar.
        routing=query.choice("messageRoutingMode", Routing, Routing.SINGLE),
    )
    query.choice("compressionType", Compression, Compression.NONE)
    made = ProducerParameters(
        options=options,
        send_timeout_ms=query.integer("sendTimeoutMillis", 30_000, least=0),
        batching=batching,
        batch_messages_max=query.integer("batchingMaxMessages", 1000) if batching else 1000,
        pending_max=query.integer("maxPendingMessages", 0, least=0) if batching else 0,
        keys=keys,
    )
    if batching:
        query.integer(
            "batchingMaxPublishDelay", 1, least=1
        )  # nothing waits here: what has come goes together
    return made


def consumer_parameters(
    query: Query, *, multi: bool, outbox_bytes_max: int = 4 * 1024 * 1024
) -> ConsumerParameters:
    """Read 1.3; raises BAD_PARAMETER. `multi` is v3, whose query names the topics."""
    ack_timeout_ms = query.integer("ackTimeoutMillis", 0)
    if ack_timeout_ms != 0 and ack_timeout_ms < ACK_TIMEOUT_MS_MIN:
        raise bad(f"Ack timeout should be greater than {ACK_TIMEOUT_MS_MIN} ms")
    mode = query.choice("subscriptionMode", SubscriptionMode, SubscriptionMode.DURABLE)
    position = query.choice("subscriptionInitialPosition", InitialPosition, InitialPosition.LATEST)
    pull = query.flag("pullMode")
    window = max(1, min(query.integer("receiverQueueSize", WINDOW_MAX, least=0), WINDOW_MAX))
    options = ConsumerOptions(
        name=query.name("consumerName"),
        type=query.choice("subscriptionType", SubscriptionType, SubscriptionType.EXCLUSIVE),
        durable=mode is SubscriptionMode.DURABLE,
        start=LATEST if position is InitialPosition.LATEST else EARLIEST,
        priority=query.integer("priorityLevel", 0, least=0),
        window=None if pull else window,
        flow=pull,
        outbox_bytes_max=outbox_bytes_max,
        ack_timeout_ms=ack_timeout_ms,
        nack_delay_ms=query.integer("negativeAckRedeliveryDelay", 60_000, least=0),
        dead_letter=_dead_letter(query),
    )
    return _with_topics(query, options) if multi else ConsumerParameters(options)


def _dead_letter(query: Query) -> DeadLetter | None:
    if "maxRedeliverCount" not in query and "deadLetterTopic" not in query:
        return None
    count = query.integer("maxRedeliverCount", REDELIVERIES_DEFAULT)
    if count <= 0:
        raise bad("MaxRedeliverCount must be > 0.")
    topic = query.name("deadLetterTopic")
    return DeadLetter(count, str(TopicName.parse(topic)) if topic else "")


def _with_topics(query: Query, options: ConsumerOptions) -> ConsumerParameters:
    topics, pattern = query.text("topics"), query.text("topicsPattern")
    if not topics and not pattern:
        raise bad("Should set topics or topicsPattern")
    if topics and pattern:
        raise bad("Topics must be null when use topicsPattern")
    if pattern:
        return ConsumerParameters(options, pattern=parse_pattern(pattern))
    names = dict.fromkeys(TopicName.parse(t.strip()) for t in (topics or "").split(",") if t.strip())
    if not 0 < len(names) <= TOPICS_MAX:
        raise bad(f"topics must name between 1 and {TOPICS_MAX} topics")
    return ConsumerParameters(options, topics=tuple(names))


def parse_pattern(text: str) -> TopicsPattern:
    """Read `[domain://][tenant/namespace/]regex`; raises BAD_PARAMETER, INVALID_NAME."""
    if len(text) > PATTERN_CHARACTERS_MAX:
        raise bad(f"topicsPattern is longer than {PATTERN_CHARACTERS_MAX} characters")
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = "persistent", text
    if domain not in ("persistent", "non-persistent"):
        raise bad(f"invalid domain {domain[:80]!r} in topicsPattern")
    tenant, _, remainder = rest.partition("/")
    namespace, separator, local = remainder.partition("/")
    if not separator:
        if "/" in rest or "://" in text:
            raise bad("topicsPattern must be a regular expression, or tenant/namespace/ and one")
        return TopicsPattern(f"{DEFAULT_NAMESPACE}/(?:{rest})", DEFAULT_NAMESPACE, domain)
    place = NamespaceName.of(tenant, namespace)
    # Tenant and namespace are names here, and a name may hold a dot: it must not match as one.
    prefix = f"{tenant}/{namespace}/".replace(".", r"\.")
    return TopicsPattern(f"{prefix}(?:{local})", place, domain)


class ReaderParameters(msgspec.Struct, frozen=True):
    """A reader's query."""

    name: str
    start: MessageId  # exclusive
    window: int


def reader_parameters(query: Query) -> ReaderParameters:
    """Read 1.4; raises BAD_PARAMETER."""
    # A `+` of base64 that was not escaped comes as a space; no id has one.
    start = (query.text("messageId") or "latest").replace(" ", "+")
    return ReaderParameters(
        name=query.name("readerName"),
        start=MessageId.parse(start),
        window=max(1, min(query.integer("receiverQueueSize", WINDOW_MAX, least=0), WINDOW_MAX)),
    )

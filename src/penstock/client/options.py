"""The further arguments of `create_producer`, `subscribe` and `create_reader`, alike for both drivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from .authentication import Authentication
from .enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from .interceptor import ProducerInterceptor
from .message import Message
from .policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy

MessageRouter = Callable[[Message, int], int]


class ProducerOptions(TypedDict, total=False):
    """How a producer sends."""

    initial_sequence_id: int | None
    """The sequence id before the first message's; by default the broker's last one of this producer's name."""
    send_timeout_millis: int
    """After how long without a receipt a message fails: 30000; 0 for never."""
    compression_type: CompressionType
    """How payloads are compressed: NONE."""
    max_pending_messages: int
    """How many messages may wait for receipts: 1000 for each partition."""
    max_pending_messages_across_partitions: int
    """The same, for all partitions together: 50000."""
    block_if_queue_full: bool
    """Whether sending waits for room (False); else it fails with ProducerQueueIsFull."""
    batching_enabled: bool
    """Whether several messages may become one entry: True for asyncio, False for the blocking client."""
    batching_max_messages: int
    """How many at most: 1000."""
    batching_max_allowed_size_in_bytes: int
    """Of how many bytes at most: 131072."""
    batching_max_publish_delay_ms: int
    """How long a message may wait for others: 10. An awaited one waits only while an entry is on its way."""
    chunking_enabled: bool
    """Whether messages larger than the broker takes are split: False."""
    message_routing_mode: PartitionsRoutingMode
    """Which partition a message without a key goes to: RoundRobinDistribution."""
    lazy_start_partitioned_producers: bool
    """Whether a partition is connected to when its first message comes: False."""
    properties: dict[str, str] | None
    """Texts that tell the broker about the producer."""
    batching_type: BatchingType
    """Whether batches are made by key: Default."""
    encryption_key: str | None
    """Not supported."""
    crypto_key_reader: Any
    """Not supported."""
    access_mode: ProducerAccessMode
    """How the topic is shared with other producers: Shared."""
    message_router: MessageRouter | None
    """A function of a message and the number of partitions; returns the partition."""
    multi_schema: bool
    """Whether messages may have schemas of their own (PIP-43): True."""
    interceptors: Sequence[ProducerInterceptor]
    """What watches and changes the messages."""
    initial_subscription_name: str | None
    """A subscription to make on the topic."""


class ConsumerOptions(TypedDict, total=False):
    """How a consumer receives."""

    receiver_queue_size: int
    """How many messages the broker may send ahead: 1000; 0 sends one for each `receive`."""
    max_total_receiver_queue_size_across_partitions: int
    """The same, for all topics together: 50000."""
    consumer_name: str | None
    """A name of its own."""
    unacked_messages_timeout_ms: int | None
    """After how long without an acknowledgement a message comes again: never."""
    broker_consumer_stats_cache_time_ms: int
    """Taken for the official client's sake."""
    negative_ack_redelivery_delay_ms: int
    """After how long a refused message comes again: 60000."""
    is_read_compacted: bool
    """Whether only the last message of each key is received: False."""
    properties: dict[str, str] | None
    """Texts that tell the broker about the consumer."""
    pattern_auto_discovery_period: int
    """How often new topics are looked for, in seconds: 60."""
    initial_position: InitialPosition
    """Where a new subscription begins: Latest."""
    crypto_key_reader: Any
    """Not supported."""
    replicate_subscription_state_enabled: bool
    """Whether other clusters follow the subscription: False."""
    max_pending_chunked_message: int
    """How many split messages may be incomplete at once: 10."""
    auto_ack_oldest_chunked_message_on_queue_full: bool
    """Taken for the official client's sake."""
    start_message_id_inclusive: bool
    """Whether `seek` to a message delivers it, too: False."""
    batch_receive_policy: ConsumerBatchReceivePolicy | None
    """When `batch_receive` has enough: 10 MiB or 100 ms."""
    key_shared_policy: ConsumerKeySharedPolicy | None
    """How a KeyShared consumer gets its keys."""
    batch_index_ack_enabled: bool
    """Whether messages of a batch are acknowledged one by one: False."""
    regex_subscription_mode: RegexSubscriptionMode
    """Which topics a pattern is tried on: PersistentOnly."""
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    """When a message goes to another topic instead (Shared and KeyShared)."""
    crypto_failure_action: ConsumerCryptoFailureAction
    """What becomes of a message that is encrypted: FAIL."""
    is_pattern_topic: bool
    """Whether `topic`, a text, is a pattern: False."""


class ReaderOptions(TypedDict, total=False):
    """How a reader reads."""

    receiver_queue_size: int
    """How many messages the broker may send ahead: 1000."""
    reader_name: str | None
    """A name of its own."""
    subscription_role_prefix: str | None
    """What the name of its passing subscription begins with."""
    is_read_compacted: bool
    """Whether only the last message of each key is read: False."""
    crypto_key_reader: Any
    """Not supported."""
    start_message_id_inclusive: bool
    """Whether the message to begin with is delivered, too: False."""
    crypto_failure_action: ConsumerCryptoFailureAction
    """What becomes of a message that is encrypted: FAIL."""


class ClientOptions(TypedDict, total=False):
    """How a client connects."""

    connection_timeout_ms: int
    """How long to wait for a connection: 10000."""
    listener_name: str | None
    """Which of a broker's advertised listeners to use."""
    use_tls: bool
    """Obsolete; say `pulsar+ssl://`."""
    tls_trust_certs_file_path: str | None
    """Certificates of the authorities to trust; the system's by default."""
    tls_allow_insecure_connection: bool
    """Whether anybody is trusted: False."""
    tls_validate_hostname: bool
    """Whether a certificate has to be the host's: False, as in the official client."""
    tls_private_key_file_path: str | None
    """The client's private key."""
    tls_certificate_file_path: str | None
    """The client's certificate."""
    original_principal: str | None
    """Whom the client acts for, where it is a proxy and its role is in the server's `auth.proxy_roles`."""
    original_authentication: Authentication | None
    """The credentials of that principal, to be forwarded: the server verifies them."""
    ssl_context: Any
    """An ssl.SSLContext of one's own, instead of all `tls_` arguments."""
    io_threads: int
    """This and the following: taken for the official client's sake."""
    message_listener_threads: int
    concurrent_lookup_requests: int
    log_conf_file_path: str | None
    stats_interval_in_seconds: int
    logger: Any

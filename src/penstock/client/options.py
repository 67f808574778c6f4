"""The options of `Client`, `create_producer`, `subscribe` and `create_reader`, of both clients.

Each option is declared here once: its name, type, default and meaning. Both clients take them as keyword arguments of
the official client's names; `complete` adds the defaults. An option with `NoEffect` is accepted so that code for
the official client runs unchanged, and the reason says why it changes nothing.
"""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypedDict, TypeVar, cast, get_type_hints

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

log = logging.getLogger("penstock.client")

Options = TypeVar("Options")

_CRYPTO: Final = "messages are not decrypted: crypto_failure_action says what becomes of encrypted ones"


class NoEffect(NamedTuple):
    """Marks an option of the official client that changes nothing here."""

    reason: str


class ProducerOptions(TypedDict, total=False):
    """How a producer sends."""

    initial_sequence_id: Annotated[int | None, None]
    """The sequence id before the first message's; by default the broker's last one of this producer's name."""
    send_timeout_millis: Annotated[int, 30_000]
    """After how long without a receipt a message fails; 0: never."""
    compression_type: Annotated[CompressionType, CompressionType.NONE]
    """How payloads are compressed."""
    max_pending_messages: Annotated[int, 1000]
    """How many messages may wait for receipts, for each partition."""
    max_pending_messages_across_partitions: Annotated[int, 50_000]
    """The same, for all partitions together."""
    block_if_queue_full: Annotated[bool, False]
    """Whether sending waits for room; else it fails with ProducerQueueIsFull."""
    batching_enabled: Annotated[bool, True]
    """Whether several messages may become one entry; the blocking client's default is False, as the official one's."""
    batching_max_messages: Annotated[int, 1000]
    """How many at most."""
    batching_max_allowed_size_in_bytes: Annotated[int, 128 * 1024]
    """Of how many bytes at most."""
    batching_max_publish_delay_ms: Annotated[int, 10]
    """How long a message may wait for others. An awaited one waits only while an entry is on its way."""
    chunking_enabled: Annotated[bool, False]
    """Whether messages larger than the broker takes are split."""
    message_routing_mode: Annotated[PartitionsRoutingMode, PartitionsRoutingMode.RoundRobinDistribution]
    """Which partition a message without a key goes to."""
    lazy_start_partitioned_producers: Annotated[bool, False]
    """Whether a partition is connected to when its first message comes."""
    properties: Annotated[dict[str, str] | None, None]
    """Texts for the broker about the producer."""
    batching_type: Annotated[BatchingType, BatchingType.Default]
    """Whether batches are made by key."""
    encryption_key: Annotated[str | None, None]
    """Not supported: refused with OperationNotSupported."""
    crypto_key_reader: Annotated[Any, None]
    """Not supported: refused with OperationNotSupported."""
    access_mode: Annotated[ProducerAccessMode, ProducerAccessMode.Shared]
    """How the topic is shared with other producers."""
    message_router: Annotated[MessageRouter | None, None]
    """A function of a message and the number of partitions; returns the partition."""
    multi_schema: Annotated[bool, True]
    """Whether messages may have individual schemas (PIP-43)."""
    interceptors: Annotated[Sequence[ProducerInterceptor], ()]
    """What watches and changes the messages."""
    initial_subscription_name: Annotated[str | None, None]
    """A subscription to make on the topic."""


class ConsumerOptions(TypedDict, total=False):
    """How a consumer receives."""

    receiver_queue_size: Annotated[int, 1000]
    """How many messages the broker may send ahead; 0 sends one for each `receive`."""
    max_total_receiver_queue_size_across_partitions: Annotated[int, 50_000]
    """The same, for all topics together."""
    consumer_name: Annotated[str | None, None]
    """Its name."""
    unacked_messages_timeout_ms: Annotated[int | None, None]
    """The time without an acknowledgement after which a message is redelivered; None: never."""
    broker_consumer_stats_cache_time_ms: Annotated[int, 30_000, NoEffect("the client asks for no statistics")]
    negative_ack_redelivery_delay_ms: Annotated[int, 60_000]
    """The delay of redelivery of a refused message."""
    is_read_compacted: Annotated[bool, False]
    """Whether only the last message of each key is received."""
    properties: Annotated[dict[str, str] | None, None]
    """Texts for the broker about the consumer."""
    pattern_auto_discovery_period: Annotated[int, 60]
    """How often new topics are looked for, in seconds."""
    initial_position: Annotated[InitialPosition, InitialPosition.Latest]
    """The initial position of a new subscription."""
    crypto_key_reader: Annotated[Any, None, NoEffect(_CRYPTO)]
    replicate_subscription_state_enabled: Annotated[bool, False]
    """Whether other clusters follow the subscription."""
    max_pending_chunked_message: Annotated[int, 10]
    """How many split messages may be incomplete at once."""
    auto_ack_oldest_chunked_message_on_queue_full: Annotated[bool, False]
    """Whether the oldest of them is acknowledged, and so lost, if there are more; else it is redelivered, whole, on the next connection."""
    start_message_id_inclusive: Annotated[bool, False]
    """Whether `seek` to a message delivers it, too."""
    batch_receive_policy: Annotated[ConsumerBatchReceivePolicy | None, None]
    """When `batch_receive` has enough: 10 MiB or 100 ms."""
    key_shared_policy: Annotated[ConsumerKeySharedPolicy | None, None]
    """How a KeyShared consumer gets its keys."""
    batch_index_ack_enabled: Annotated[bool, False]
    """Whether messages of a batch are acknowledged one by one."""
    regex_subscription_mode: Annotated[RegexSubscriptionMode, RegexSubscriptionMode.PersistentOnly]
    """Which topics a pattern is tried on."""
    dead_letter_policy: Annotated[ConsumerDeadLetterPolicy | None, None]
    """When a message goes to another topic instead (Shared and KeyShared)."""
    crypto_failure_action: Annotated[ConsumerCryptoFailureAction, ConsumerCryptoFailureAction.FAIL]
    """What becomes of a message that is encrypted."""
    is_pattern_topic: Annotated[bool, False]
    """Whether `topic`, a text, is a pattern."""


class ReaderOptions(TypedDict, total=False):
    """How a reader reads."""

    receiver_queue_size: Annotated[int, 1000]
    """How many messages the broker may send ahead."""
    reader_name: Annotated[str | None, None]
    """Its name."""
    subscription_role_prefix: Annotated[str | None, None]
    """What the name of its passing subscription begins with."""
    is_read_compacted: Annotated[bool, False]
    """Whether only the last message of each key is read."""
    crypto_key_reader: Annotated[Any, None, NoEffect(_CRYPTO)]
    start_message_id_inclusive: Annotated[bool, False]
    """Whether the message to begin with is delivered, too."""
    crypto_failure_action: Annotated[ConsumerCryptoFailureAction, ConsumerCryptoFailureAction.FAIL]
    """What becomes of a message that is encrypted."""


class ClientOptions(TypedDict, total=False):
    """How a client connects."""

    connection_timeout_ms: Annotated[int, 10_000]
    """How long to wait for a connection."""
    listener_name: Annotated[str | None, None]
    """Which of a broker's advertised listeners to use."""
    use_tls: Annotated[bool, False]
    """Obsolete; say `pulsar+ssl://`."""
    tls_trust_certs_file_path: Annotated[str | None, None]
    """Certificates of the authorities to trust; the system's by default."""
    tls_allow_insecure_connection: Annotated[bool, False]
    """Whether any certificate is trusted."""
    tls_validate_hostname: Annotated[bool, False]
    """Whether a certificate has to be the host's; not by default, as in the official client."""
    tls_private_key_file_path: Annotated[str | None, None]
    """The client's private key."""
    tls_certificate_file_path: Annotated[str | None, None]
    """The client's certificate."""
    original_principal: Annotated[str | None, None]
    """The principal that the client acts for, if it is a proxy and its role is in the server's `auth.proxy_roles`."""
    original_authentication: Annotated[Authentication | None, None]
    """The credentials of that principal, to be forwarded: the server verifies them."""
    ssl_context: Annotated[ssl.SSLContext | None, None]
    """An ssl.SSLContext of one's own, instead of all `tls_` arguments."""
    io_threads: Annotated[int, 1, NoEffect("one thread does all of the client's input and output")]
    message_listener_threads: Annotated[int, 1, NoEffect("each listener has a thread of its own")]
    concurrent_lookup_requests: Annotated[int, 50_000, NoEffect("lookups are not limited")]
    log_conf_file_path: Annotated[
        str | None, None, NoEffect("the client logs through logging, as penstock.client")
    ]
    stats_interval_in_seconds: Annotated[int, 600, NoEffect("the client writes no statistics")]
    logger: Annotated[Any, None, NoEffect("the client logs through logging, as penstock.client")]


@functools.cache
def _declared(kind: Any) -> dict[str, tuple[Any, ...]]:
    """Each option's default, and `NoEffect` if it has none."""
    return {name: hint.__metadata__ for name, hint in get_type_hints(kind, include_extras=True).items()}


def complete(kind: type[Options], call: str, given: Mapping[str, Any]) -> Options:
    """All options of `kind`: those given to the function `call`, and the defaults of the others.

    Raises:
        TypeError: The option does not exist.
    """
    declared = _declared(cast(Hashable, kind))
    for name in given:
        if name not in declared:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")
        for mark in declared[name][1:]:
            log.debug("%s(%s=…) has no effect: %s", call, name, mark.reason)
    return cast(Options, {name: marks[0] for name, marks in declared.items()} | dict(given))

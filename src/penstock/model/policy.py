"""Policies of namespaces and topics, and the options of producers and consumers."""

from enum import Enum, IntEnum
from typing import Final

import msgspec

from .message_id import LATEST, MessageId
from .partitioning import Partitioner
from .schema import Compatibility

OWN_PROPERTIES: Final = (
    "penstock-"  # how the names of a consumer's properties begin that processes set for one another
)
UNACKED_PER_CONSUMER_MAX: Final = 50_000  # Pulsar's maxUnackedMessagesPerConsumer


class SubscriptionType(Enum):
    """Pulsar's four, by the names of its APIs."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    FAILOVER = "Failover"
    KEY_SHARED = "Key_Shared"

    @property
    def shared(self) -> bool:
        """Whether consumers share the messages: then none may acknowledge for all, up to a message."""
        return self in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED)

    @classmethod
    def named(cls, text: str) -> "SubscriptionType | None":
        """The type of that name, whatever its case or underscores."""
        wanted = text.lower().replace("_", "").replace("-", "")
        return next((t for t in cls if t.value.lower().replace("_", "") == wanted), None)


class AccessMode(IntEnum):
    """How a producer shares its topic; the wire's numbers."""

    SHARED = 0
    EXCLUSIVE = 1
    WAIT_FOR_EXCLUSIVE = 2
    EXCLUSIVE_WITH_FENCING = 3


class Routing(Enum):
    """How messages without a key find their partition (Pulsar's messageRoutingMode)."""

    SINGLE = "SinglePartition"
    ROUND_ROBIN = "RoundRobinPartition"
    CUSTOM = "CustomPartition"


class Retention(msgspec.Struct, frozen=True):
    """How long, and up to which size of the topic, acknowledged data is kept; what exceeds either goes."""

    minutes: int = -1  # -1: for ever
    mb: int = -1  # mebibytes; -1: without bound


class QuotaAction(Enum):
    """What happens while a backlog is beyond its quota, by Pulsar's names."""

    HOLD = "producer_request_hold"  # publishing waits, and new producers are refused
    REFUSE = "producer_exception"  # publishing fails, and producers are disconnected
    EVICT = "consumer_backlog_eviction"  # the slowest subscriptions skip the oldest of it


class Quota(msgspec.Struct, frozen=True):
    """A bound on the backlog of the slowest durable subscription: bytes, or the age of its oldest message."""

    limit: int = -1  # bytes, or seconds; -1: none
    action: QuotaAction = QuotaAction.HOLD


class TopicRate(msgspec.Struct, frozen=True):
    """A bound on what goes into a topic, or out of a topic or a subscription: so much in each period."""

    messages: int = -1  # -1: without bound
    bytes: int = -1
    period_s: int = 1

    @property
    def bounded(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class AutoTopics(msgspec.Struct, frozen=True):
    """Whether topics of a namespace are created when they are first used, and with how many partitions (0: none)."""

    allowed: bool
    partitions: int = 0


class TopicPolicies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policies of one topic. None leaves a policy to the namespace, and there to the server."""

    retention: Retention | None = None
    message_ttl_s: int | None = None  # 0: messages do not expire
    size_quota: Quota | None = None
    age_quota: Quota | None = None
    deduplication: bool | None = None
    max_producers: int | None = None  # 0: any number; so for all that follow
    max_consumers: int | None = None
    max_consumers_per_subscription: int | None = None
    max_subscriptions: int | None = None
    max_unacked_per_consumer: int | None = None
    compaction_threshold: int | None = None  # bytes published since the last compaction; 0: only on request
    publish_rate: TopicRate | None = None
    dispatch_rate: TopicRate | None = None
    subscription_dispatch_rate: TopicRate | None = None
    auto_subscriptions: bool | None = None
    subscription_types: tuple[SubscriptionType, ...] | None = None  # (): all


class NamespacePolicies(TopicPolicies, frozen=True, kw_only=True, omit_defaults=True):
    """What a namespace decides for its topics, and for itself."""

    schema_compatibility: Compatibility = Compatibility.UNDEFINED
    schema_validation_enforced: bool = False
    schema_auto_update: bool = True
    max_topics: int | None = None  # partitions count each
    auto_topics: AutoTopics | None = None
    properties: dict[str, str] = {}
    permissions: dict[str, tuple[str, ...]] = {}  # actions by role
    topic_permissions: dict[str, dict[str, tuple[str, ...]]] = {}  # the same by the topic's full name
    subscription_roles: dict[str, tuple[str, ...]] = {}  # by subscription: the only roles that may use it
    subscription_prefix: bool = False  # roles may use only subscriptions whose names begin with the role


class ClientInfo(msgspec.Struct, frozen=True):
    """The program at the other end of a producer or consumer, as the statistics show it."""

    address: str = ""  # host and port; "" if unknown
    version: str = ""  # the clientVersion of Pulsar's CONNECT, or the User-Agent of HTTP


UNKNOWN_CLIENT: Final = ClientInfo()


class ProducerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer publishes. An empty `name` lets the broker choose one."""

    name: str = ""
    access_mode: AccessMode = AccessMode.SHARED
    topic_epoch: int | None = None  # that it had the topic alone in, when it comes back
    returning: bool = False  # `name` was chosen for it before: its present holder is its own old connection
    initial_sequence_id: int = -1
    routing: Routing = Routing.ROUND_ROBIN
    partitioner: Partitioner | None = None  # None: the engine's
    encrypted: bool = False  # its messages come encrypted: clusters may want to know before
    # If the engine partitions as Kafka's clients do, messages with keys go to the partition of their key, not to the one that
    # they were sent to: clients of Pulsar's protocol choose it by another hash.
    repartitions_by_key: bool = False
    shared_name: bool = False  # others may publish under this name at the same time, at any process
    stateless: bool = False  # it serves requests, and does not count among the topic's producers
    properties: dict[str, str] = {}
    client: ClientInfo = UNKNOWN_CLIENT


class DeadLetter(msgspec.Struct, frozen=True):
    """After `redeliveries_max` redeliveries a message moves to `topic` ("" names the default)."""

    redeliveries_max: int
    topic: str = ""


class ConsumerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer takes part in a subscription.

    `window` bounds the messages out and not acknowledged; None: only `flow` bounds them. `outbox_bytes_max`
    bounds deliveries that wait to be sent, so that a slow reader costs no memory. `flow` says whether
    messages also need permits. `whole_entries` lets an entry overdraw the permits rather than be split.
    `auto_ack` is a reader's: delivered messages count as acknowledged. `redirected`: it may be closed so that its client looks
    the topic up again. `forwarded`: another process of the service has the client, so that this one serves the consumer itself,
    or refuses it.
    """

    name: str = ""
    type: SubscriptionType = SubscriptionType.EXCLUSIVE
    durable: bool = True
    start: MessageId = LATEST  # the initial position of a new subscription (after it)
    start_inclusive: bool = False
    priority: int = 0
    window: int | None = 1000
    outbox_bytes_max: int = 4 * 1024 * 1024  # one delivery more may overdraw it
    flow: bool = False
    whole_entries: bool = False
    auto_ack: bool = False
    redirected: bool = False
    forwarded: bool = False
    ack_timeout_ms: int = 0  # 0: never
    nack_delay_ms: int = 60_000
    dead_letter: DeadLetter | None = None
    key_ranges: tuple[tuple[int, int], ...] = ()  # Key_Shared STICKY, or Exclusive; both ends inclusive
    properties: dict[str, str] = {}
    subscription_properties: dict[str, str] = {}  # of a subscription that is new
    compacted: bool = False  # of compacted messages, only the last value of each key
    client: ClientInfo = UNKNOWN_CLIENT


class InForce(msgspec.Struct, frozen=True):
    """The policies of one topic, each decided."""

    retention: Retention
    message_ttl_s: int
    size_quota: Quota
    age_quota: Quota
    deduplication: bool
    max_producers: int
    max_consumers: int
    max_consumers_per_subscription: int
    max_subscriptions: int
    max_unacked_per_consumer: int = UNACKED_PER_CONSUMER_MAX
    compaction_threshold: int = 0
    publish_rate: TopicRate = TopicRate()
    dispatch_rate: TopicRate = TopicRate()
    subscription_dispatch_rate: TopicRate = TopicRate()
    auto_subscriptions: bool = True
    subscription_types: tuple[SubscriptionType, ...] = ()

    @property
    def retains_all(self) -> bool:
        return self.retention.minutes < 0 and self.retention.mb < 0

    @property
    def keeps_all(self) -> bool:
        """Whether nothing ever goes, expires or is bounded."""
        quotas = self.size_quota.limit >= 0 or self.age_quota.limit >= 0
        return self.retains_all and self.message_ttl_s <= 0 and self.compaction_threshold <= 0 and not quotas

"""The broker, as the endpoints and the server see it. Everything runs on one event loop."""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.broker.delivery import Budget
from penstock.model.entry import NewEntry
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, ProducerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .administration import Administration, GroupPositions, Subscriptions
from .capability import Capability
from .cluster import Cluster
from .cluster_view import ClusterView
from .consumer import Consumer
from .fleet import ProcessDocuments
from .groups import Groups
from .journal import OpenJournal
from .namespaces import Namespaces, Policies
from .producer import Producer, Requests
from .records import RecordFormats
from .registry import OtherRegistry, RegistryRecords
from .schemas import Schemas
from .settings import BrokerSettings
from .staging import Published, Staging
from .storage_health import StorageHealth
from .topic import MetaStore, Topic
from .topics import Topics
from .watches import WatchTopics


class Broker(Protocol):
    """Topics, producers, subscriptions and schemas over one log, and the parts that the engine is made of."""

    @property
    def administration(self) -> Administration | None:
        """None if the cluster has its own administration, to which requests are forwarded."""

    @property
    def capabilities(self) -> frozenset[Capability]: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def registry_records(self) -> RegistryRecords | None:
        """The records of the schema registry; None if another registry is configured."""

    @property
    def other_registry(self) -> OtherRegistry | None:
        """The schema registry that is configured; None: this server has its own."""

    @property
    def failures(self) -> Failures:
        """Background work that is failing."""

    @property
    def open_journal(self) -> OpenJournal | None:
        """What processes keep of the cluster's logs together; None if the engine is its own cluster, which has
        `Topic.documents`."""

    @property
    def group_positions(self) -> GroupPositions | None:
        """Positions of the cluster's consumer groups, at which subscriptions can begin; None if it has no such groups."""

    @property
    def cluster_view(self) -> ClusterView | None:
        """Brokers and consumer groups as Kafka's administration describes them; None without such a cluster."""

    @property
    def groups(self) -> Groups | None:
        """The consumer groups of the cluster; None if groups are subscriptions."""

    @property
    def namespaces(self) -> Namespaces: ...
    @property
    def own_documents(self) -> MetaStore | None:
        """Small documents of the whole log; None if a cluster holds it."""

    @property
    def partitioner(self) -> Partitioner:
        """How keys choose partitions, unless a producer names a hash."""

    @property
    def policies(self) -> Policies | None:
        """None if the cluster decides policies by itself."""

    @property
    def processes(self) -> ProcessDocuments | None:
        """Documents that the processes before one cluster write for one another; None if the log belongs to one process."""

    @property
    def record_formats(self) -> RecordFormats | None:
        """None if only this server, or only the cluster's own protocol, reads its messages."""

    @property
    def requests(self) -> Requests: ...
    @property
    def schemas(self) -> Schemas: ...
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def staging(self) -> Staging | None:
        """None if the cluster has no transactions."""

    @property
    def storage(self) -> StorageHealth: ...
    @property
    def subscriptions(self) -> Subscriptions: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def topics(self) -> Topics: ...
    @property
    def watch(self) -> WatchTopics | None:
        """None if clients of Pulsar's protocol are the cluster's."""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that holds the log; None if the engine is its own."""

    async def start(self) -> None:
        """Open the log and read what there is; raises UNAVAILABLE."""

    def drain(self) -> None:
        """Hold no publish any longer: those that a quota holds are refused at once (UNAVAILABLE)."""

    async def close(self) -> None:
        """Disconnect every client, save every cursor, close the log."""

    async def producer(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[Producer], None] | None = None,
    ) -> Producer:
        """A producer for a topic or one of its partitions; creates the topic as configured.

        `queued` is called when the producer has to wait until it may have the topic alone. Raises
        PRODUCER_BUSY for a name in use (unless `shared_name`) and for too many, PRODUCER_FENCED, EXCLUSIVE_PRODUCER,
        TOPIC_NOT_FOUND, TOPIC_TERMINATED, STORAGE_FULL and STORAGE_FAILED while the storage takes nothing, and the
        kinds BACKLOG_QUOTA_… while the backlog is beyond such a quota (a `stateless` producer gets them when it publishes).
        """

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        """A consumer of every partition of `names`; creates topics and subscriptions that are not there.

        Reads for it count in `budget`. Raises SUBSCRIPTION_BUSY, CONSUMER_BUSY, TOPIC_NOT_FOUND; then it is
        attached nowhere.
        """

    async def subscribe_pattern(
        self,
        pattern: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        namespace: NamespaceName,
        domain: str = "persistent",
        allowed: Callable[[TopicName], bool] = lambda name: True,
        budget: Budget | None = None,
    ) -> Consumer:
        """A consumer of every topic of a namespace whose full name matches, also of those that come later.

        `pattern` matches `tenant/namespace/topic` wholly, with or without a domain before it; of what matches,
        `allowed` says what may be consumed, asked each time. Raises BAD_PARAMETER for an invalid `Pattern`.
        """

    async def append_entries(
        self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> Published:
        """Append entries of any producers without a stage, all or none; before a cluster, one by one up to an error.

        With `deduplicate` an entry whose producer has stored its highest sequence id is skipped, whatever the
        namespace says. Raises EXCLUSIVE_PRODUCER, NOT_SUPPORTED if the engine cannot recognise repeats, and what prevents the
        topic from taking messages.
        """

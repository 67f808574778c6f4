"""The broker of a worker: what its endpoints see of the log that another process of this server owns.

It is the engine before a Pulsar cluster, with Penstock's own extensions of the protocol: the worker proves itself by the
supervisor's secret and names its callers, and replies to requests go over the connections of producers and consumers.
"""

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from penstock.broker.capability import Capability, not_supported
from penstock.broker.settings import BrokerSettings
from penstock.broker.topic import Topic
from penstock.engines.pulsar.broker import PulsarBroker
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.model.entry import NewEntry
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo, ConsumerOptions, ProducerOptions
from penstock.model.worker import CLIENT_PROPERTY, WorkerAccess
from penstock.runtime.clock import Clock

from .cluster import OwnerCluster, settings_of
from .consumer import WorkerConsumer
from .producer import WorkerProducer
from .requests import OwnerReplies, WorkerRequests
from .topics import WorkerTopics


class WorkerBroker(PulsarBroker):
    """`broker.Broker`. Whole entries, staging and administration are the owner's: requests for them are passed on to it."""

    _consumers = WorkerConsumer
    _replies: OwnerReplies

    def __init__(self, access: WorkerAccess, own: BrokerSettings, clock: Clock) -> None:
        super().__init__(settings_of(access), own, clock, OwnerCluster(access))
        self.processes = None  # its supervisor gives it the owner's address

    async def start(self) -> None:
        await super().start()
        self.staging = None
        self.capabilities -= {Capability.ENTRIES, Capability.BYTE_POSITIONS, Capability.STAGED_PUBLISH}

    async def append_entries(
        self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> NoReturn:
        raise not_supported(Capability.ENTRIES.value)

    def _new_topics(self, learned_ms: int) -> PulsarTopics:
        return WorkerTopics(self.cluster, self.namespaces, self.clock, self._in_force, learned_ms)

    def _new_replies(self) -> OwnerReplies:
        return OwnerReplies(WorkerRequests(self.clock, self.settings.request_timeout_ms_max))

    def _new_producer(
        self, cluster: PulsarCluster, name: TopicName, options: ProducerOptions
    ) -> WorkerProducer:
        named = msgspec.structs.replace(options, properties=_with_client(options.properties, options.client))
        return WorkerProducer(cluster, self.topics, self.schemas, name, named, self._replies)

    def _named(self, options: ConsumerOptions) -> ConsumerOptions:
        properties = _with_client(options.properties, options.client)
        return msgspec.structs.replace(options, properties=properties)


def _with_client(properties: dict[str, str], client: ClientInfo) -> dict[str, str]:
    """The properties that name the client program of a producer or consumer to the owner."""
    if client == UNKNOWN_CLIENT:
        return properties
    return {**properties, CLIENT_PROPERTY: msgspec.json.encode(client).decode()}

"""The broker of a worker: what its endpoints see of the log that another process of this server owns.

It is the engine before a Pulsar cluster, with Penstock's own extensions of the protocol: the worker proves itself by the
supervisor's secret and names its callers, and replies to requests go over the connections of producers and consumers.
"""

from base64 import b64encode
from collections.abc import Sequence
from typing import Final, NoReturn

import msgspec

from penstock.broker.acting import Acting
from penstock.broker.capability import Capability, not_supported
from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.topic import Topic
from penstock.client.authentication import Authentication
from penstock.client.errors import PulsarException
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.errors import engine_error
from penstock.engines.pulsar.broker import PulsarBroker
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.shared.requests import check_size
from penstock.model.entry import NewEntry
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo, ConsumerOptions, ProducerOptions
from penstock.model.secret import Secret
from penstock.model.worker import CLIENT_PROPERTY, METHOD, WorkerAccess, WorkerCredentials
from penstock.runtime.clock import Clock

from .producer import WorkerProducer, WorkerRequests

LEARNED_MS: Final = 1000  # the owner is asked again for policies, schemas and partitions of a topic in use


def settings_of(access: WorkerAccess) -> ClusterSettings:
    """How the owner is reached."""
    url, admin_url = f"pulsar://{access.pulsar}", f"http://{access.http}"
    return ClusterSettings(url=url, admin_url=admin_url, learned_ms=LEARNED_MS)


class OwnerCluster(PulsarCluster):
    """`broker.Cluster` of one process."""

    def __init__(self, access: WorkerAccess) -> None:
        super().__init__(settings_of(access), WorkerAuthentication(access.secret))
        self._access = access

    def authentication_for(self, caller: Acting) -> Authentication:
        """The worker, for a caller."""
        return WorkerAuthentication(self._access.secret, caller.role, caller.proxy)


class WorkerAuthentication(Authentication):
    """A worker that acts for itself, or for a caller of this role that came through this proxy."""

    method = METHOD

    def __init__(self, secret: Secret, role: str | None = None, proxy: str | None = None) -> None:
        self._data = msgspec.json.encode(WorkerCredentials(secret.reveal(), role, proxy))

    def data(self) -> bytes:
        return self._data

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"{METHOD} {b64encode(self._data).decode()}"}


class WorkerConsumer(Consumer):
    """`broker.Consumer`. A reply goes to the owner with the acknowledgement of its request (PIP-371)."""

    async def answer(self, reply: Reply) -> Outcome:
        check_size(reply)
        part = self._part_of(reply.request_id)
        part.request(reply.request_id)  # raises unless it is out
        try:
            outcome = await part.link.reply(
                reply.request_id, reply.content, is_error=reply.is_error, schema_version=reply.schema_version
            )
        except PulsarException as error:
            raise engine_error(error) from None
        return Outcome(outcome)


class WorkerBroker(PulsarBroker):
    """`broker.Broker`. Whole entries, staging and administration are the owner's: requests for them are passed on to it."""

    _consumers = WorkerConsumer
    _recheck_missing = True  # another worker may just have created a topic

    def __init__(self, access: WorkerAccess, own: BrokerSettings, clock: Clock) -> None:
        requests = WorkerRequests(clock, own.request_timeout_ms_max)
        super().__init__(settings_of(access), own, clock, OwnerCluster(access), requests)
        self._requests = requests
        self.processes = None  # its supervisor gives it the owner's address

    async def start(self) -> None:
        await super().start()
        self.staging = None
        self.capabilities -= {Capability.ENTRIES, Capability.BYTE_POSITIONS, Capability.STAGED_PUBLISH}

    async def append_entries(
        self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> NoReturn:
        raise not_supported(Capability.ENTRIES.value)

    def _new_producer(
        self, cluster: PulsarCluster, name: TopicName, options: ProducerOptions
    ) -> WorkerProducer:
        named = msgspec.structs.replace(options, properties=_with_client(options.properties, options.client))
        return WorkerProducer(cluster, self.topics, self.schemas, name, named, self._requests)

    def _named(self, options: ConsumerOptions) -> ConsumerOptions:
        properties = _with_client(options.properties, options.client)
        return msgspec.structs.replace(options, properties=properties)


def _with_client(properties: dict[str, str], client: ClientInfo) -> dict[str, str]:
    """The properties that name the client program of a producer or consumer to the owner."""
    if client == UNKNOWN_CLIENT:
        return properties
    return {**properties, CLIENT_PROPERTY: msgspec.json.encode(client).decode()}

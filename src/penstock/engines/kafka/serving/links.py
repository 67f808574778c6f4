"""Leads consumers to the owners of their partitions: within this process, or over Pulsar's protocol."""

import itertools
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from penstock.broker.fleet import Process
from penstock.client.aio.link import Link as Connection
from penstock.client.aio.link import Pool
from penstock.client.aio.tasks import Tasks as ClientTasks
from penstock.client.authentication import Authentication
from penstock.client.session.connection import Address, parse_service_url
from penstock.engines.attached.link import Attachment, Link, LinkSink, Moved, network_link
from penstock.engines.attached.local_link import LocalLink, Subscribes
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.ownership.cursors import Cursors
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks

CONNECT_S: Final = 10.0


class Peers(Protocol):
    """The other processes of this service; of `engines.fleet`."""

    @property
    def look_up(self) -> Callable[[], Awaitable[None]] | None:
        """Learns of processes that began lately."""

    def find(self, id: str) -> Process | None:
        """A process that is known, without this one."""


class Owners:
    """Which process serves the durable subscriptions of each partition, as the journal says. `at` is the place of a log."""

    def __init__(self, cursors: Cursors, at: Callable[[TopicName], At], peers: Peers | None) -> None:
        self._cursors = cursors
        self._at = at
        self._peers = peers

    def is_here(self, topic: TopicName) -> bool:
        """Whether this process claimed the partition last."""
        return self._owner(topic) == self._cursors.process

    def _owner(self, topic: TopicName) -> str:
        owner = self._cursors.owner(self._cursors.slot(*self._at(topic)))
        if owner is None:  # the first process of the service is just starting
            raise Moved(topic)
        return owner

    def knows(self, process: str) -> bool:
        """Whether another process has not ended, as far as this one knows."""
        return self._peers is not None and self._peers.find(process) is not None

    async def peer(self, topic: TopicName) -> Process:
        """The other process that serves a partition. Raises `Moved` if it is this one, or if it has ended and there is no new owner
        yet, and UNAVAILABLE if processes cannot know one another."""
        owner = self._owner(topic)
        if owner == self._cursors.process:
            raise Moved(topic)
        if self._peers is None:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"process {owner} serves subscriptions of {topic}, and this process cannot reach it: "
                "fleet.secret is not configured",
            )
        found = self._peers.find(owner)
        if found is None and self._peers.look_up is not None:
            await self._peers.look_up()
            found = self._peers.find(owner)
        if found is None:
            raise Moved(topic)
        if not (found.pulsar_url or found.pulsar_tls_url):
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"process {owner} serves subscriptions of {topic}, and no address of it is known at which this process can "
                "reach it over Pulsar's protocol: configure pulsar.advertise",
            )
        return found


class OwnerLinks:
    """`link_to` of consumers. It is the context of network links, and the lookup by which they find the owner again.

    `credentials` are those by which this process proves to another one that it is of the same service. With `tls` connections
    are encrypted if the other process offers that.
    """

    def __init__(
        self,
        owners: Owners,
        local: Subscribes,
        tasks: Tasks,
        credentials: Callable[[Process], Authentication],
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.tasks = ClientTasks()
        self.numbers = itertools.count()
        self._owners = owners
        self._local = local
        self._local_tasks = tasks
        self._credentials = credentials
        self._tls = tls
        self._pools: dict[str, Pool] = {}  # by process

    @property
    def lookup(self) -> "OwnerLinks":
        return self

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> Link:
        """A link to the owner of a partition; readers are served by this process. Raises as `Owners.peer`."""
        if not wanted.options.durable or self._owners.is_here(wanted.topic):
            return LocalLink(self._local, wanted, sink, self._local_tasks)
        await self._owners.peer(wanted.topic)
        return network_link(self, wanted, sink)

    async def link(self, topic: str) -> Connection:
        """As `BrokerLookup.link`. Raises `Moved` if no other process can be asked now."""
        name = TopicName.parse(topic)
        try:
            process = await self._owners.peer(name)
        except Moved:
            raise
        except PenstockError:  # `link_to` says why
            raise Moved(name) from None
        return await self._pool(process).link(address_of(process, encrypted=self._tls is not None))

    def _pool(self, process: Process) -> Pool:
        found = self._pools.get(process.id)
        if found is None:
            self._forget_ended()
            tls = self._tls or ssl.create_default_context()
            found = Pool(self._credentials(process), tls, CONNECT_S, entry_metadata=True)
            self._pools[process.id] = found
        return found

    def _forget_ended(self) -> None:
        """Close the connections to processes that have ended."""
        for ended in [one for one in self._pools if not self._owners.knows(one)]:
            pool = self._pools.pop(ended)
            self.tasks.spawn(pool.close(), f"close the connections to process {ended}")

    async def close(self) -> None:
        """End the connections to all processes."""
        self.tasks.cancel()
        for pool in self._pools.values():
            await pool.close()
        self._pools.clear()
        await self.tasks.close()


def address_of(process: Process, *, encrypted: bool) -> Address:
    """Where a process serves Pulsar's protocol."""
    preferred, other = process.pulsar_url, process.pulsar_tls_url
    if encrypted:
        preferred, other = other, preferred
    return parse_service_url(preferred or other).addresses[0]

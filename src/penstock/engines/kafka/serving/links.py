"""Leads consumers to the owners of their partitions: within this process, or over Pulsar's protocol."""

import itertools
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from penstock.broker.cluster import Owner
from penstock.broker.fleet import Process, ProcessGoneError
from penstock.client.aio.link import Link as Connection
from penstock.client.aio.link import Pool
from penstock.client.aio.tasks import Tasks as ClientTasks
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.errors import ConnectError
from penstock.client.session.connection import Address, parse_service_url
from penstock.engines.attached.link import Attachment, LinkSink, Moved, OwnerLink, network_link
from penstock.engines.attached.local_link import LocalLink, Subscribes
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.peer import tls_context
from penstock.engines.fleet.sessions import ProcessAuthentication
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.state import StoredCursor
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Locks, Tasks

CONNECT_S: Final = 10.0


class Owners:
    """Which process serves the durable subscriptions of each partition, as the journal says. `at` is the place of a log."""

    def __init__(self, cursors: Cursors, at: Callable[[TopicName], At], fleet: ProcessFleet | None) -> None:
        self.cursors = cursors
        self._at = at
        self._fleet = fleet

    def is_here(self, topic: TopicName) -> bool:
        """Whether this process claimed the partition last."""
        return self._owner(topic) == self.cursors.process

    def stored(self, topic: TopicName) -> Mapping[str, StoredCursor]:
        """The cursors of a partition by subscription, as far as the journal was read."""
        return self.cursors.known(*self._at(topic))

    def slot(self, topic: TopicName) -> int:
        """The slot of a partition."""
        return self.cursors.slot(*self._at(topic))

    def owner(self, slot: int) -> str | None:
        """The process that claimed a slot last."""
        return self.cursors.owner(slot)

    def _owner(self, topic: TopicName) -> str:
        owner = self.owner(self.slot(topic))
        if owner is None:  # the first process of the service is just starting
            raise Moved(topic)
        return owner

    def knows(self, process: str) -> bool:
        """Whether another process has not ended, as far as this one knows."""
        return self._fleet is not None and self._fleet.find(process) is not None

    def address(self, topic: TopicName) -> Owner:
        """The address at which clients of Pulsar's protocol reach the owner, if it is another process and known. Any process serves them
        otherwise."""
        try:
            owner = self._owner(topic)
        except Moved:
            return Owner("")
        found = None if self._fleet is None else self._fleet.find(owner)
        return Owner("") if found is None else Owner(found.pulsar_url, found.pulsar_tls_url)

    async def peer(self, topic: TopicName) -> Process:
        """The other process that serves a partition. Raises `Moved` if it is this one, or if it has ended and there is no new owner
        yet, and UNAVAILABLE if processes cannot know one another."""
        owner = self._owner(topic)
        if owner == self.cursors.process:
            raise Moved(topic)
        if self._fleet is None:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"process {owner} serves subscriptions of {topic}, and this process cannot reach it: "
                "fleet.secret is not configured",
            )
        found = self._fleet.find(owner)
        if found is None and self._fleet.look_up is not None:
            await self._fleet.look_up()
            found = self._fleet.find(owner)
        if found is None and owner in self._fleet.unverified:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"process {owner} serves subscriptions of {topic}, and this process cannot reach it: it uses another fleet.secret",
            )
        if found is None:
            raise Moved(topic)
        if not found.peer_url:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"process {owner} serves subscriptions of {topic}, and this process cannot reach it over Pulsar's protocol: it "
                "has to listen for it (pulsar.listen), and on another machine to have an http.advertise",
            )
        return found


class _Proven(NamedTuple):
    """Connections to a process, and the proof of this one's identity."""

    authentication: ProcessAuthentication
    pool: Pool


class OwnerLinks:
    """`link_to` of consumers. It is the context of network links, and the lookup by which they find the owner again.

    `credentials` proves to another process that this one is of the same service; it raises ProcessGoneError, UNAVAILABLE. `tls`
    verifies certificates; None: the system's authorities do.
    """

    def __init__(
        self,
        owners: Owners,
        local: Subscribes,
        tasks: Tasks,
        credentials: Callable[[str], Awaitable[ProcessAuthentication]],
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
        self._pools: dict[str, _Proven] = {}  # by process
        self._opening: Locks[str] = Locks()
        # Links to other processes, and their slots.
        self._links: WeakKeyDictionary[EntryConsumer, int] = WeakKeyDictionary()
        owners.cursors.on_claimed.append(self._claimed)

    @property
    def lookup(self) -> "OwnerLinks":
        return self

    async def link_to(self, wanted: Attachment, sink: LinkSink) -> OwnerLink:
        """A link to the owner of a partition; readers are served by this process. Raises as `Owners.peer`."""
        if not wanted.options.durable or self._owners.is_here(wanted.topic):
            return LocalLink(self._local, wanted, sink, self._local_tasks)
        await self._owners.peer(wanted.topic)
        made = network_link(self, wanted, sink)
        self._links[made] = self._owners.slot(wanted.topic)
        return made

    def _claimed(self, slots: Collection[int]) -> None:
        """These slots may have other owners: links to the ones before, which may not know of it or have stopped, look for them."""
        for link, slot in list(self._links.items()):
            if slot in slots:
                found = self._pools.get(self._owners.owner(slot) or "")
                if found is None or link.connection not in found.pool:
                    link.reconnect()

    async def link(self, topic: str) -> Connection:
        """As `BrokerLookup.link`. Raises `Moved` if no other process can be asked now, ConnectError."""
        name = TopicName.parse(topic)
        try:
            process = await self._owners.peer(name)
        except Moved:
            raise
        except PenstockError:  # `link_to` says why
            raise Moved(name) from None
        try:
            pool = await self._pool(process)
        except ProcessGoneError:
            raise Moved(name) from None
        except PenstockError as error:
            raise ConnectError(error.message) from None
        return await pool.link(_address(process))

    async def _pool(self, process: Process) -> Pool:
        name = process.id
        async with self._opening.hold(name):
            found = self._pools.get(name)
            if found is None or found.authentication.stale:
                authentication = await self._credentials(name)
                if found is not None:
                    self._close_soon(name)
                self._forget_ended()
                address = _address(process)
                tls = tls_context(address.host, self._tls) if address.tls else None
                pool = Pool(authentication, tls, CONNECT_S, entry_metadata=True)
                found = self._pools[name] = _Proven(authentication, pool)
            return found.pool

    def _forget_ended(self) -> None:
        """Close the connections to processes that have ended."""
        for ended in [one for one in self._pools if not self._owners.knows(one)]:
            self._close_soon(ended)

    def _close_soon(self, process: str) -> None:
        pool = self._pools.pop(process).pool
        self.tasks.spawn(pool.close(), f"close the connections to process {process}")

    async def close(self) -> None:
        """End the connections to all processes."""
        self.tasks.cancel()
        for found in self._pools.values():
            await found.pool.close()
        self._pools.clear()
        await self.tasks.close()


def _address(process: Process) -> Address:
    return parse_service_url(process.peer_url).addresses[0]

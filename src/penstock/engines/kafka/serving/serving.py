"""How this process takes part in serving the subscriptions of its service: the parts, put together, begun and ended in order."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from penstock.broker.cluster import Ownership
from penstock.broker.fleet import ProcessGoneError
from penstock.engines.core.broker.hosting import Means
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.sessions import ProcessAuthentication, new_process_id
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.documents import Documents
from penstock.engines.kafka.driver.journal import Journal, JournalReader
from penstock.engines.kafka.driver.lease import Lease
from penstock.engines.kafka.ownership.cursors import Cursors
from penstock.engines.kafka.ownership.fitting import Misfit
from penstock.engines.kafka.ownership.owner import SlotOwner
from penstock.engines.kafka.ownership.topics import owner_group, owner_topics
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.model.errors import PenstockError
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .admin import OwnerAdmin
from .administration import Service
from .cleaning import LOOK_S, CursorCleaning
from .consumers import ServedConsumers
from .earlier_cursors import EarlierCursors
from .links import OwnerLinks, Owners
from .others import OtherProcesses
from .shown_marks import ShownMarks
from .subscriptions import ServedSubscriptions

log = logging.getLogger(__name__)

BEGIN_S: Final = 15.0  # for the group to assign the first slots; the process starts in any case


class Serving:
    """`fleet` knows the other processes; None: this process cannot reach any. `service` is there once it was started."""

    service: Service

    def __init__(
        self,
        cluster: KafkaCluster,
        topics: KafkaTopics,
        clock: Clock,
        tasks: Tasks,
        means: Means,
        documents: Documents,
        *,
        fleet: ProcessFleet | None,
        new_name: Callable[[str], str],
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._clock = clock
        self._tasks = tasks
        self._means = means
        self._documents = documents
        self._fleet = fleet
        self.served = ServedSubscriptions(means, cluster.clients.refused)
        self.consumers = ServedConsumers(topics, self.served, clock, new_name)
        self._owner = SlotOwner(self.served, tasks)
        self._cursors: Cursors | None = None
        self._lease: Lease | None = None
        self._cleaning: CursorCleaning | None = None
        self._links: OwnerLinks | None = None

    async def start(self) -> None:
        """Read the journal of cursors, and own slots. The cluster has been reached. Raises UNAVAILABLE, FORBIDDEN, and BAD_PARAMETER
        if the topics of slots and cursors do not fit."""
        cluster, fleet = self._cluster, self._fleet
        clients, timeout_s = cluster.clients, cluster.timeout_s
        slots_topic, cursors_topic, slots = await owner_topics(cluster)
        group = owner_group(cluster.settings)
        process = new_process_id() if fleet is None else fleet.id

        def open_journal(reader: JournalReader) -> Journal:
            return Journal(clients, cluster.admin, cursors_topic, timeout_s, reader)

        cursors = Cursors(
            open_journal,
            self._owner,
            self._tasks,
            self._means.failures,
            group=group,
            slots=slots,
            process=process,
        )
        lease = Lease(clients, slots_topic, group, self._owner, client_id=f"penstock-{process}")
        self._owner.cursors, self._owner.lease = cursors, lease
        prefix = cluster.settings.group_prefix
        earlier = self._owner.earlier = EarlierCursors(
            cursors, cluster.groups, cluster.admin, self._documents, prefix=prefix, service=group
        )
        await earlier.start()
        marks = ShownMarks(cursors, cluster.groups, prefix, time.monotonic)
        cursors.on_saved = marks.saved
        self.served.use(self._owner, cursors, marks)
        owners = Owners(cursors, self._topics.at, fleet)
        tls = None if fleet is None else fleet.tls
        self._links = OwnerLinks(owners, self.consumers, self._tasks, self._credentials, timeout_s, tls)
        cursors.on_claimed = self._links.claimed
        admin, others = OwnerAdmin(owners, fleet, timeout_s), OtherProcesses(fleet, self._clock, timeout_s)
        self.service = Service(self._links, self.served, owners, admin, others)
        self._cursors = cursors
        await cursors.start()
        self._topics.closers.append(self._closed)
        self._topics.truncations.append(self._truncated)
        self._lease = lease
        lease.start()
        self._owner.start()
        self._tasks.spawn(marks.run(), "show positions of subscriptions")
        self._cleaning = CursorCleaning(cursors, cluster.admin, self._clock, self.served.serves)
        self._tasks.spawn(self._clean(self._cleaning), "remove cursors of deleted topics")
        try:
            async with asyncio.timeout(BEGIN_S):
                await self.served.began.wait()
        except TimeoutError:
            log.info("this process owns no slots yet", extra={"group": group})

    async def _clean(self, cleaning: CursorCleaning) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for topic in await cleaning.look():
                    await self._measure(topic)
            except PenstockError as error:
                log.debug("cursors of deleted topics are not looked for: %s", error.message)

    async def _measure(self, topic: str) -> None:
        """Have the backlogs of subscriptions known that no client uses at this process: others may publish to them."""
        try:
            name = self._topics.naming.topic_name(topic)
            if name is not None:
                await self._topics.learn(name, whole=True)
        except PenstockError as error:
            log.debug("the backlogs of %s are not known: %s", topic, error.message)

    def figures(self) -> Ownership | None:
        """Figures of this process; None before it was started, and after its end."""
        cursors, lease, refusal = self._cursors, self._lease, self.served.refusal
        if cursors is None or lease is None:
            return None
        return Ownership(
            slots=len(self._owner.open),
            doubts=lease.doubts,
            saves=cursors.saves,
            misfits={reason.value: self.served.stored.misfits[reason] for reason in Misfit},
            removed=0 if self._cleaning is None else self._cleaning.removed,
            refusal="" if refusal is None else refusal.message,
        )

    async def _credentials(self, process: str) -> ProcessAuthentication:
        if self._fleet is None:
            raise ProcessGoneError(f"process {process} is not known")
        return await self._fleet.credentials(process)

    def _closed(self, topic: KafkaTopic) -> None:
        """A topic was deleted, or is not used any more. Cursors stay: if there is a new topic of that name, they do not fit, and
        begin at its first message."""
        self.served.forget(topic)

    def _truncated(self, topic: KafkaTopic) -> None:
        self._tasks.spawn(self.served.refit(topic), f"fit the cursors of {topic.name}")

    async def close(self) -> None:
        """Disconnect the consumers, save their cursors, and give the slots to the other processes; harmless if nothing began."""
        lease, links, cursors = self._lease, self._links, self._cursors
        self._lease = self._links = self._cursors = None
        if lease is not None:
            await lease.close()
        if links is not None:
            await links.close()
        if cursors is not None:
            await cursors.close()

"""The part of this process in serving the subscriptions of its service: its parts are created, started and ended in order."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn

from penstock.broker.acting import Acting
from penstock.broker.cluster import ClusterFigures, ClusterTraits, Elsewhere, Headers, Owner, Ownership, Query
from penstock.broker.fleet import ProcessGoneError
from penstock.engines.core.broker.hosting import Means
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.sessions import ProcessAuthentication, new_process_id
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.lease import Lease, LeaseListener
from penstock.engines.kafka.driver.shared_log import Journal, JournalReader
from penstock.engines.kafka.internal import CURSORS, SLOTS, have_owner_topics, owner_group
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.stored import Misfit
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import UNKNOWN_CLIENT, ClientInfo
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .cleaning import LOOK_S, CursorCleaning
from .links import OwnerLinks, Owners
from .others import OtherProcesses, OwnerAdmin
from .owned import Service
from .served import ServedConsumers, ServedSubscriptions
from .shown_marks import ShownMarks

log = logging.getLogger(__name__)

BEGIN_S: Final = 15.0  # for the group to assign the first slots; the process starts in any case


class Serving:
    """`broker.Cluster`. `fleet` knows the other processes; None: this process cannot reach any."""

    # Kafka is asked under the server's own credentials, and has no REST.
    traits = ClusterTraits(kind="kafka", administered=False)

    def __init__(
        self,
        kafka: KafkaCluster,
        topics: KafkaTopics,
        clock: Clock,
        tasks: Tasks,
        means: Means,
        *,
        fleet: ProcessFleet | None,
        new_name: Callable[[str], str],
    ) -> None:
        clients, settings, timeout_s = kafka.clients, kafka.settings, kafka.timeout_s
        prefix, group = settings.documents_topic, owner_group(settings)
        process = new_process_id() if fleet is None else fleet.id

        def open_journal(reader: JournalReader) -> Journal:
            return Journal(kafka.admin, prefix + CURSORS, reader)

        def open_lease(listener: LeaseListener) -> Lease:
            return Lease(clients, prefix + SLOTS, group, listener, client_id=f"penstock-{process}")

        self._kafka = kafka
        self._topics = topics
        self._tasks = tasks
        self._fleet = fleet
        self._began = False
        self._cursors = Cursors(open_journal, tasks, means.failures, group=group, process=process)
        self._marks = ShownMarks(self._cursors, kafka.groups, settings.group_prefix, time.monotonic)
        self.served = ServedSubscriptions(means, self._cursors, self._marks, open_lease, clients.refused)
        self.local = ServedConsumers(topics, self.served, clock, new_name)
        self._owners = owners = Owners(self._cursors, topics.at, fleet)
        tls = None if fleet is None else fleet.tls
        self._links = OwnerLinks(owners, self.local, tasks, self._credentials, timeout_s, tls)
        admin, self.others = OwnerAdmin(owners, fleet, timeout_s), OtherProcesses(fleet, clock, timeout_s)
        self.service = Service(topics, self._links, self.served, owners, admin)
        self._cleaning = CursorCleaning(self._cursors, kafka.admin, clock, self.served.serves)
        topics.closers.append(self.served.forget)
        topics.truncations.append(self._truncated)

    async def start(self) -> None:
        """Read the journal of cursors, and own slots. The cluster has been reached. Raises UNAVAILABLE, FORBIDDEN, and BAD_PARAMETER
        if the topics of slots and cursors do not fit."""
        self._began = True
        self._cursors.set_slots(await have_owner_topics(self._kafka))
        await self._cursors.start()
        self.served.owner.start()
        self._tasks.spawn(self._marks.run(), "show positions of subscriptions")
        self._tasks.spawn(self._clean(), "remove cursors of deleted topics")
        try:
            async with asyncio.timeout(BEGIN_S):
                await self.served.began.wait()
        except TimeoutError:
            log.info("this process owns no slots yet", extra={"group": self._cursors.group})

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                for topic in await self._cleaning.look():
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

    async def _credentials(self, process: str) -> ProcessAuthentication:
        if self._fleet is None:
            raise ProcessGoneError(f"process {process} is not known")
        return await self._fleet.credentials(process)

    def _truncated(self, topic: KafkaTopic) -> None:
        self._tasks.spawn(self.served.refit(topic), f"fit the cursors of {topic.name}")

    async def close(self) -> None:
        """Disconnect the consumers, save their cursors, and give the slots to the other processes; harmless if nothing began."""
        if self._began:
            self._began = False
            await self.served.owner.lease.close()
            await self._links.close()
            await self._cursors.close()

    # -- for endpoints

    def figures(self) -> ClusterFigures:
        ownership = self._ownership() if self._began else None
        return ClusterFigures(self._kafka.problem, self._kafka.clients.errors.counts(), ownership)

    def _ownership(self) -> Ownership:
        owner, refusal = self.served.owner, self.served.refusal
        return Ownership(
            slots=len(owner.open),
            doubts=owner.lease.doubts,
            saves=self._cursors.saves,
            misfits={reason.value: self.served.stored.misfits[reason] for reason in Misfit},
            removed=self._cleaning.removed,
            refusal="" if refusal is None else refusal.message,
        )

    async def request(
        self,
        method: str,
        target: Target,
        query: Query = (),
        headers: Headers = (),
        body: bytes = b"",
        *,
        caller: Acting | None = None,
    ) -> NoReturn:
        """Kafka has no REST."""
        raise PenstockError(ErrorKind.NOT_SUPPORTED, "a Kafka cluster takes no requests of HTTP")

    async def consumers(self, log: TopicName, subscription: str) -> Sequence[Mapping[str, str]]:
        return await self.service.consumers(log, subscription)

    async def elsewhere(self, topic: TopicName) -> Elsewhere:
        return await self.others.stats(topic)

    async def owner(self, topic: TopicName, client: ClientInfo = UNKNOWN_CLIENT) -> Owner:
        """Every process serves every topic; the owner of a partition does it without a link."""
        return self._owners.address(topic)

    def announce(self, own: Owner) -> None:
        """Other processes know the addresses of this one by its document (`engines/fleet`)."""

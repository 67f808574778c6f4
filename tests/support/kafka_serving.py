"""A process that serves subscriptions over a journal and a log in memory, as one of a service before Kafka."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from penstock.engines.core.broker.hosting import Means
from penstock.engines.core.topic.served import ServedTopic
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.naming import Place
from penstock.engines.kafka.replies import SentReplies
from penstock.engines.kafka.serving.served import ServedConsumer, ServedConsumers, ServedSubscriptions
from penstock.engines.kafka.serving.shown_marks import ShownMarks
from penstock.engines.kafka.serving.state import slot_of
from penstock.engines.shared.new_names import NewNames
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, InForce, Quota, Retention, SubscriptionType
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

from .cursor_journal import SLOTS, Log, Process
from .skipping_log import LEDGER, Host, SkippingLog

TOPIC = "t"
SLOT = slot_of(TOPIC, 0, SLOTS)
SHARED = SubscriptionType.SHARED
FLUSH_MS = 100
READ_ALL = 10_000
WAIT_S = 30.0


class LogTopic(SkippingLog, ServedTopic):
    """`KafkaTopic` of a process, over the entries of a log that all processes share."""

    compaction = Compaction()

    def policy(self, **changed: Any) -> None:
        """Have these policies bound the topic, besides those of before."""
        self.apply(structs.replace(self.policies, **changed))

    def __init__(self, log: SkippingLog, place: Place) -> None:
        super().__init__(log.clock)
        self.log = log
        self.name = TopicName.parse(place.topic)
        self.place = place
        self.subscriptions: dict[str, Any] = {}
        self.followers: set[Callable[[], None]] = set()
        ServedTopic.__init__(self, log.clock, InForce(Retention(), 0, Quota(), Quota(), False, 0, 0, 0, 0), 0)
        self.refreshes = 0
        self.cut_at: int | None = None

    async def refresh(self) -> None:
        self.refreshes += 1
        self.entries, self.ever = self.log.entries, self.log.ever
        self.first_entry = self.first_offset = self.log.first_offset
        self.next_entry = self.next_offset = self.log.next_offset

    def need_from(self, offset: int) -> None:
        """All of it is in memory."""

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id in (EARLIEST, LATEST):
            return self.first_offset if message_id == EARLIEST else self.next_offset
        return min(message_id.entry + (not inclusive), self.next_offset)

    def check_there(self) -> None:
        if self.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, "deleted")


class Lease:
    """The slots that the group assigns, as the test says."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.sure = True

    def holds(self, slot: int) -> bool:
        return self.sure and slot in self.held


class Groups:
    """Consumer groups of the cluster: what each has committed, and the error that an operation raises, by group."""

    def __init__(self) -> None:
        self.commits: dict[str, dict[At, int]] = {}
        self.errors: dict[str, PenstockError] = {}
        self.calls = 0

    def _called(self, group: str) -> None:
        self.calls += 1
        if group in self.errors:
            raise self.errors[group]

    async def commit(self, group: str, changes: Mapping[At, int]) -> None:
        self._called(group)
        self.commits.setdefault(group, {}).update(changes)

    async def delete(self, group: str) -> None:
        self._called(group)
        if self.commits.pop(group, None) is None:
            raise PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, group)


class Server:
    """One process; `name` names it in claims."""

    def __init__(self, journal: Log, name: str, log: SkippingLog, groups: Groups | None = None) -> None:
        self.groups = groups or Groups()
        self.now_s = 0.0
        self.topic: Any = LogTopic(log, Place(TOPIC, 0, "id"))
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.lease = Lease()
        self.flusher = CursorFlusher(self.clock, FLUSH_MS, self.tasks.spawn)
        nothing: Any = None
        host = Host()
        means = Means(wire.keys, self.flusher, host.bury, SentReplies(nothing), host.failures, self.tasks)
        self.refusal: PenstockError | None = None  # of the cluster
        self.process = Process(journal, name)
        self.cursors = self.process.cursors
        self.marks = ShownMarks(self.cursors, self.groups, "", lambda: self.now_s)
        self.served = ServedSubscriptions(
            means, self.cursors, self.marks, lambda listener: self.lease, lambda: self.refusal
        )
        self.owner = self.served.owner
        topics: Any = self
        self.consumers = ServedConsumers(topics, self.served, self.clock, NewNames())

    async def get_for_process(self, name: TopicName) -> LogTopic:
        """As the topics of a process."""
        return await self.get(name)

    async def get(self, name: TopicName, *, create: bool | None = None) -> LogTopic:
        """As the topics of a process."""
        await self.topic.refresh()
        return self.topic

    async def gain(self) -> None:
        """The group assigns the topic's slot to this process, which claims it."""
        self.process.journal.read_on(READ_ALL)
        self.lease.held.add(SLOT)
        self.owner.gained([SLOT])
        async with asyncio.timeout(WAIT_S):
            while not self.owner.owns(SLOT):
                await asyncio.sleep(0)

    async def release(self) -> None:
        """The group takes the slot away."""
        self.lease.held.discard(SLOT)
        await self.owner.releasing([SLOT])

    def read(self) -> None:
        """Read what other processes wrote."""
        self.process.journal.read_on(READ_ALL)

    async def subscribe(
        self, name: str = "c", subscription: str = "s", type: SubscriptionType = SHARED, **options: Any
    ) -> ServedConsumer:
        """A consumer from the beginning of the log."""
        chosen = ConsumerOptions(**{"name": name, "type": type, "start": EARLIEST, "window": 100, **options})
        return await self.consumers.subscribe([self.topic.name], subscription, chosen)

    async def close(self) -> None:
        await self.tasks.close()
        await self.process.close()


async def offsets(consumer: Any) -> set[int]:
    """The messages that a consumer got since the last call."""
    await settle()
    return {one.entry.offset for one in consumer.take()}


def id_of(offset: int) -> MessageId:
    return MessageId(LEDGER, offset, -1)

"""The subscriptions that this process serves: durable ones of the slots that it owns, and those of its readers."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.engines.attached.link import Moved
from penstock.engines.kafka.ownership.cursors import Cursors
from penstock.engines.kafka.ownership.owner import SlotOwner
from penstock.engines.kafka.ownership.ports import Replaced
from penstock.engines.kafka.ownership.records import CursorKey, CursorRecord, check_properties
from penstock.engines.kafka.ownership.writer import JournalWriter
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Locks, Tasks

from .host import Means, TopicHost
from .shown_marks import ShownMarks
from .subscription import ServedSubscription

log = logging.getLogger(__name__)

REFIT_S: Final = 1.0  # until the cursors of a truncated log are looked at again, if that failed


class ServedSubscriptions:
    """`SlotHost`. A durable subscription is opened when it is first used, and is open until its slot, or its topic, is closed.

    `use` is called before slots come. `refused` says why the cluster refuses this process, which then keeps no slots.
    """

    cursors: Cursors
    _owner: SlotOwner

    def __init__(
        self, means: Means, tasks: Tasks, refused: Callable[[], PenstockError | None] = lambda: None
    ) -> None:
        self.refusal: PenstockError | None = None  # why this process can own no slots
        self.began = asyncio.Event()  # the first slots came, or none will
        self._means = means
        self._refused = refused
        self._tasks = tasks
        self._by_slot: defaultdict[int, set[ServedSubscription]] = defaultdict(set)
        self._closings: Counter[int] = Counter()  # how often each slot was closed
        self._locks: Locks[tuple[int, str]] = Locks()

    def use(self, owner: SlotOwner, cursors: Cursors, marks: ShownMarks) -> None:
        """The owner of slots, whose host this is, its cursors, and what shows their marks."""
        self._owner = owner
        self.cursors = cursors
        self._writer = JournalWriter(cursors)
        self._marks = marks

    # -- subscriptions

    def slot(self, topic: KafkaTopic) -> int:
        """The slot of a topic or partition."""
        return self.cursors.slot(topic.place.topic, topic.place.partition)

    def owns(self, topic: KafkaTopic) -> bool:
        """Whether durable subscriptions of a topic are served here now."""
        return self._owner.owns(self.slot(topic))

    def serves(self, key: CursorKey) -> bool:
        """Whether the durable subscription of a cursor is open here."""
        slot = self.cursors.slot(key.topic, key.partition)
        return any(
            (one.topic.place.topic, one.topic.place.partition, one.name)
            == (key.topic, key.partition, key.subscription)
            for one in self._by_slot.get(slot, ())
        )

    async def find(self, topic: KafkaTopic, name: str) -> ServedSubscription | None:
        """A durable subscription, if it exists. Raises `Moved` if another process owns the slot, SUBSCRIPTION_BUSY if readers have
        a subscription of this name, UNAVAILABLE, also if the cluster refuses this process, and NEWER_FORMAT if its cursor cannot be read."""
        async with self._locks.hold((topic.ledger, name)):
            return await self._find(topic, name)

    async def open_all(self, topic: KafkaTopic) -> None:
        """Open the durable subscriptions of a topic that has been refreshed, if this process owns them."""
        place = topic.place
        names = self.cursors.known(place.topic, place.partition).keys() - topic.served.keys()
        for name in sorted(names) if self.refusal is None and self.owns(topic) else ():
            try:
                async with self._locks.hold((topic.ledger, name)):
                    await self._find(topic, name, refreshed=True)
            except PenstockError as error:
                log.debug("subscription %s of %s is not opened: %s", name, topic.name, error.message)

    async def create(
        self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str] | None = None
    ) -> tuple[ServedSubscription, bool]:
        """A durable subscription, and whether it is new: then everything below `mark` counts as acknowledged, durably. Raises as
        `find`."""
        async with self._locks.hold((topic.ledger, name)):
            found = await self._find(topic, name)
            if found is not None:
                return found, False
            self._check_room(topic)
            slot, given = self.slot(topic), dict(properties or {})
            closings, place = self._closings[slot], topic.place
            document = msgspec.json.encode(given) if given else None
            check_properties(document)
            record = CursorRecord(
                place.topic, place.partition, name, place.topic_id, mark, properties=document
            )
            try:
                await self.cursors.save((record,))
            except Replaced:
                raise Moved(topic.name) from None
            return self._serve(topic, name, OffsetSet(mark), given, closings), True

    def _check_room(self, topic: KafkaTopic) -> None:
        most, place = topic.policies.max_subscriptions, topic.place
        if 0 < most <= len(self.cursors.known(place.topic, place.partition)):
            raise PenstockError(
                ErrorKind.TOO_MANY_SUBSCRIPTIONS,
                f"topic {topic.name} has {most} subscriptions: no more are allowed",
            )

    async def _find(
        self, topic: KafkaTopic, name: str, *, refreshed: bool = False
    ) -> ServedSubscription | None:
        slot, place = self.slot(topic), topic.place
        if self.refusal is not None:
            raise PenstockError(self.refusal.kind, self.refusal.message)
        if not self._owner.owns(slot):
            raise self._refused() or Moved(topic.name)
        found = topic.served.get(name)
        if isinstance(found, ServedSubscription):
            if not found.durable:
                raise PenstockError(
                    ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} has consumers that are not durable"
                )
            return found
        closings, key = self._closings[slot], CursorKey(place.topic, place.partition, name)
        try:
            if key not in self.cursors.load(slot):
                return None
            if not refreshed:
                await topic.refresh()
            end = topic.next_offset if topic.cut_at is None else min(topic.next_offset, topic.cut_at)
            opened = await self.cursors.open(key, place.topic_id, min(topic.first_offset, end), end)
        except Replaced:
            raise Moved(topic.name) from None
        if opened is None:
            return None
        cursor, document = opened
        properties = {} if document is None else msgspec.json.decode(document, type=dict[str, str])
        return self._serve(topic, name, cursor, properties, closings)

    def _serve(
        self, topic: KafkaTopic, name: str, cursor: OffsetSet, properties: dict[str, str], closings: int
    ) -> ServedSubscription:
        """Begin with a cursor that was read when the slot had been closed `closings` times."""
        slot, place = self.slot(topic), topic.place
        if self._closings[slot] != closings or not self._owner.owns(slot):
            raise Moved(topic.name)
        made = self._open(topic, name, cursor, lambda: self._owner.owns(slot), properties)
        self._writer.bind(topic.ledger, place.topic, place.partition, place.topic_id)
        self._by_slot[slot].add(made)
        return made

    def _open(
        self,
        topic: KafkaTopic,
        name: str,
        cursor: OffsetSet,
        owns: Callable[[], bool] | None = None,
        properties: dict[str, str] | None = None,
    ) -> ServedSubscription:
        """A durable subscription, or without `owns` one that is not durable. Raises TOPIC_NOT_FOUND if the topic was deleted
        meanwhile: nobody would end the subscription."""
        topic.check_open()
        made = topic.served[name] = ServedSubscription(
            topic,
            name,
            cursor=cursor,
            durable=owns is not None,
            tasks=self._tasks,
            cursors=self._writer,
            host=TopicHost(topic, self._means, self.removed),
            owns=owns or (lambda: True),
            alone=lambda: self._locks.hold((topic.ledger, name)),
            properties=properties,
        )
        topic.bound(made)
        return made

    def transient(self, topic: KafkaTopic, name: str, mark: int) -> ServedSubscription:
        """A subscription in memory, which ends with its consumers, and which any process may serve. Raises SUBSCRIPTION_BUSY if a
        durable one has this name."""
        found = topic.served.get(name)
        if isinstance(found, ServedSubscription) and not found.durable:
            return found
        if self.cursors.state.has(CursorKey(topic.place.topic, topic.place.partition, name)):
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} is durable")
        return self._open(topic, name, OffsetSet(mark))

    def removed(self, subscription: Subscription) -> None:
        """A subscription was deleted."""
        assert isinstance(subscription, ServedSubscription)
        self._unlist(subscription)
        self._by_slot[self.slot(subscription.topic)].discard(subscription)

    def forget(self, topic: KafkaTopic) -> None:
        """The topic was deleted, or is not used any more: end its subscriptions."""
        gone = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{topic.name} was deleted")
        for subscription in list(topic.served.values()):
            assert isinstance(subscription, ServedSubscription)
            self.removed(subscription)
            if topic.deleted:
                subscription.dissolve(gone, with_topic=True)
            subscription.drop()
        self._writer.unbind(topic.ledger)

    async def unload(self, topic: KafkaTopic) -> None:
        """Disconnect the consumers of a topic, save the cursors, and open its subscriptions again when they are next used."""
        await self._unload(self._served(topic))

    async def _unload(self, found: Sequence[ServedSubscription]) -> None:
        for subscription in found:
            subscription.end()  # until it is saved, consumers that come back are refused
        await self._means.flusher.flush()
        for subscription in found:
            self.removed(subscription)
            subscription.drop()

    def _served(self, topic: KafkaTopic) -> list[ServedSubscription]:
        return [one for one in topic.served.values() if isinstance(one, ServedSubscription)]

    async def refit(self, topic: KafkaTopic) -> None:
        """A log was truncated: have every cursor fit that this process keeps of it. Consumers of durable subscriptions are
        disconnected, and come back: what they have of the end is not in the log any more, and other messages get its offsets."""
        unloaded_at: int | None = None
        while (end := topic.cut_at) is not None and not topic.deleted:
            if unloaded_at != end:
                unloaded_at = end
                found = self._served(topic)
                for subscription in found:
                    if not subscription.durable and subscription.cursor.mark > end:
                        await subscription.move(end)
                await self._unload([one for one in found if one.durable])
            if not await self._fit_all(topic):
                await asyncio.sleep(REFIT_S)
            elif topic.cut_at == end:
                topic.cut_at = None

    async def _fit_all(self, topic: KafkaTopic) -> bool:
        """Open the durable subscriptions of a topic, as far as this process owns them; False if the cluster cannot be asked now."""
        place = topic.place
        for name in sorted(self.cursors.known(place.topic, place.partition)):
            try:
                if self.owns(topic):
                    async with self._locks.hold((topic.ledger, name)):
                        await self._find(topic, name, refreshed=True)
            except Moved:
                continue
            except PenstockError as error:
                log.info("the cursor %s of %s is not fitted: %s", name, topic.name, error.message)
                if error.kind is ErrorKind.UNAVAILABLE:
                    return False
        return True

    def sweep(self, topics: Iterable[KafkaTopic]) -> None:
        """Count as acknowledged what retention deleted."""
        for topic in topics:
            for subscription in topic.served.values():
                subscription.trimmed(topic.first_offset)

    async def delete_cursors(self, topic: str, but: str) -> None:
        """A topic (Kafka's name) was deleted through this service: delete those of its cursors that this process owns, but not those
        of the topic with the id `but`, which has its name now. Raises UNAVAILABLE."""
        gone = [
            key
            for slot in list(self.cursors.owned)
            for key, stored in self.cursors.load(slot).items()
            if key.topic == topic and stored.topic_id != but
        ]
        await self.cursors.delete_all(gone)

    # -- slots

    def opened(self, slots: Sequence[int]) -> None:
        """Consumers come by themselves: their links look for the owner."""
        self.refusal = None
        self._marks.refresh(slots)
        self.began.set()

    async def closing(self, slots: Sequence[int]) -> None:
        for subscription in self._of(slots):
            self._unlist(subscription)
            subscription.end()
        await self._means.flusher.flush()

    def closed(self, slots: Sequence[int]) -> None:
        self._closings.update(slots)
        for subscription in self._of(slots):
            self._unlist(subscription)
            subscription.drop()
        for slot in slots:
            self._by_slot.pop(slot, None)

    def _of(self, slots: Iterable[int]) -> list[ServedSubscription]:
        return [one for slot in slots for one in self._by_slot.get(slot, ())]

    def _unlist(self, subscription: ServedSubscription) -> None:
        served = subscription.topic.served
        if served.get(subscription.name) is subscription:
            del served[subscription.name]

    def confirmed(self) -> None:
        for served in self._by_slot.values():
            for subscription in served:
                subscription.wake()

    def refused(self, error: PenstockError) -> None:
        if self.refusal is None or self.refusal.message != error.message:
            log.error("this process serves no subscriptions", extra={"reason": error.message})
        self.refusal = error
        self.began.set()

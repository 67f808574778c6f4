"""The subscriptions that this process serves: durable ones of the slots that it owns, and those of its readers; and their consumers."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

from penstock.engines.attached.link import Moved
from penstock.engines.attached.subscription import subscriptions_of
from penstock.engines.core.broker.consumers import Consumers
from penstock.engines.core.broker.hosting import Means
from penstock.engines.core.broker.subscriptions import RunningSubscriptions
from penstock.engines.core.ports import Held
from penstock.engines.kafka.driver.lease import Lease, LeaseListener
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock

from .cursors import Cursors
from .owner import SlotOwner
from .shown_marks import ShownMarks
from .state import CursorKey, check_properties
from .stored import JournalCursors

log = logging.getLogger(__name__)

REFIT_S: Final = 1.0  # until the cursors of a truncated log are looked at again, if that failed


class ServedSubscription(Subscription):
    """`broker.Subscription`. The log is followed while it has consumers.

    Nothing is delivered unless it is `held`; while `alone` is held, no subscription of this name is opened. After `end` nothing is
    delivered, and answers are refused; after `drop` another process may serve the subscription, and nothing is saved here either.
    """

    topic: KafkaTopic

    def __init__(
        self,
        topic: KafkaTopic,
        name: str,
        held: Held | None,
        alone: Callable[[], AbstractAsyncContextManager[None]],
        **parts: Any,
    ) -> None:
        """`held`: whether this process may serve it; None: any process may, and it is not durable. `parts` are those of any
        subscription."""
        super().__init__(topic, name, durable=held is not None, **parts)
        self.ended = False
        self._held = held
        self._alone = alone

    @property
    def halted(self) -> bool:
        return self.ended or super().halted or (self._held is not None and not self._held())

    def check_held(self) -> None:
        """Raise `Moved` after the end."""
        if self.ended:
            raise Moved(self.topic.name)

    async def _save(self, properties: bytes | None = None) -> None:
        self.check_held()
        check_properties(properties)
        await super()._save(properties)
        if self.ended and self.deleted:  # it gave up
            self.check_held()

    def add(self, consumer: Receiver, *, unique_name: bool = False) -> None:
        """As `Subscription.add`; raises `Moved` after the end."""
        self.check_held()
        super().add(consumer, unique_name=unique_name)
        self.topic.need_from(self.cursor.mark)
        self.topic.followers.add(self.wake)

    def remove(self, consumer: Receiver) -> None:
        super().remove(consumer)
        if not self.consumers:
            self.topic.followers.discard(self.wake)

    async def move(self, offset: int) -> None:
        """As `Subscription.move`. Consumers are notified before anything is delivered from the new position."""
        self.tell_moved()
        await super().move(offset)

    def tell_moved(self) -> None:
        """Consumers of other processes are disconnected, as brokers of Pulsar do: they come back, and expect everything that is not
        acknowledged. Those of this process forget what they got."""
        for consumer in list(self.consumers):
            if consumer.options.forwarded:
                consumer.close()
            elif consumer.moved is not None:
                consumer.moved()

    async def delete(self, *, force: bool = True) -> None:
        """As `Subscription.delete`. Consumers that subscribe during that wait, and begin a new subscription. Raises `Moved` if another
        call deleted it, or after the end: the cursor may be that of the next subscription of this name."""
        async with self._alone():
            if self.ended or self.deleted:
                raise Moved(self.topic.name)
            await super().delete(force=force)

    def end(self) -> None:
        """Disconnect the consumers, which connect to the next owner. The flusher saves what they acknowledged before."""
        self.ended = True
        self.close()

    def drop(self) -> None:
        """`end`, and save nothing more: the cursor may be that of an earlier holding of the slot."""
        if not self.ended:
            self.end()
        self.deleted = True


class ServedSubscriptions(RunningSubscriptions[KafkaTopic, ServedSubscription]):
    """`SlotHost`, and the `Lease` of its own subscriptions, which run until their slot, or their topic, is closed.

    `marks` shows the positions of its cursors. `refused` says why the cluster refuses this process, which then keeps no slots.
    """

    def __init__(
        self,
        means: Means,
        cursors: Cursors,
        marks: ShownMarks,
        open_lease: Callable[[LeaseListener], Lease],
        refused: Callable[[], PenstockError | None] = lambda: None,
    ) -> None:
        self.refusal: PenstockError | None = None  # why this process can own no slots
        self.began = asyncio.Event()  # the first slots came, or none will
        self.cursors = cursors
        self.owner = SlotOwner(self, cursors, open_lease, means.tasks)
        self.stored = JournalCursors(cursors)
        self._marks = marks
        self._flusher = means.flusher
        self._refused = refused
        self._by_slot: defaultdict[int, set[ServedSubscription]] = defaultdict(set)
        self._closings: Counter[int] = Counter()  # how often each slot was closed
        super().__init__(
            self, self.stored, means, self._make, moved=lambda topic, subscription: None, removed=self._unlist
        )

    # -- which are this process's

    def slot(self, topic: KafkaTopic) -> int:
        """The slot of a topic or partition."""
        return self.cursors.slot(topic.place.topic, topic.place.partition)

    def owns(self, topic: KafkaTopic) -> bool:
        """Whether durable subscriptions of a topic are served here now."""
        return self.owner.owns(self.slot(topic))

    def serves(self, key: CursorKey) -> bool:
        """Whether the durable subscription of a cursor is open here."""
        slot = self.cursors.slot(key.topic, key.partition)
        return any(
            (one.topic.place.topic, one.topic.place.partition, one.name)
            == (key.topic, key.partition, key.subscription)
            for one in self._by_slot.get(slot, ())
        )

    def hold(self, topic: KafkaTopic) -> Held:
        """As `Lease.hold`. Raises `Moved` if another process owns the slot, UNAVAILABLE, also if the cluster refuses this process."""
        slot = self.slot(topic)
        if self.refusal is not None:
            raise PenstockError(self.refusal.kind, self.refusal.message)
        if not self.owner.owns(slot):
            raise self._refused() or self.lost(topic)
        closings = self._closings[slot]
        return lambda: self._closings[slot] == closings and self.owner.owns(slot)

    def lost(self, topic: KafkaTopic) -> PenstockError:
        return Moved(topic.name)

    async def open_all(self, topic: KafkaTopic) -> None:
        """As `RunningSubscriptions.open_all`, if this process owns the topic."""
        if self.refusal is None and self.owns(topic):
            await super().open_all(topic)

    def _make(self, topic: KafkaTopic, name: str, held: Held | None, **parts: Any) -> ServedSubscription:
        made = ServedSubscription(topic, name, held, lambda: self.alone(topic, name), **parts)
        if held is not None:
            self._by_slot[self.slot(topic)].add(made)
        return made

    # -- their end

    def forget(self, topic: KafkaTopic) -> None:
        """The topic was deleted, or is not used any more: end its subscriptions."""
        gone = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{topic.name} was deleted")
        for subscription in _served(topic):
            self.removed(topic, subscription)
            if topic.deleted:
                subscription.dissolve(gone, with_topic=True)
            subscription.drop()
        self.stored.unbind(topic.ledger)

    async def unload(self, topic: KafkaTopic) -> None:
        """Disconnect the consumers of a topic, save the cursors, and open its subscriptions again when they are next used."""
        await self._unload(_served(topic))

    async def _unload(self, found: Sequence[ServedSubscription]) -> None:
        for subscription in found:
            subscription.end()  # until it is saved, consumers that come back are refused
        await self._flusher.flush()
        for subscription in found:
            self.removed(subscription.topic, subscription)
            subscription.drop()

    async def refit(self, topic: KafkaTopic) -> None:
        """A log was truncated: have every cursor fit that this process keeps of it. Consumers of durable subscriptions are
        disconnected, and come back. What consumers of this process have, or acknowledged lately, counts no more: some of it is not in
        the log, and other messages get its offsets."""
        unloaded_at: int | None = None
        while (end := topic.cut_at) is not None and not topic.deleted:
            if unloaded_at != end:
                unloaded_at = end
                for attached in list(subscriptions_of(topic).values()):
                    if attached.durable:
                        for consumer in list(attached.consumers):
                            consumer.start_over(attached)
                found = _served(topic)
                for subscription in found:
                    if subscription.durable:
                        subscription.tell_moved()
                    elif max(subscription.cursor.mark, subscription.figures().next_entry or 0) > end:
                        await subscription.move(min(subscription.cursor.mark, end))
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
                    async with self.alone(topic, name):
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

    def _unlist(self, topic: KafkaTopic, subscription: ServedSubscription) -> None:
        self._by_slot[self.slot(topic)].discard(subscription)

    # -- slots

    def opened(self, slots: Sequence[int]) -> None:
        """Consumers come by themselves: their links look for the owner."""
        self.refusal = None
        self._marks.refresh(slots)
        self.began.set()

    async def closing(self, slots: Sequence[int]) -> None:
        for subscription in self._of(slots):
            self.unserve(subscription.topic, subscription)
            subscription.end()
        await self._flusher.flush()

    def closed(self, slots: Sequence[int]) -> None:
        self._closings.update(slots)
        for subscription in self._of(slots):
            self.removed(subscription.topic, subscription)
            subscription.drop()

    def _of(self, slots: Iterable[int]) -> list[ServedSubscription]:
        return [one for slot in slots for one in self._by_slot.get(slot, ())]

    def confirmed(self) -> None:
        for served in self._by_slot.values():
            for subscription in served:
                subscription.wake()

    def refused(self, error: PenstockError) -> None:
        if self.refusal is None or self.refusal.message != error.message:
            log.error("this process serves no subscriptions", extra={"reason": error.message})
        self.refusal = error
        self.began.set()


def _served(topic: KafkaTopic) -> list[ServedSubscription]:
    return cast(list[ServedSubscription], list(topic.served.values()))  # nothing else is entered there


class ServedConsumer(Consumer):
    """`broker.Consumer`. It is closed when the subscription gets another owner."""

    async def flush(self) -> None:
        """As `Consumer.flush`. Raises `Moved` if it is closed: unsaved acknowledgements are unknown then."""
        if self.closed:
            raise Moved(self.subscription)
        await super().flush()


class ServedConsumers(Consumers[KafkaTopic, ServedSubscription]):
    """What links within this process, and the links of other processes, subscribe at: with one topic without partitions, or one
    partition. `subscribe` raises `Moved` if another process owns it and the consumer is durable."""

    kind = ServedConsumer

    def __init__(
        self,
        topics: KafkaTopics,
        subscriptions: ServedSubscriptions,
        clock: Clock,
        new_name: Callable[[str], str],
    ) -> None:
        async def logs_of(name: TopicName) -> Sequence[KafkaTopic]:
            # The caller has created it. One that was deleted does not come back because its consumers connect again.
            return [await topics.get_for_process(name)]

        super().__init__(logs_of, subscriptions, clock, new_name)

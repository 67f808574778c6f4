"""Subscriptions of one partition that run in this process."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from penstock.engines.attached.link import Moved
from penstock.engines.core.ports.cursors import Held
from penstock.engines.kafka.ownership.records import check_properties
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.receiver import Receiver


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
        """As `Subscription.move`. Consumers are told before anything is delivered from the new position."""
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
        """As `Subscription.delete`. Consumers that subscribe meanwhile wait, and begin a new subscription. Raises `Moved` if another
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

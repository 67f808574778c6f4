"""A consumer: what it answers to the messages it was given."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from penstock.broker.delivery import Budget, Delivery, Outcome
from penstock.broker.producer import Reply
from penstock.engines.shared.unsubscribing import check_sole_consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.policy import ConsumerOptions

from .receiver import Receiver
from .subscription import Subscription


class Consumer(Receiver):
    """`broker.Consumer`: endpoints take deliveries from its outbox and bring answers back.

    `left` is called when it leaves, with the subscriptions that it had and for how long (ms) those are kept that are not
    durable.
    """

    def __init__(
        self,
        name: str,
        subscription: str,
        options: ConsumerOptions,
        budget: Budget | None = None,
        connected_ms: int = 0,
        *,
        left: Callable[[Any, Sequence[Subscription], int], None] | None = None,
    ) -> None:
        super().__init__(name, subscription, options, budget, connected_ms)
        self._left = left

    async def leave(self, *, keep_ms: int = 0) -> None:
        attached = self.attached
        self.close()
        if self._left is not None:
            self._left(self, attached, keep_ms)

    async def unsubscribe(self) -> None:
        attached = self.attached
        check_sole_consumer(attached)
        for one in attached:
            await one.delete()

    @property
    def attached(self) -> list[Subscription]:
        return cast(list[Subscription], self.sources)  # nothing else attaches itself

    def source_of(self, message_id: MessageId) -> Subscription:
        found = self._attached.get(message_id.ledger)
        if found is None:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND, f"message id {message_id} is of no topic of this consumer"
            )
        return cast(Subscription, found)

    # -- answers

    async def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one message, or a whole entry if the id has no batch index.

        Raises MESSAGE_NOT_FOUND. It is durable after `flush`, or within the cursor's flush time.
        """
        source = self.source_of(message_id)
        if not source.answers.acknowledge(message_id.entry, message_id.batch_index):
            await source.answers.acknowledge_late(message_id)

    async def acknowledge_all(self, message_ids: Sequence[MessageId]) -> int:
        """Acknowledge many messages at once, as `acknowledge` does each; those that are not there are passed over.

        Returns how many were acknowledged. The store's failures count as not there.
        """
        by_ledger: dict[int, list[MessageId]] = {}
        for message_id in message_ids:
            by_ledger.setdefault(message_id.ledger, []).append(message_id)
        acknowledged = 0
        for ledger, group in by_ledger.items():
            source = self._attached.get(ledger)
            if source is None:
                continue
            answers = cast(Subscription, source).answers
            count, late = answers.acknowledge_all(group)
            acknowledged += count
            for message_id in late:
                try:
                    await answers.acknowledge_late(message_id)
                    acknowledged += 1
                except PenstockError:
                    pass  # as for a frame that names no message
        return acknowledged

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        is_error: bool = False,
        schema_version: int | None = None,
    ) -> Outcome:
        """Answer a request and acknowledge it: the reply goes first (PIP-371).

        Returns what became of the reply; the acknowledgement counts in any case. Raises MESSAGE_NOT_FOUND
        when the message is not out with this consumer, TOO_LARGE.
        """
        source = self.source_of(message_id)
        outcome = await source.host.reply(source, self, Reply(message_id, content, is_error, schema_version))
        await self.acknowledge(message_id)
        return outcome

    def reply_all(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        by_ledger: dict[int, list[Reply]] = {}
        for reply in replies:
            by_ledger.setdefault(reply.request_id.ledger, []).append(reply)
        left: list[Reply] = []
        for ledger, group in by_ledger.items():
            source = cast(Subscription | None, self._attached.get(ledger))
            left += group if source is None else source.host.reply_all(source, self, group)
        return left

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id` in its partition.

        Raises BAD_PARAMETER on Shared and Key_Shared, MESSAGE_NOT_FOUND.
        """
        self.check_cumulative(message_id)
        await self.source_of(message_id).answers.acknowledge_up_to(message_id)

    def negative(self, message_id: MessageId, delay_ms: int | None = None) -> bool:
        """Give a message back for redelivery after the consumer's delay (or `delay_ms`).

        False when the message is not out, which changes nothing. Raises MESSAGE_NOT_FOUND.
        """
        delay = self.options.nack_delay_ms if delay_ms is None else delay_ms
        source = self.source_of(message_id)
        return source.answers.negative(message_id.entry, message_id.batch_index, delay)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            cast(Subscription, delivery.subscription).answers.give_back(self, delivery)

    async def seek(self, target: MessageId | int) -> None:
        """As `broker.Consumer.seek`; raises MESSAGE_NOT_FOUND for an id of another topic."""
        if isinstance(target, int) or target in (EARLIEST, LATEST):
            for source in self.attached:
                await source.seek(target)
            return
        await self.source_of(target).seek(target)

    async def flush(self) -> None:
        for source in self.attached:
            await source.flush()

    @property
    def drained(self) -> bool:
        """Whether every topic is terminated and everything in it was delivered (`isEndOfTopic`)."""
        return not self.outbox and all(s.drained for s in self.attached)

"""Consumers, as the endpoints drive them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.model.message_id import MessageId

from .delivery import Delivery, Outcome, Receiver
from .producer import Reply
from .subscription import Subscription


class Consumer(Receiver, Protocol):
    """One consumer, of one or more subscriptions of one name. The endpoint that made it sets `owner`, `proxy` and these three.

    Ids of other topics raise MESSAGE_NOT_FOUND.
    """

    end_reached: Callable[[], None] | None  # everything of a terminated topic was read
    active_changed: Callable[[Any, bool], None] | None  # of a Failover subscription
    moved: Callable[[], None] | None  # a subscription was moved: earlier deliveries are no longer outstanding

    @property
    def attached(self) -> Sequence[Subscription]: ...
    @property
    def drained(self) -> bool:
        """Whether every topic is terminated and everything in it was delivered (`isEndOfTopic`)."""

    def source_of(self, message_id: MessageId) -> Subscription:
        """The subscription that `message_id` belongs to; raises MESSAGE_NOT_FOUND."""

    async def acknowledge_all(self, message_ids: Sequence[MessageId]) -> int:
        """`acknowledge` many at once; returns the number acknowledged, without those that are not out."""

    def reply_all(self, replies: Sequence[Reply]) -> Sequence[Reply]:
        """Answer requests whose requesters are known to wait; the caller acknowledges them. Returns those for which
        `reply` has to look further, or refuse: with them nothing has happened."""

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return deliveries that were taken but never handed on; they do not count as redeliveries."""

    async def unsubscribe(self) -> None:
        """Delete its subscriptions, which closes it; raises SUBSCRIPTION_SHARED if one has other consumers."""

    async def leave(self, *, keep_ms: int = 0) -> None:
        """Close it, and have the engine forget it. Subscriptions that are not durable are deleted with their last
        consumer, after `keep_ms`."""

    async def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one message, or a whole entry if the id has no batch index; durable after `flush`."""

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id` in its partition; raises BAD_PARAMETER."""

    def negative(self, message_id: MessageId, delay_ms: int | None = None) -> bool:
        """Give a message back after the consumer's delay, or `delay_ms`; False when it is not out."""

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        is_error: bool = False,
        schema_version: int | None = None,
    ) -> Outcome:
        """Answer a request and acknowledge it (PIP-371); raises TOO_LARGE."""

    async def seek(self, target: MessageId | int) -> None:
        """Go on after `target` in its partition, or with the first message of each partition published at or after that time
        (ms). EARLIEST and LATEST count for every partition."""

    async def flush(self) -> None:
        """Complete when every acknowledgement given so far is durable."""

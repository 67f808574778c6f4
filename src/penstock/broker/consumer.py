"""Subscriptions, their consumers, and what is delivered to them."""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from typing import Any, Protocol

import msgspec

from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.statistics import Rate

from .log import Log


class Outcome(Enum):
    """What became of a reply; told to the replier."""

    DELIVERED = "ok"
    NOT_A_REQUEST = "the message is no request"
    NOBODY_WAITS = "nobody waits for this reply (any more)"


class Budget(Protocol):
    """What the principal of a consumer may have in memory, over all its connections."""

    @property
    def over(self) -> bool:
        """Whether it has more than it may."""
        ...

    def send(self, size: int) -> None:
        """Count `size` bytes more that wait to be sent; below zero: fewer."""
        ...

    def has_room(self, size: int) -> bool:
        """Whether it may have `size` bytes more."""
        ...

    def reserve(self, size: int) -> bool:
        """Count `size` bytes that are about to be read; False, and nothing is counted, without room."""
        ...

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, when there may be room."""
        ...


class DeliverySource(Protocol):
    """The subscription of a delivery."""

    @property
    def topic(self) -> Log: ...
    @property
    def name(self) -> str: ...


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """Part of an entry for a consumer: the messages whose bits are set in `mask` (bit i: batch index i)."""

    subscription: DeliverySource
    entry: Entry
    mask: int
    redeliveries: int

    @property
    def topic(self) -> Log:
        return self.subscription.topic

    @property
    def count(self) -> int:
        return self.mask.bit_count()


class Answers(Protocol):
    """What consumers say of one subscription's messages. Index -1 means a whole entry."""

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message that is out; False when the entry is not out."""
        ...

    async def acknowledge_late(self, message_id: MessageId) -> None:
        """Acknowledge a message that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""
        ...

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: "Receiver") -> bool:
        """Acknowledge an entry but for the bits `unacked`; False when the entry is not out with `consumer`."""
        ...

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: "Receiver") -> None:
        """The same for an entry that is not out (any more)."""
        ...

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id`; raises MESSAGE_NOT_FOUND."""
        ...

    def negative(self, entry_id: int, index: int, delay_ms: int, by: "Receiver | None" = None) -> bool:
        """Give a message back after a delay; False when it is not out (with `by`)."""
        ...

    def redeliver_all(self, consumer: "Receiver") -> None:
        """Deliver again everything that a consumer has."""
        ...


class Cursor(Protocol):
    """What a subscription has acknowledged: everything below `mark`, and ranges of offsets beyond it."""

    @property
    def mark(self) -> int: ...
    @property
    def beyond(self) -> int:
        """How many messages beyond the mark are acknowledged."""
        ...

    def mask(self, offset: int, count: int) -> int:
        """Which of `count` messages from `offset` on are acknowledged, as bits."""
        ...

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The first and last offset of each run of acknowledged messages beyond the mark, ascending."""
        ...


class SubscriptionFigures(Protocol):
    """What a subscription shows of itself; counters are since the server's start."""

    @property
    def active(self) -> "Receiver | None": ...
    @property
    def backlog(self) -> int: ...
    @property
    def consumers(self) -> Sequence["Receiver"]: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def delayed(self) -> int: ...
    @property
    def drained(self) -> bool: ...
    @property
    def durable(self) -> bool: ...
    @property
    def idle(self) -> bool: ...
    @property
    def next_entry(self) -> int | None: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def rate_out(self) -> Rate: ...
    @property
    def redelivered(self) -> int: ...
    @property
    def type(self) -> SubscriptionType | None: ...
    @property
    def unacked(self) -> int: ...


class Excerpts(Protocol):
    """Parts of entries that went out as batches of their own, with indexes from 0 on."""

    def add(self, entry_id: int, end: int, mask: int) -> None:
        """The messages in `mask` of an entry, which ends before the offset `end`, are sent as a batch."""
        ...

    def left(self, entry_id: int, bits: int) -> int:
        """Which messages of the entry an acknowledgement leaves that says so by the bits of one of its parts."""
        ...


class PartialBatches(Protocol):
    """How clients say which part of a batch they acknowledge (docs/compatibility.md)."""

    @property
    def excerpts(self) -> Excerpts: ...
    @property
    def clients_by_index(self) -> Collection[str]:
        """The versions of clients for which batches keep their indexes."""
        ...

    def learn_client(self, version: str) -> None:
        """A client of this version acknowledged part of a batch by its indexes in the whole."""
        ...


class SubscriptionPosition(Protocol):
    """Where a subscription goes on."""

    async def seek(self, target: MessageId, *, inclusive: bool = False) -> None:
        """Go on after `target` (or with it), closing the consumers as Pulsar does."""
        ...

    async def seek_time(self, publish_time: int) -> None:
        """Go on with the first message published at or after `publish_time` (ms)."""
        ...

    async def move(self, offset: int) -> None:
        """Go on at `offset`, forwards or backwards."""
        ...

    def skip(self, offset: int) -> None:
        """Acknowledge everything below `offset`."""
        ...

    async def last_visible(self) -> tuple[Entry, int] | None:
        """The last entry that its consumers may see, with the bits of its messages; None without one."""
        ...


class Subscription(DeliverySource, SubscriptionFigures, SubscriptionPosition, PartialBatches, Protocol):
    """One subscription of one log."""

    @property
    def answers(self) -> Answers: ...
    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        owner: str | None,
        is_error: bool,
        schema_version: int | None,
    ) -> Outcome:
        """Answer a request that is out with a consumer of `owner` (None: any). The caller acknowledges it afterwards.

        Raises MESSAGE_NOT_FOUND, TOO_LARGE.
        """
        ...

    async def flush(self) -> None:
        """Complete when every acknowledgement given so far is durable."""
        ...

    async def set_properties(self, properties: dict[str, str]) -> None:
        """Replace the properties, durably."""
        ...

    async def delete(self) -> None:
        """Delete the subscription with its cursor, closing its consumers."""
        ...


class ConsumerFigures(Protocol):
    """What a consumer shows of itself."""

    @property
    def name(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def options(self) -> ConsumerOptions: ...
    @property
    def connected_ms(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def permits(self) -> int: ...
    @property
    def unacked(self) -> int: ...
    @property
    def unacked_max(self) -> int: ...
    @property
    def closed(self) -> bool: ...
    @property
    def close_reason(self) -> PenstockError | None: ...
    @property
    def owner(self) -> str | None:
        """The role it acts for; None where authentication is off."""
        ...

    @property
    def proxy(self) -> str | None:
        """The role that made it for its owner; None: the owner itself."""
        ...


class ConsumerFlow(Protocol):
    """Deliveries on their way to a consumer."""

    outbox: deque[Delivery]

    def capacity(self) -> int:
        """How many more messages it takes now."""
        ...

    def flow(self, permits: int) -> None:
        """Permit so many messages more."""
        ...

    def stop_flow(self) -> None:
        """Take every permit back."""
        ...

    def take(self, count_max: int = ..., bytes_max: int = ...) -> list[Delivery]:
        """Take deliveries from the outbox, within both bounds but at least one."""
        ...

    async def ready(self) -> bool:
        """Wait until there is something to take; False once the consumer is closed."""
        ...

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave; what it had goes to the others."""
        ...


class Receiver(ConsumerFigures, ConsumerFlow, Protocol):
    """A consumer, as far as it is delivered to."""


class ConsumerAnswers(Protocol):
    """What the client of a consumer says of its messages; ids of other topics raise MESSAGE_NOT_FOUND."""

    async def acknowledge(self, message_id: MessageId) -> None:
        """Acknowledge one message, or a whole entry where the id has no batch index; durable after `flush`."""
        ...

    async def acknowledge_cumulative(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id` in its partition; raises BAD_PARAMETER."""
        ...

    def negative(self, message_id: MessageId, delay_ms: int | None = None) -> bool:
        """Give a message back after the consumer's delay, or `delay_ms`; False when it is not out."""
        ...

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        is_error: bool = False,
        schema_version: int | None = None,
    ) -> Outcome:
        """Answer a request and acknowledge it (PIP-371); raises TOO_LARGE."""
        ...

    async def seek(self, target: MessageId) -> None:
        """Go on after `target` in its partition; EARLIEST and LATEST count for every partition."""
        ...

    async def seek_time(self, publish_time: int) -> None:
        """Go on with the first message of each partition published at or after `publish_time` (ms)."""
        ...

    async def flush(self) -> None:
        """Complete when every acknowledgement given so far is durable."""
        ...


class Consumer(Receiver, ConsumerAnswers, Protocol):
    """One consumer, of one or more subscriptions of one name. The endpoint that made it sets what follows."""

    owner: str | None
    proxy: str | None
    end_reached: Callable[[], None] | None  # everything of a terminated topic was read
    active_changed: Callable[[Any, bool], None] | None  # of a Failover subscription

    @property
    def attached(self) -> Sequence[Subscription]: ...
    @property
    def drained(self) -> bool:
        """Whether every topic is terminated and everything in it was delivered (`isEndOfTopic`)."""
        ...

    def source_of(self, message_id: MessageId) -> Subscription:
        """The subscription that `message_id` belongs to; raises MESSAGE_NOT_FOUND."""
        ...

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return what was taken but never handed on; it does not count as a redelivery."""
        ...

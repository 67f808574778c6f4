"""Deliveries, and the receiving side of a consumer."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.policy import ConsumerOptions

from .log import Log


class Outcome(Enum):
    """What became of a reply; the replier gets the value."""

    DELIVERED = "ok"
    NOT_A_REQUEST = "the message is no request"
    NOBODY_WAITS = "nobody waits for this reply (any more)"


class Budget(Protocol):
    """What the principal of a consumer may have in memory, over all its connections."""

    @property
    def over(self) -> bool:
        """Whether it has more than it may."""

    def send(self, size: int) -> None:
        """Count `size` bytes more that wait to be sent; below zero: fewer."""

    def has_room(self, size: int) -> bool:
        """Whether it may have `size` bytes more."""

    def reserve(self, size: int) -> bool:
        """Count `size` bytes that are about to be read; False, and nothing is counted, without room."""

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, when there may be room."""


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


class ConsumerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a consumer has, in messages, and since when (ms since the epoch) it is there."""

    connected_ms: int
    permits: int
    capacity: int  # how many more it takes now
    unacked: int
    unacked_max: int


class Receiver(Protocol):
    """A consumer, as far as messages are delivered to it: what it shows of itself, and its deliveries."""

    owner: str | None  # the role it acts for; None if authentication is off
    proxy: str | None  # the role that made it for its owner; None: the owner itself

    @property
    def name(self) -> str: ...
    @property
    def subscription(self) -> str: ...
    @property
    def options(self) -> ConsumerOptions: ...
    @property
    def delivered(self) -> int:
        """How many messages it got."""

    def figures(self) -> ConsumerFigures: ...
    @property
    def closed(self) -> bool: ...
    @property
    def close_reason(self) -> PenstockError | None: ...

    outbox: deque[Delivery]

    def flow(self, permits: int) -> None:
        """Permit so many messages more."""

    def stop_flow(self) -> None:
        """Take every permit back."""

    def take(self, count_max: int = ..., bytes_max: int = ...) -> list[Delivery]:
        """Take deliveries from the outbox, within both bounds but at least one."""

    async def ready(self) -> bool:
        """Wait until there is something to take; False once the consumer is closed."""

    def close(self, reason: PenstockError | None = None) -> None:
        """Leave; what it had goes to the others."""

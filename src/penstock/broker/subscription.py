"""Subscriptions of one log: where they stand, who takes part, and what consumers say of their messages."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from penstock.model.entry import Entry
from penstock.model.message_id import MessageId
from penstock.model.policy import SubscriptionType
from penstock.runtime.statistics import Rate

from .delivery import DeliverySource, Outcome, Receiver


class EntryAnswers(Protocol):
    """What consumers say of the entries of one log that they were given. Index -1 means a whole entry."""

    def acknowledge_but(self, entry_id: int, unacked: int, consumer: Receiver) -> bool:
        """Acknowledge an entry but for the bits `unacked`; False when the entry is not out with `consumer`."""

    async def acknowledge_but_late(self, entry_id: int, unacked: int, consumer: Receiver) -> None:
        """The same for an entry that is not out (any more)."""

    def negative(self, entry_id: int, index: int, delay_ms: int, by: Receiver | None = None) -> bool:
        """Give a message back after a delay; False when it is not out (with `by`)."""

    def redeliver_all(self, consumer: Receiver) -> None:
        """Deliver again everything that a consumer has."""


class Answers(EntryAnswers, Protocol):
    """What consumers say of one subscription's messages, without naming a consumer."""

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message that is out; False when the entry is not out."""

    def acknowledge_masks(self, masks: Mapping[int, int]) -> list[int]:
        """Acknowledge messages that are out, as bits by entry, -1 for a whole one; returns the entries that were passed
        over, as they are not out or have not all of these messages."""

    async def acknowledge_late(self, message_id: MessageId) -> None:
        """Acknowledge a message that is not out (any more); raises MESSAGE_NOT_FOUND when there is none."""

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id`; raises MESSAGE_NOT_FOUND."""


class Cursor(Protocol):
    """What a subscription has acknowledged: everything below `mark`, and ranges of offsets beyond it."""

    @property
    def mark(self) -> int: ...
    @property
    def beyond(self) -> int:
        """How many messages beyond the mark are acknowledged."""

    def mask(self, offset: int, count: int) -> int:
        """Which of `count` messages from `offset` on are acknowledged, as bits."""

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The first and last offset of each run of acknowledged messages beyond the mark, ascending."""


class DeadLetterStats(msgspec.Struct):
    """Statistics of the dead letters of a subscription that this process publishes."""

    waiting: int = 0  # messages that the dead-letter topic refused: they stay unacknowledged, and are retried
    failed: int = 0  # failed attempts since the server started
    error: str | None = None  # why the last attempt failed, while messages wait


class PartialBatches(Protocol):
    """How clients say which part of a batch they acknowledge (docs/binary.md)."""

    @property
    def clients(self) -> Collection[str]:
        """The versions of clients for which batches keep their indexes."""

    def learn(self, version: str) -> None:
        """A client of this version acknowledged part of a batch by its indexes in the whole."""

    def add(self, entry_id: int, end: int, mask: int) -> None:
        """The messages in `mask` of an entry, which ends before the offset `end`, are sent as a batch with indexes from 0."""

    def left(self, entry_id: int, bits: int) -> int:
        """The messages of the entry that remain open after an acknowledgement by the bits of one of its parts."""


class Subscription(DeliverySource, Protocol):
    """One subscription of one log. Counters are since the server's start."""

    @property
    def active(self) -> Receiver | None: ...
    @property
    def backlog(self) -> int: ...
    @property
    def connected(self) -> Sequence[str]:
        """The names of its consumers in any process, as `refresh` learned them."""

    @property
    def consumers(self) -> Sequence[Receiver]: ...
    @property
    def cursor(self) -> Cursor: ...
    @property
    def dead_letters(self) -> DeadLetterStats: ...
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

    async def seek(self, target: MessageId, *, inclusive: bool = False) -> None:
        """Go on after `target` (or with it); what is out with consumers is forgotten."""

    async def seek_time(self, publish_time: int) -> None:
        """Go on with the first message published at or after `publish_time` (ms)."""

    async def move(self, offset: int) -> None:
        """Go on at `offset`, forwards or backwards."""

    def skip(self, offset: int) -> None:
        """Acknowledge everything below `offset`."""

    def upcoming(self, messages_max: int) -> Sequence[Entry]:
        """Entries in memory that go to the one consumer next unless something comes between, up to so many messages."""

    async def last_visible(self) -> tuple[Entry, int] | None:
        """The last entry that its consumers may see, with the bits of its messages; None without one."""

    @property
    def answers(self) -> Answers | None:
        """None if its log has many ledgers: then entry ids alone name no message, and consumers acknowledge."""

    @property
    def entry_answers(self) -> EntryAnswers | None:
        """Answers to entries; None if entry ids alone name no message."""

    @property
    def partial_batches(self) -> PartialBatches | None:
        """None if clients of Pulsar's protocol are the cluster's."""

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

    async def flush(self) -> None:
        """Complete when every acknowledgement given so far is durable."""

    async def refresh(self) -> None:
        """Learn the cursor, the backlog and the figures of now; nothing to do where the engine is its own cluster."""

    async def set_properties(self, properties: dict[str, str]) -> None:
        """Replace the properties, durably."""

    async def delete(self, *, force: bool = True) -> None:
        """Delete the subscription with its cursor, closing its consumers; without `force` raises SUBSCRIPTION_BUSY if it has some."""

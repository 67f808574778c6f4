"""Subscriptions of one log: positions, consumers, and acknowledgements."""

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

    @property
    def save(self) -> int:
        """The number of the save of the cursor that will store the present acknowledgements."""

    @property
    def saved(self) -> int:
        """The saves up to this number are durable."""

    def acknowledge(self, entry_id: int, index: int) -> bool:
        """Acknowledge a message that is out; False when the entry is not out."""

    def acknowledge_masks(self, masks: Mapping[int, int]) -> list[int]:
        """Acknowledge messages that are out, as bits by entry, -1 for a whole one; returns the entries that were passed
        over, as they are not out or have not all of these messages."""

    async def acknowledge_late(self, message_id: MessageId) -> None:
        """Acknowledge a message that is not outstanding (any more); raises MESSAGE_NOT_FOUND if it does not exist."""

    async def acknowledge_up_to(self, message_id: MessageId) -> None:
        """Acknowledge everything up to and with `message_id`; raises MESSAGE_NOT_FOUND."""


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


class SubscriptionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a subscription; before a cluster, those that `refresh` learned last. Counters are since the server's start."""

    type: SubscriptionType | None
    durable: bool
    properties: dict[str, str]
    mark: int  # everything below is acknowledged
    beyond: int  # how many messages beyond the mark are acknowledged
    next_entry: int | None  # the entry that is read next; None: not known
    backlog: int
    delayed: int
    unacked: int
    redelivered: int
    rate_out: Rate
    dead_letters: DeadLetterStats
    connected: Sequence[str]  # the names of its consumers in any process
    drained: bool  # the topic is terminated, and nothing is left to deliver


class Subscription(DeliverySource, Protocol):
    """One subscription of one log."""

    @property
    def active(self) -> Receiver | None:
        """The consumer that gets everything, if it is one of this process."""

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to its consumers, as far as that is known."""

    @property
    def consumers(self) -> Sequence[Receiver]:
        """Those of this process."""

    def figures(self) -> SubscriptionFigures: ...
    def acknowledged(self, offset: int, count: int) -> int:
        """Which of `count` messages from `offset` on are acknowledged, as bits."""

    def acknowledged_ranges(self) -> Iterator[tuple[int, int]]:
        """The first and last offset of each run of acknowledged messages beyond the mark, ascending."""

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Continue after `target` (or at it), or at the first message published at or after that time (ms). Messages outstanding with
        consumers is forgotten."""

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
        """Complete when every change is durable that was made so far, except acknowledgements that only its consumers take
        (`answers` is None): `Consumer.flush` completes these."""

    async def refresh(self) -> None:
        """Learn the present cursor, backlog and figures; does nothing if the engine is its own cluster."""

    async def set_properties(self, properties: dict[str, str]) -> None:
        """Replace the properties, durably."""

    async def delete(self, *, force: bool = True) -> None:
        """Delete the subscription with its cursor, closing its consumers; without `force` raises SUBSCRIPTION_BUSY if it has some."""

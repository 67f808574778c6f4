"""A subscription of one topic or partition that the cluster has: this process knows its own consumers and asks for the rest."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.broker.capability import not_supported
from penstock.broker.delivery import Outcome, Receiver
from penstock.broker.producer import Reply
from penstock.broker.subscription import DeadLetterStats, EntryAnswers, PartialBatches, SubscriptionFigures
from penstock.broker.topic import Topic
from penstock.engines.shared.unsubscribing import other_consumers_error
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.policy import SubscriptionType
from penstock.model.target import Target
from penstock.runtime.statistics import Rate

from .link import Link

RANGES_MAX: Final = 101  # of a cursor that are looked at: one more than endpoints show
_LARGEST: Final = 2**63 - 1


class Admin(Protocol):
    """The cluster's admin REST, below `/admin/v2`."""

    async def call(self, method: str, target: Target, *, body: Any = None, **query: Any) -> Any:
        """One call; returns the answer's JSON."""


class SeekingConsumer(Receiver, Protocol):
    """A consumer that can move its subscription of one topic."""

    @property
    def expects(self) -> bool: ...

    async def seek_in(self, source: "Subscription", target: MessageId | int, *, inclusive: bool) -> None:
        """Move the subscription."""

    async def answer(self, reply: Reply) -> Outcome:
        """Send the reply to a request that is out; raises MESSAGE_NOT_FOUND."""

    def forget(self, source: "Subscription") -> None:
        """The subscription was moved by others."""

    def start_over(self, source: "Subscription") -> None:
        """The log was truncated."""

    def settle_in(self, source: "Subscription", message_id: MessageId) -> Link | None:
        """Acknowledge a message for another consumer; returns the link whose `flush` makes that durable, None if its entry is
        unknown."""


class ClusterCursor:
    """Acknowledged messages: everything below `mark`, and ranges beyond, as last learned. Positions are those of the log."""

    def __init__(self) -> None:
        self.mark = 0
        self.beyond = 0
        self._ranges: list[tuple[int, int]] = []

    def learn(self, mark: int, ranges: list[tuple[int, int]]) -> None:
        self.mark = mark
        self._ranges = ranges
        self.beyond = sum(last - first + 1 for first, last in ranges)

    def mask(self, offset: int, count: int) -> int:
        """Which of `count` messages from `offset` on are acknowledged, as bits."""
        mask = 0
        for first, last in [(0, self.mark - 1), *self._ranges]:
            low, high = max(first, offset), min(last, offset + count - 1)
            if low <= high:
                mask |= (1 << high - offset + 1) - (1 << low - offset)
        return mask

    def ranges(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)


class Subscription:
    """`broker.Subscription`. Its figures are those that `refresh` learned last, and those of this process."""

    answers = None
    entry_answers: EntryAnswers | None = None  # entry ids alone name no message, as the log has many ledgers
    partial_batches: PartialBatches | None = None

    def __init__(self, admin: Admin, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.consumers: list[SeekingConsumer] = []
        self.cursor = ClusterCursor()
        self.acknowledged, self.acknowledged_ranges = self.cursor.mask, self.cursor.ranges
        self.rate_out = Rate(topic.clock)
        self.type: SubscriptionType | None = None
        self.durable = True
        self.properties: dict[str, str] = {}
        self.backlog = 0
        self.delayed = 0
        self.unacked = 0
        self.connected: Sequence[str] = ()  # the names of its consumers, in any process
        self.redelivered = 0
        self.dead_letters = DeadLetterStats()
        self.active: Receiver | None = None  # if it is a consumer of this process
        self._admin = admin

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way from the cluster, as far as that is known."""
        return not any(consumer.expects for consumer in self.consumers)

    def delivered(self, messages: int, size: int) -> None:
        """A consumer of this process got messages, of so many bytes."""
        self.rate_out.add(messages, size)

    # -- consumers of this process

    def add(self, consumer: SeekingConsumer, *, unique_name: bool = False) -> None:
        """Let a consumer take part; raises CONSUMER_BUSY for a name that must be alone."""
        if unique_name and any(one.name == consumer.name for one in self.consumers):
            raise PenstockError(
                ErrorKind.CONSUMER_BUSY,
                f"a consumer named {consumer.name} is connected to subscription {self.name} already",
            )
        self.type, self.durable = consumer.options.type, consumer.options.durable
        self.consumers.append(consumer)

    def remove(self, consumer: SeekingConsumer) -> None:
        """A consumer left."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        if self.active is consumer:
            self.active = None
        known = subscriptions_of(self.topic)
        if not self.consumers and known.get(self.name) is self:
            del known[self.name]  # an unused topic may be closed

    def settle(self, message_id: MessageId, but: object) -> Link | None:
        """Have the consumer of this process that has a message acknowledge it; returns its link, whose `flush` makes that durable. None
        if no consumer except `but` has it."""
        for one in self.consumers:
            link = None if one is but else one.settle_in(self, message_id)
            if link is not None:
                return link
        return None

    # -- the cluster's

    def _target(self, *more: str) -> Target:
        return Target.of_subscription(self.topic.name, self.name, *more)

    async def refresh(self) -> None:
        """As `broker.Subscription.refresh`; raises SUBSCRIPTION_NOT_FOUND, UNAVAILABLE."""
        self._learn(await self._stats())
        if self.topic.name.persistent:
            inner = await self._admin.call("GET", Target.of_topic(self.topic.name, "internalStats"))
            await self._learn_cursor(inner.get("cursors", {}).get(self.name, {}))

    async def _stats(self) -> Mapping[str, Any]:
        stats = await self._admin.call("GET", Target.of_topic(self.topic.name, "stats"))
        found: Mapping[str, Any] | None = stats.get("subscriptions", {}).get(self.name)
        if found is None:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, f"{self.topic.name} has no subscription {self.name}"
            )
        return found

    async def check_sole_consumer(self) -> None:
        """Raise SUBSCRIPTION_SHARED if the subscription has more than one consumer in the cluster; SUBSCRIPTION_NOT_FOUND."""
        if len((await self._stats()).get("consumers") or ()) > 1:
            raise other_consumers_error()

    def _learn(self, stats: Mapping[str, Any]) -> None:
        self.backlog = int(stats.get("msgBacklog", 0))
        self.delayed = int(stats.get("msgDelayed", 0))
        self.unacked = int(stats.get("unackedMessages", 0))
        self.durable = bool(stats.get("isDurable", self.durable))
        self.properties = dict(stats.get("subscriptionProperties") or {})
        self.connected = [str(one.get("consumerName", "")) for one in stats.get("consumers") or ()]
        if stats.get("consumers"):
            self.type = SubscriptionType.named(str(stats.get("type", ""))) or self.type

    async def _learn_cursor(self, cursor: Mapping[str, Any]) -> None:
        marked = place_of(str(cursor.get("markDeletePosition", "-1:-1")))
        mark = await self._position_after(marked)
        ranges: list[tuple[int, int]] = []
        for before, last in read_ranges(str(cursor.get("individuallyDeletedMessages", "")))[:RANGES_MAX]:
            ranges.append((await self._position_after(before), await self._position_after(last) - 1))
        self.cursor.learn(mark, [one for one in ranges if one[0] <= one[1]])

    async def _position_after(self, place: MessageId) -> int:
        return await self.topic.offset_after(EARLIEST if place.entry < 0 and place.ledger < 0 else place)

    async def exists(self) -> bool:
        """Whether the cluster has it."""
        return self.name in await self._admin.call("GET", Target.of_topic(self.topic.name, "subscriptions"))

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """As `broker.Subscription.seek`."""
        if self.consumers:
            await self.consumers[0].seek_in(self, target, inclusive=inclusive)
        elif isinstance(target, int):
            await self._admin.call("POST", self._target("resetcursor", str(target)))
        else:
            place = {EARLIEST: (-1, -1), LATEST: (_LARGEST, _LARGEST)}.get(target)
            ledger, entry = place or (target.ledger, target.entry)
            body = {
                "ledgerId": ledger,
                "entryId": entry,
                "partitionIndex": self.topic.name.partition,
                "batchIndex": target.batch_index if place is None else -1,
                "excluded": place is None and not inclusive,
            }
            await self._admin.call("POST", self._target("resetcursor"), body=body)
        self._moved()

    def _moved(self) -> None:
        for consumer in self.consumers[1:]:
            consumer.forget(self)

    async def move(self, offset: int) -> None:
        """Move to `offset`, forwards or backwards. Beyond the end of the log it moves to the first message that follows."""
        topic = self.topic
        if offset >= topic.bounds.next_offset:
            await topic.refresh()  # the known end may be old
        bounds = topic.bounds
        end = bounds.next_offset
        found = await topic.read_at(offset, 1) if offset < end else ()
        if found:
            entry = found[0]
            index = max(0, offset - entry.offset) if entry.count > 1 else -1
            await self.seek(topic.id_of(entry, index), inclusive=True)
            return
        # By the last entry, not by LATEST: messages may have been published since.
        last = await topic.read_at(end - 1, 1) if bounds.messages else ()
        if last:
            await self.seek(topic.id_of(last[-1], -1))
        else:
            await self.seek(EARLIEST)

    def skip(self, offset: int) -> None:
        """Not offered: consumers of this process acknowledge their messages themselves."""
        raise not_supported("skipping messages of a subscription by offset")

    def upcoming(self, messages_max: int) -> Sequence[Entry]:
        """None that is known before it arrives."""
        return ()

    async def last_visible(self) -> tuple[Entry, int] | None:
        """The last entry of the log; the cluster does the compaction."""
        await self.topic.refresh()
        bounds = self.topic.bounds
        if bounds.messages <= 0:
            return None
        found = await self.topic.read_at(bounds.next_offset - 1, 1)
        return (found[-1], (1 << found[-1].count) - 1) if found else None

    async def flush(self) -> None:
        """Nothing to do: calls that change it return once that is durable. Each consumer flushes its own acknowledgements."""

    async def set_properties(self, properties: dict[str, str]) -> None:
        await self._admin.call("PUT", self._target("properties"), body=properties)
        self.properties = dict(properties)

    async def delete(self, *, force: bool = True) -> None:
        """Delete the subscription in the cluster; its consumers are closed with SUBSCRIPTION_NOT_FOUND.

        Without `force` the cluster refuses while the subscription has consumers, in any process.
        """
        for consumer in list(self.consumers):
            consumer.close(subscription_deleted(self.name))
        await self._admin.call("DELETE", self._target(), force=str(force).lower())

    async def reply(
        self,
        message_id: MessageId,
        content: bytes,
        *,
        owner: str | None,
        is_error: bool,
        schema_version: int | None,
    ) -> Outcome:
        """As `broker.Subscription.reply`."""
        reply = Reply(message_id, content, is_error, schema_version)
        missing = PenstockError(
            ErrorKind.MESSAGE_NOT_FOUND, f"message {message_id} is with no consumer of this server"
        )
        for consumer in self.consumers:
            if owner is None or consumer.owner == owner:
                try:
                    return await consumer.answer(reply)
                except PenstockError as error:
                    if error.kind is not ErrorKind.MESSAGE_NOT_FOUND:
                        raise
                    missing = error
        raise missing

    def figures(self) -> SubscriptionFigures:
        return SubscriptionFigures(
            type=self.type,
            durable=self.durable,
            properties=self.properties,
            mark=self.cursor.mark,
            beyond=self.cursor.beyond,
            next_entry=None,
            backlog=self.backlog,
            delayed=self.delayed,
            unacked=self.unacked,
            redelivered=self.redelivered,
            rate_out=self.rate_out,
            dead_letters=self.dead_letters,
            connected=self.connected,
            drained=self.drained,
        )

    @property
    def drained(self) -> bool:
        return self.topic.bounds.terminated and self.backlog == 0


def subscription_deleted(subscription: str) -> PenstockError:
    """The error of consumers whose subscription was deleted."""
    return PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, f"subscription {subscription} was deleted")


def subscriptions_of(topic: Topic) -> dict[str, Subscription]:
    """Those of a topic that this process knows."""
    return topic.subscriptions  # type: ignore[return-value]  # the engine's own topics have them


def attached_subscription(
    make: Callable[[Topic, str], Subscription], topic: Topic, name: str
) -> Subscription:
    """The subscription of that name, as all consumers of this process see it."""
    known = subscriptions_of(topic)
    found = known.get(name)
    if found is None:
        found = known[name] = make(topic, name)
    return found


def place_of(text: str) -> MessageId:
    ledger, _, entry = text.partition(":")
    return MessageId(int(ledger), int(entry))


def read_ranges(text: str) -> list[tuple[MessageId, MessageId]]:
    """The cluster's `[(3:0..3:2],(3:4..3:5]]`: after the first id of each, up to and with the second."""
    found: list[tuple[MessageId, MessageId]] = []
    for part in text.strip("[]").replace("],(", "|").strip("(]").split("|"):
        first, dots, last = part.partition("..")
        if dots:
            found.append((place_of(first), place_of(last)))
    return found

"""One consumer's half of one topic or partition: entries in, answers out."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec

from penstock.broker.delivery import Delivery, Outcome
from penstock.broker.producer import Reply
from penstock.broker.topics import Topics
from penstock.client.entries.arrived import Arrived, Place
from penstock.client.errors import PulsarException
from penstock.engines.shared.replies import REPLY_TO
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .acknowledgements import ForeignAcks
from .errors import engine_error
from .link import Link
from .outstanding import Bury, Burying, Outstanding, Redelivery, Row
from .positions import entry_of
from .subscription import Subscription
from .unread import ArrivingSchemas, Unread

Answer = Callable[[Entry, TopicName, Reply], Awaitable[Outcome]]

_REQUEST: Final = REPLY_TO.encode()  # in the metadata of requests


class Owner(Protocol):
    """The consumer as its topics see it."""

    options: ConsumerOptions

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Messages arrived."""

    def void(self, source: Subscription) -> Sequence[Delivery]:
        """Drop and return deliveries of a topic that were not taken: they will be redelivered."""

    def settled(self, count: int) -> None:
        """Messages are settled."""

    def grant(self) -> None:
        """There may be room for more."""

    def active(self, source: Subscription, active: bool) -> None:
        """It became the active consumer of a topic, or no longer is."""

    def end_reached_of(self, source: Subscription) -> None:
        """A topic is terminated, and all of it acknowledged."""

    def part_ended(self, source: Subscription, error: PenstockError) -> None:
        """A topic delivers no more."""


class Means(msgspec.Struct, frozen=True):
    """What all attached consumers of a process use. `give_reply` delivers a reply to the requester; None: the link does it."""

    topics: Topics
    schemas: ArrivingSchemas
    clock: Clock
    tasks: Tasks
    bury: Bury
    failures: Failures
    give_reply: Answer | None = None
    leave_s: Callable[[], float | None] = lambda: None


class TopicConsumer:
    """The sink of a link to the owner; `link` is set before it is started."""

    link: Link

    def __init__(
        self, owner: Owner, source: Subscription, means: Means, *, numbered: bool, by_index: bool
    ) -> None:
        clock, tasks, failures = means.clock, means.tasks, means.failures
        self.source = source
        self.at_end = False
        self.is_active = False
        self._owner = owner
        self._options = owner.options
        self._numbered = numbered
        self._by_index = by_index
        self._letter = owner.options.dead_letter
        self._shared = owner.options.type.shared
        self.out = Outstanding(counts_here=not self._shared)
        self._redelivery = Redelivery(clock, self.out, self._ask, self._late)
        self._burying = Burying(
            means.bury,
            source,
            self.out,
            self._letter,
            clock,
            tasks,
            failures,
            buried=self._buried,
            again=self._redelivery.later,
        )
        self._unread = Unread(source.topic.name, means.schemas, clock, tasks, failures, self.arrived)
        self._seeking = False
        self._foreign = ForeignAcks(source, owner, by_index=by_index)

    # -- in

    @property
    def due(self) -> int:
        """Messages that were permitted and are not delivered yet."""
        return self.link.due + self._unread.messages

    def arrived(self, entries: list[Arrived]) -> None:
        deliveries: list[Delivery] = []
        for one in self._unread.sift(entries):
            self._take(one, deliveries)
        self._owner.deliver(deliveries)

    def _take(self, one: Arrived, deliveries: list[Delivery]) -> None:
        if self._foreign.has_done((one.ledger, one.entry_id)):
            self.link.acknowledge([(one.ledger, one.entry_id)])
            return
        entry = entry_of(one, numbered=self._numbered)
        row, wanted = self.out.arrived(entry, one.mask, one.redeliveries)
        if not wanted:
            if not row.left:  # acknowledged while it was on its way
                self.link.acknowledge([(one.ledger, one.entry_id)])
            return
        if _REQUEST in entry.data:
            row.entry = entry
        letter, times = self._letter, max(0, row.redeliveries)
        if letter is not None and times >= letter.redeliveries_max:
            row.entry = entry
            if times > letter.redeliveries_max:
                self._burying.bury(
                    row, entry, self.out.take_back((one.ledger, one.entry_id), wanted, later=True)
                )
                return
        deliveries.append(Delivery(self.source, entry, wanted, times))

    def request(self, message_id: MessageId) -> Entry | None:
        """The entry of a request that is out, None for a message that is not a request; raises MESSAGE_NOT_FOUND."""
        row = self.out.row((message_id.ledger, message_id.entry))
        if row is None or not row.out >> max(0, message_id.batch_index) & 1:
            raise PenstockError(
                ErrorKind.MESSAGE_NOT_FOUND,
                f"message {message_id} is not out with this consumer: it cannot reply",
            )
        return row.entry

    def reset(self) -> None:
        if self._seeking:
            self.forget()
            return
        self.at_end = False
        self._foreign.lose()
        self._unread.clear()
        self.out.all_coming()
        for delivery in self._owner.void(self.source):
            entry = delivery.entry
            self.out.take_back((entry.ledger, entry.entry_id), delivery.mask, later=False, tried=False)
        self._owner.grant()

    def moved(self) -> None:
        self.forget()

    def forget(self) -> None:
        """The subscription moved: earlier messages are settled, and are not redelivered."""
        self._burying.forget()
        self._foreign.forget()
        self.at_end = False
        self._unread.clear()
        waiting = sum(delivery.count for delivery in self._owner.void(self.source))
        self._redelivery.forget()
        self._owner.settled(self.out.forget() - waiting)
        self._owner.grant()

    def start_over(self) -> None:
        """Other messages may have the ids of those that are out: forget them, and have everything redelivered that is not
        acknowledged."""
        self.link.start_over()
        self.forget()

    def active(self, active: bool) -> None:
        self.is_active = active
        self._owner.active(self.source, active)

    def end_reached(self) -> None:
        self.at_end = True
        self._owner.end_reached_of(self.source)

    def ended(self, error: PenstockError) -> None:
        self._owner.part_ended(self.source, engine_error(error))

    # -- answers

    def given(self, delivery: Delivery) -> None:
        """The client is about to get these messages."""
        place = (delivery.entry.ledger, delivery.entry.entry_id)
        row = self.out.row(place)
        if row is not None:
            self._redelivery.watch(place, row, delivery.mask, self._options.ack_timeout_ms)

    def acknowledge(self, ids: Sequence[MessageId]) -> tuple[int, int]:
        """Returns how many messages were acknowledged, and how many of them were out."""
        whole: list[Place] = []
        others: list[MessageId] = []
        acknowledged = were_out = 0
        for one in ids:
            place = (one.ledger, one.entry)
            found = self.out.acknowledge(place, one.batch_index)
            if found is None:
                row = self.out.row(place)
                if row is not None:  # all of it is settled, or the message is unknown
                    acknowledged += one.batch_index < row.count
                    if not row.left and place not in whole:  # the owner may not know of it
                        whole.append(place)
                elif one.ledger >= 0:
                    others.append(one)
                continue
            acknowledged += 1
            bits, row = found
            were_out += bits.bit_count()
            self._count_entry(place, row, whole)
        if whole:
            self.link.acknowledge(whole)
        if others:
            acknowledged += self._foreign.acknowledge(others, self.link)
        return acknowledged, were_out

    def acknowledge_but(self, place: Place, open_bits: int) -> bool:
        """Acknowledge an entry but for some of its messages; False if it did not arrive here, or is forgotten."""
        row = self.out.row(place)
        found = None if row is None else self.out.acknowledge_bits(place, row.all & ~open_bits)
        if found is None:
            return False
        bits, row = found
        whole: list[Place] = []
        self._count_entry(place, row, whole)
        if whole:
            self.link.acknowledge(whole)
        self._owner.settled(bits.bit_count())
        return True

    def acknowledge_late(self, place: Place, open_bits: int) -> None:
        """The same for an entry that did not arrive here."""
        if open_bits:
            self.link.acknowledge_part(place, open_bits)
        else:
            self.link.acknowledge([place])

    def redeliver_all(self) -> None:
        """Have everything redelivered that is out."""
        waiting = sum(delivery.count for delivery in self._owner.void(self.source))
        places, count = self.out.take_back_all()
        self._owner.settled(count - waiting)
        if self._shared:
            if places:
                self.link.redeliver(places)
        else:
            self._unread.clear()
            self.out.all_coming()
            self.link.redeliver_all()
        self._owner.grant()

    def _count_entry(self, place: Place, row: Row, whole: list[Place]) -> None:
        if not row.left:
            whole.append(place)
        elif self._by_index:
            self.link.acknowledge_part(place, row.left)

    def handed_on(self, deliveries: Collection[Delivery]) -> None:
        """A reader's messages count as acknowledged when they are handed on."""
        whole: list[Place] = []
        for delivery in deliveries:
            place = (delivery.entry.ledger, delivery.entry.entry_id)
            found = self.out.acknowledge_bits(place, delivery.mask)
            if found is not None:
                self._count_entry(place, found[1], whole)
        if whole and not self._shared:
            self.link.acknowledge_up_to(max(whole))
        elif whole:
            self.link.acknowledge(whole)

    def acknowledge_up_to(self, one: MessageId) -> int:
        """Everything up to and with a message is done; returns how many messages were out."""
        place = (one.ledger, one.entry)
        found = self.out.acknowledge_bits(place, -1 if one.batch_index < 0 else (2 << one.batch_index) - 1)
        left = 0 if found is None else found[1].left
        count = 0 if found is None else found[0].bit_count()
        if found is None and 0 <= one.batch_index < one.batch_size - 1:
            left = (1 << one.batch_size) - (2 << one.batch_index)
        if not left or self._by_index:
            self.link.acknowledge_up_to(place, left)
        elif (previous := self.out.previous(place)) is not None:
            self.link.acknowledge_up_to(previous)
        return count + self.out.acknowledge_before(place)

    def negative(self, one: MessageId, delay_ms: int) -> int:
        """Redeliver a message after a delay; returns how many messages were out."""
        place = (one.ledger, one.entry)
        row = self.out.row(place)
        if row is None or one.batch_index >= row.count:
            return 0
        return self._take_back(place, row, row.all if one.batch_index < 0 else 1 << one.batch_index, delay_ms)

    def _late(self, place: Place, bits: int) -> None:
        row = self.out.row(place)
        if row is not None:
            self._owner.settled(self._take_back(place, row, bits, 0))

    def _take_back(self, place: Place, row: Row, bits: int, delay_ms: int) -> int:
        taken = self.out.take_back(place, bits, later=True)
        if taken:
            letter = self._letter
            if letter is not None and row.entry is not None and row.redeliveries >= letter.redeliveries_max:
                self._burying.bury(row, row.entry, taken)
            else:
                self._redelivery.later(place, taken, delay_ms)
        return taken.bit_count()

    def _ask(self, places: list[Place]) -> None:
        if self._shared:
            self.link.redeliver(places)
        else:
            self._unread.clear()  # they are redelivered with all the others
            self.out.all_coming()
            self.link.redeliver_all()

    def _buried(self, place: Place, row: Row) -> None:
        """A message is durable in the dead-letter topic."""
        whole: list[Place] = []
        self._count_entry(place, row, whole)
        if whole:
            self.link.acknowledge(whole)

    # -- the whole

    async def seek(self, target: MessageId | int, *, inclusive: bool = False) -> None:
        """Move the subscription."""
        self._seeking = True
        try:
            await self.link.seek(target, inclusive=inclusive)
        except PulsarException as error:
            raise engine_error(error) from None
        finally:
            self._seeking = False
        if isinstance(target, MessageId) and not inclusive:
            await self.flush()  # the broker begins with the message, which is acknowledged then

    async def unsubscribe(self) -> None:
        """Delete the subscription of the topic; raises SUBSCRIPTION_SHARED if it has other consumers in the cluster."""
        try:
            await self.link.unsubscribe()
        except PulsarException as error:
            raise engine_error(error) from None

    async def flush(self) -> None:
        given = self._foreign.given
        try:
            await self.link.flush()
            self._foreign.stored(given)
            await self._foreign.flush()
        except PulsarException as error:
            raise engine_error(error) from None

    async def close(self) -> None:
        self._redelivery.close()
        self._burying.forget()
        self._unread.close()
        try:
            await self.link.close()
        except PulsarException:
            pass  # not connected: the broker has noticed, or will

"""A link to a subscription that runs in this process: entries, permits and answers without sockets or encoding."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.broker.subscription import Answers, Subscription
from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Arrived, Place
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.tasks import Tasks

from .acknowledgements import Unconfirmed, Unstored
from .link import Attachment, LinkSink, Moved

log = logging.getLogger(__name__)

TAKEN_AT_ONCE: Final = 64  # deliveries
STORED_AT: Final = 500  # acknowledged entries, if no caller waits for durability
SAVES_MAX: Final = 16  # of the cursor that are not done
LATE_MAX: Final = 10_000  # acknowledgements that wait to be looked up in the log


class Subscribes(Protocol):
    """The used part of `Broker`."""

    async def subscribe(
        self, names: Sequence[TopicName], subscription: str, options: ConsumerOptions
    ) -> Consumer:
        """As `Broker.subscribe`."""


class LocalLink:
    """A `Link` to the broker of this process, which it serves as the binary endpoint serves a connection.

    The link ends with the broker's reason for closing the consumer. If there is no reason, or if connecting again can help,
    the link ends with `Moved`.
    """

    def __init__(self, broker: Subscribes, wanted: Attachment, sink: LinkSink, tasks: Tasks) -> None:
        self.permits = 0
        self._broker = broker
        self._wanted = wanted
        self._sink = sink
        self._tasks = tasks
        self._consumer: Consumer | None = None
        self._source: Subscription
        self._answers: Answers
        self._task: asyncio.Task[None] | None = None
        self._leaving = False
        self._end_due = False
        # Acknowledgements that have to read the log, and calls that came after them.
        self._late: deque[Callable[[], Awaitable[None]]] = deque()
        self._working: asyncio.Task[None] | None = None
        self._failed: PenstockError  # the last error of one of them
        self._unconfirmed = Unconfirmed()
        self._unstored = Unstored()
        # By the number of the save that stores them: the last one of the acknowledgements that are in the cursor.
        self._in_cursor: dict[int, int] = {}
        self._storing: asyncio.Task[None] | None = None

    # -- start and end

    async def start(self) -> None:
        wanted = self._wanted
        options = msgspec.structs.replace(
            wanted.options,
            name=wanted.consumer,
            start=wanted.start,
            window=None,
            flow=True,
            whole_entries=True,
            redirected=True,
            auto_ack=False,
            ack_timeout_ms=0,
            dead_letter=None,
        )
        consumer = await self._broker.subscribe([wanted.topic], wanted.subscription, options)
        self._consumer, (self._source,) = consumer, consumer.attached
        assert self._source.answers is not None  # the log has one ledger
        self._answers = self._source.answers
        consumer.end_reached = self._end_reached
        consumer.moved = self._moved
        if options.type is SubscriptionType.FAILOVER:
            consumer.active_changed = self._active_changed
            self._sink.active(self._source.active is consumer)
        if self.permits > 0:
            consumer.flow(self.permits)
        self._task = self._tasks.spawn(self._run(consumer), f"deliver {wanted.topic}")

    async def _run(self, consumer: Consumer) -> None:
        while await consumer.ready():
            self._hand_on(consumer.take(TAKEN_AT_ONCE))
            self._send_end()
            await asyncio.sleep(0)  # other tasks share the loop
        self._closed(consumer)

    def _closed(self, consumer: Consumer) -> None:
        if not self._leaving:
            self._leaving = True
            reason = consumer.close_reason
            if reason is None or reason.retriable:
                reason = Moved(self._wanted.topic)
            self._sink.ended(reason)

    async def close(self) -> None:
        self._leaving = True
        if self._task is not None:
            self._task.cancel()
        await self._worked()
        if self._consumer is not None:
            await self._consumer.leave()

    # -- in

    @property
    def due(self) -> int:
        return self.permits

    def flow(self, permits: int) -> None:
        self.permits += permits
        if self._consumer is not None:
            self._consumer.flow(permits)

    def restart(self) -> None:
        """Deliveries in the outbox keep their permits; no message is redelivered."""
        if self._consumer is not None and (permits := self._consumer.figures().permits) > 0:
            self.permits -= permits
            self._consumer.stop_flow()

    def start_over(self) -> bool:
        """The broker of this process saves acknowledgements, and disconnects the consumers of the log."""
        self._unstored.clear()
        self.restart()
        return False

    def _hand_on(self, deliveries: list[Delivery]) -> None:
        arrived = [_arrived(delivery) for delivery in deliveries]
        self.permits -= sum([one.mask.bit_count() for one in arrived])
        self._sink.arrived(arrived)

    def _active_changed(self, subscription: object, active: bool) -> None:
        self._sink.active(active)

    def _moved(self) -> None:
        self._unstored.clear()
        self._sink.moved()

    def _end_reached(self) -> None:
        self._end_due = True
        self._send_end()

    def _send_end(self) -> None:
        """Report the end of the topic after the last message."""
        if self._end_due and self._consumer is not None and not self._consumer.outbox:
            self._end_due = False
            self._sink.end_reached()

    # -- answers

    def _open_consumer(self) -> Consumer:
        if self._consumer is None or self._consumer.closed:
            raise Moved(self._wanted.topic)
        return self._consumer

    def _acknowledging(self) -> Consumer | None:
        """The consumer that acknowledges; before the link has started there is none, and an acknowledgement is lost."""
        self._unconfirmed.give()
        if self._consumer is None:
            self._lose(Moved(self._wanted.topic))
        return self._consumer

    def acknowledge(self, places: Iterable[Place]) -> None:
        for place in places:
            self.acknowledge_part(place, 0)

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        consumer = self._acknowledging()
        if consumer is None or place[0] != self._source.topic.ledger:
            return
        self._unstored.acknowledge_part(place, open_bits)
        if (
            len(self._unstored) >= STORED_AT and self._storing is None
        ):  # no caller waits until they are stored
            self._storing = self._tasks.spawn(self._store_some(consumer), f"store for {self._wanted.topic}")
        answers = self._answers
        if not answers.acknowledge_but(place[1], open_bits, consumer):
            self._later(lambda: answers.acknowledge_but_late(place[1], open_bits, consumer))
        elif self._working is None:
            self._note()

    def _note(self) -> None:
        """All acknowledgements are in the cursor, unless the subscription has ended, and refuses them."""
        if self._consumer is None or self._consumer.closed:
            return
        save = self._answers.save
        if save not in self._in_cursor:
            self._forget_stored()
            if len(self._in_cursor) >= SAVES_MAX:
                self._in_cursor.popitem()  # the next save has these as well
        self._in_cursor[save] = self._unstored.number

    def _forget_stored(self) -> None:
        """Forget acknowledgements that were saved with the cursor, by whomever."""
        saved = self._answers.saved
        for save in [one for one in self._in_cursor if one <= saved]:
            self._unstored.stored(self._in_cursor.pop(save))

    def acknowledge_up_to(self, place: Place, open_bits: int = 0) -> None:
        if self._acknowledging() is None:
            return
        self._unstored.acknowledge_up_to(place, open_bits)
        ledger, entry = place
        index = (open_bits & -open_bits).bit_length() - 2  # the message before the first open one
        if open_bits and index < 0:
            entry -= 1
        if entry >= 0:
            target = MessageId(ledger, entry, self._wanted.topic.partition, index if open_bits else -1)
            self._later(lambda: self._answers.acknowledge_up_to(target))

    def redeliver(self, places: Iterable[Place]) -> None:
        consumer = self._consumer
        if consumer is None:
            return  # all of them are redelivered when it starts
        answers = self._answers
        entries = [entry for _, entry in places]

        def ask() -> None:
            for entry in entries:
                answers.negative(entry, -1, 0, by=consumer)

        self._in_order(ask)

    def redeliver_all(self) -> None:
        consumer = self._consumer
        if consumer is not None:
            self._in_order(lambda: self._answers.redeliver_all(consumer))

    def _in_order(self, call: Callable[[], None]) -> None:
        """Call after the acknowledgements that were made before."""

        async def later() -> None:
            call()

        if self._working is None:
            call()
        else:
            self._later(later)

    def _later(self, call: Callable[[], Awaitable[None]]) -> None:
        if len(self._late) >= LATE_MAX:
            what = f"{LATE_MAX} acknowledgements wait for the log, which is the limit"
            self._lose(PenstockError(ErrorKind.TOO_MANY_REQUESTS, what))
            return
        self._late.append(call)
        if self._working is None:
            self._working = self._tasks.spawn(self._work(), f"acknowledge on {self._wanted.topic}")

    async def _worked(self) -> None:
        """Wait until the acknowledgements made before have been looked up."""
        while self._working is not None:
            await asyncio.wait([self._working])

    async def _work(self) -> None:
        try:
            while self._late:
                try:
                    await self._late.popleft()()
                except PenstockError as error:
                    self._lose(error)
            self._note()
        finally:
            self._working = None

    def _lose(self, error: PenstockError) -> None:
        """An acknowledgement failed: which of the callers that wait for a flush gave it is not known."""
        self._failed = error
        self._unconfirmed.lose()

    async def reply(
        self, message_id: MessageId, content: bytes, *, is_error: bool, schema_version: int | None
    ) -> str:
        outcome = await self._open_consumer().reply(
            message_id, content, is_error=is_error, schema_version=schema_version
        )
        return outcome.value

    async def flush(self) -> None:
        """As `Link.flush`. Raises `Moved` if the consumer is closed before."""
        consumer = self._open_consumer()
        number = self._unstored.number
        try:
            await self._unconfirmed.flush(
                lambda: self._save(consumer), lambda: PenstockError(self._failed.kind, self._failed.message)
            )
        except PenstockError:
            self._open_consumer()
            raise
        self._unstored.stored(number)

    async def _save(self, consumer: Consumer) -> None:
        await self._worked()
        await consumer.flush()

    async def _store_some(self, consumer: Consumer) -> None:
        number = self._unstored.number
        try:
            await self._save(consumer)
            self._unstored.stored(number)
        except PenstockError as error:  # the next `flush` may say so
            log.debug("acknowledgements on %s are not stored yet: %s", self._wanted.topic, error)
        finally:
            self._storing = None

    def give_unstored_to(self, to: AckSink) -> bool:
        if self._consumer is not None:
            self._forget_stored()
        if self._unstored.overrun:
            return False
        self._unstored.give_to(to)
        return True

    # -- the subscription

    async def seek(self, to: MessageId | int, *, inclusive: bool = False) -> None:
        self._open_consumer()
        await self._worked()
        topic = self._source.topic
        if isinstance(to, MessageId):
            offset = await topic.offset_after(to, inclusive=inclusive)
        else:
            offset = await topic.offset_at_time(to)
        self._open_consumer()
        self._unstored.clear()
        self._sink.reset()  # in one step with the move, which drops the outbox
        await self._source.move(offset)

    async def unsubscribe(self) -> None:
        consumer, self._leaving = self._open_consumer(), True
        try:
            await consumer.unsubscribe()
        except BaseException:
            self._leaving = False
            if self._task is not None and self._task.done():  # the subscription was closed nevertheless
                self._closed(consumer)
            raise


def _arrived(delivery: Delivery) -> Arrived:
    entry = delivery.entry
    return Arrived(
        delivery.topic.ledger,
        entry.entry_id,
        entry.count,
        delivery.mask,
        entry.publish_time,
        entry.deliver_at,
        entry.data,
        entry.end - 1,
        delivery.redeliveries,
        None,  # the broker of this process knows the schemas of its entries
    )

"""A consumer on a connection: what it is given goes out as fast as the client reads."""

import asyncio
from collections import deque
from typing import Final

from penstock.broker.capability import offered
from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery, Outcome
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.model.policy import SubscriptionType
from penstock.runtime.clock import Timer
from penstock.wire.contents import excerpt
from penstock.wire.frames import ack_set_of, broker_part, mask_of, message_head
from penstock.wire.pulsar_pb2 import CommandActiveConsumerChange, CommandReachedEndOfTopic, MessageIdData

from . import answers
from .peer import Peer

ACTIVE_SENT_MS: Final = 1000  # without FLOW; Pulsar's activeConsumerFailoverDelayTimeMillis
TAKEN_AT_ONCE: Final = 64  # deliveries: what of them was not written goes back
TAKEN_BYTES: Final = 256 * 1024  # of them; one more may overdraw it


class ConsumerHandler:
    """One consumer of a connection."""

    def __init__(
        self,
        peer: Peer,
        consumer_id: int,
        consumer: Consumer,
        opened: "dict[int, ConsumerHandler]",
        epoch: int | None,
    ) -> None:
        """`opened` has the connection's consumers, this one among them."""
        self.consumer = consumer
        self.epoch = (
            epoch  # counts the client's redelivery requests, so that it recognizes earlier deliveries
        )
        (self.source,) = consumer.attached
        what = "consumers of Pulsar's protocol"
        self.answers = offered(self.source.entry_answers, what)
        self._parts = offered(self.source.partial_batches, what)
        self._peer = peer
        self._id = consumer_id
        self._opened = opened
        self._taken: deque[Delivery] = deque()
        self._end_due = self._end_sent = False
        # Clients of ours know parts of a batch. Others show it by acknowledging one: until then it is not known,
        # and most wait for the whole of it.
        self._own_client = peer.features.supports_request_reply
        # Acknowledgements to be answered once they are durable, and what became of their replies.
        self._pending_acks: list[tuple[int, Outcome | None]] = []
        self._answering: asyncio.Task[None] | None = None
        self._indexes = peer.features.supports_broker_entry_metadata
        self._task = peer.tasks.spawn(self._run(), f"deliver {self.source.topic.name}")
        consumer.end_reached = self._end_reached
        # A client that has just read the success of its SUBSCRIBE may not know the consumer yet; one that sends
        # FLOW does. To those that send none for long it is sent all the same.
        self._active_due: Timer | None = None
        if consumer.options.type is SubscriptionType.FAILOVER:
            consumer.active_changed = self._active_changed
            self._active_due = peer.broker.clock.call_later(ACTIVE_SENT_MS, self._send_active)

    # -- out

    async def _run(self) -> None:
        consumer, output = self.consumer, self._peer.output
        while await consumer.ready():
            self._taken.extend(consumer.take(TAKEN_AT_ONCE, TAKEN_BYTES))
            await self._write_taken()
            self._send_end()
            await asyncio.sleep(0)  # other tasks share the loop
            output.count()  # what the system did not take at once
        if self._active_due is not None:
            self._active_due.cancel()
        self._disconnect()

    async def _write_taken(self) -> None:
        """Write taken deliveries. This is not part of `_run`, whose frame would hold the last entry while it waits for more."""
        output, taken, allowance = self._peer.output, self._taken, self._peer.allowance
        while taken:
            if output.paused:
                await output.writable()
                continue  # it may have been given back
            delivery = taken.popleft()
            self._write(delivery)
            if allowance is not None:
                await allowance.spend(0, len(delivery.entry.data))

    def _write(self, delivery: Delivery) -> None:
        entry, topic, mask = delivery.entry, delivery.topic, delivery.mask
        data, ack_set = entry.data, None
        if mask != (1 << entry.count) - 1:
            part = None if self._by_index else excerpt(data, mask)
            if part is None:
                ack_set = ack_set_of(mask)
            else:
                data = part
                self._parts.add(entry.entry_id, entry.end, mask)
        head = message_head(
            self._id,
            MessageId(topic.ledger, entry.entry_id, topic.name.partition),
            len(data),
            redeliveries=delivery.redeliveries,
            ack_set=ack_set or (),
            epoch=self.epoch,
            broker=broker_part(entry.end - 1) if self._indexes else b"",
        )
        self._peer.output.write(head, data)

    @property
    def _by_index(self) -> bool:
        return self._own_client or self._peer.client.version in self._parts.clients

    def unacked(self, data: MessageIdData) -> int:
        """What an acknowledgement leaves of an entry, as bits over all its messages."""
        if not data.ack_set:
            return 0
        left = mask_of(data.ack_set)
        if not left:
            return 0
        if not self._own_client:
            self._parts.learn(self._peer.client.version)
        return self._parts.left(data.entryId, left)

    def index_of_last(self, mask: int, size: int) -> tuple[int, int]:
        """The batch index of the last message in `mask` of a batch, and its size, as the client sees them."""
        if self._by_index or mask == (1 << size) - 1:
            return mask.bit_length() - 1, size
        return mask.bit_count() - 1, mask.bit_count()

    def flow(self, permits: int) -> None:
        """Take more messages from here on."""
        if self._active_due is not None:
            self._send_active()
        self.consumer.flow(permits)

    def _send_active(self) -> None:
        """ACTIVE_CONSUMER_CHANGE for the first time."""
        if self._active_due is not None:
            self._active_due.cancel()
            self._active_due = None
            self._active_changed(self.source, self.source.active is self.consumer)

    def _active_changed(self, subscription: object, active: bool) -> None:
        if self._active_due is None:
            self._peer.send(CommandActiveConsumerChange(consumer_id=self._id, is_active=active))

    def _end_reached(self) -> None:
        self._end_due = True
        self._send_end()

    def _send_end(self) -> None:
        """REACHED_END_OF_TOPIC, once, after the last message."""
        if self._end_due and not self._end_sent and not self._taken and not self.consumer.outbox:
            self._end_sent = True
            self._peer.send(CommandReachedEndOfTopic(consumer_id=self._id))

    # -- acknowledgements

    def answer_ack(self, request_id: int, outcome: Outcome | None = None) -> None:
        """Answer an acknowledgement as soon as everything acknowledged so far is durable."""
        self._pending_acks.append((request_id, outcome))
        if self._answering is None:
            self._answering = self._peer.tasks.spawn(self._answer_acks(), "answer acknowledgements")

    async def _answer_acks(self) -> None:
        while self._pending_acks:
            pending, self._pending_acks = self._pending_acks, []
            refused = None
            try:
                await self.consumer.flush()
            except PenstockError as error:
                refused = error
            for request_id, outcome in pending:
                self.send_ack_response(request_id, refused, outcome)
        self._answering = None

    def send_ack_response(
        self, request_id: int, refused: PenstockError | None, outcome: Outcome | None = None
    ) -> None:
        """Answer an acknowledgement. A client whose consumer is closed learns of that first: it may acknowledge again elsewhere."""
        if refused is not None and self.consumer.closed:
            self._disconnect()
        self._peer.send(answers.ack_response(self._id, request_id, refused, outcome))

    # -- again

    def redeliver(self, entry_id: int) -> None:
        """Deliver an entry again at once; nothing happens unless this consumer has it."""
        self.answers.negative(entry_id, -1, 0, by=self.consumer)

    def redeliver_all(self) -> None:
        """Deliver again everything that the consumer has."""
        self._give_back()
        self.answers.redeliver_all(self.consumer)

    def _give_back(self) -> None:
        """Unwritten deliveries cost no permits, and do not count as delivered."""
        count = sum(delivery.count for delivery in self._taken)
        self.consumer.give_back(tuple(self._taken))
        self._taken.clear()
        if count and not self.consumer.closed:
            self.consumer.flow(count)

    # -- the end

    def review(self) -> None:
        """Permissions changed: leave the subscription if its topic may not be consumed any more."""
        try:
            self._peer.admitted.may_consume(self.source.topic.name, self.source.name)
        except PenstockError:
            if self._disconnect():
                self._peer.tasks.spawn(self.close(), "close a consumer")

    def _disconnect(self) -> bool:
        """Notify the client that its consumer is closed; False if it knows."""
        if self._opened.get(self._id) is not self:
            return False
        del self._opened[self._id]
        self._peer.send(answers.close_consumer(self._id))
        return True

    async def close(self, keep_ms: int = 0) -> None:
        """Leave the subscription; unwritten messages do not count as delivered. One that is not durable
        waits for `keep_ms`."""
        self._task.cancel()
        if self._active_due is not None:
            self._active_due.cancel()
        self._give_back()
        await self.consumer.leave(keep_ms=keep_ms)

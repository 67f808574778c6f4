"""The producer endpoint: frames in, groups of messages published, one answer each, in their order.

The reader only decodes; the publisher takes everything that waits and publishes it at once. So a commit carries
what came while the one before was made, and no message costs a task or a future. When too much waits, reading
pauses, and with it the client. How a group is published is in `publisher`. The replies to requests are
written between the receipts (`replies`).
"""

import asyncio
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.producer import Producer
from penstock.model.errors import PenstockError
from penstock.protocols.backlog import Backlog
from penstock.protocols.limits import Limits
from penstock.protocols.payloads import TopicSchemas
from penstock.protocols.proxied import Meter
from penstock.protocols.rates import pause
from penstock.protocols.values import value_of

from .frames import UNKNOWN
from .parameters import PENDING_DEFAULT, ProducerParameters
from .publisher import Publisher
from .publishing import Incoming, read_frames, refusal
from .replies import Replies
from .socket import Socket, documented

# Steps in which what waits is counted, so that small messages pay nothing for it.
COUNT_BYTES: Final = 64 * 1024
HELD_FACTOR: Final = 1.5  # the payload is three quarters of its frame, and as large once more as an entry
PENDING_BYTES_MAX: Final = 4 * 1024 * 1024  # one frame more may overdraw it
READ_AT_ONCE: Final = 64  # frames that are read before the backlog is checked
ANSWERS_AT_ONCE: Final = 256  # written with one write, before others have their turn on the loop


class ProducerHandler:
    """One producer's socket."""

    def __init__(
        self,
        socket: Socket,
        producer: Producer,
        topic_schemas: TopicSchemas,
        parameters: ProducerParameters,
        broker: Broker,
        limits: Limits,
        meter: Meter,
        trace: dict[str, str] | None = None,
    ) -> None:
        """`trace`: properties that carry on the trace of the upgrade's request."""
        self._socket = socket
        self._producer = producer
        self._clock = broker.clock
        self._limits = limits
        self._group_max = max(1, parameters.batch_messages_max)
        self._timeout_ms = parameters.send_timeout_ms
        self._keys = parameters.keys
        topic = producer.topics[0].name
        self._replies = Replies(socket, lambda reply: value_of(broker.schemas, topic, reply))
        self._publisher = Publisher(
            producer,
            topic_schemas,
            broker.requests,
            self._replies,
            meter,
            batching=parameters.batching,
            message_bytes_max=broker.settings.max_message_bytes,
            trace=trace,
        )
        self._close_reason = ""
        self._backlog: Backlog[Incoming] = Backlog(
            parameters.pending_max or PENDING_DEFAULT, PENDING_BYTES_MAX
        )
        self._under_way: list[Incoming] = []  # being published, not answered yet
        self._publishing = 0  # bytes that are being published
        self._counted = 0  # bytes of what waits and is published, as far as they are counted
        # A publish that a quota holds outlasts its connection.
        self._holding = None if socket.holding is None else socket.holding.beside()
        self._expiry: asyncio.Task[None] | None = None
        self._done = False  # nothing can expire any more

    async def run(self) -> None:
        """Serve until the peer leaves or the socket is stopped; frames already read are published."""
        work = [self._publish_all(), self._replies.run()]
        if self._timeout_ms:
            work.append(self._expire_all())
        self._producer.ousted = self._closed_by_broker
        try:
            await self._socket.run(self._read(), *work)
        finally:
            self._replies.close()
            self._producer.close()
            if self._holding is not None:
                self._holding.close()

    def _closed_by_broker(self, reason: PenstockError) -> None:
        self._close_reason = reason.message
        self._socket.stop(*documented(reason.kind.codes.ws_result))

    async def _read(self) -> None:
        socket = self._socket
        at_once = READ_AT_ONCE if socket.allowance is None else 1  # none is published before its time
        try:
            while received := await socket.receive_all():
                while received:
                    await self._take(received[:at_once])
                    del received[:at_once]
        finally:
            self._backlog.close()

    async def _take(self, texts: list[bytes]) -> None:
        backlog, properties_bytes_max = self._backlog, self._limits.max_properties_bytes
        group = read_frames(texts, self._clock, properties_bytes_max=properties_bytes_max, keys=self._keys)
        size = sum([item.size for item in group])
        backlog.extend(group, size)
        texts.clear()  # what waits holds the messages alone
        if HELD_FACTOR * (backlog.size_bytes + self._publishing) >= self._counted + COUNT_BYTES:
            self._count()
            await self._room()
        if backlog.full:
            await backlog.room()
        if self._socket.allowance is not None:
            await self._socket.allowance.spend(len(group), size)

    async def _publish_all(self) -> None:
        while group := await self._backlog.take(self._group_max):
            self._under_way = group
            self._publishing = sum([item.size for item in group])
            await self._publisher.publish(group)
            self._publishing = 0
            self._count()
            if self._under_way:  # else the timeout answered
                self._under_way = []
                await self._answer(group)
            del group  # it would stay while the next is waited for
        self._done = True  # also for one that has not begun yet: a peer may leave as soon as it came
        expiry, self._expiry = self._expiry, None  # a cancelled task has the frames, which know this object
        if expiry is not None:
            expiry.cancel()
        self._replies.close("" if self._socket.gone else self._close_reason or self._socket.stop_reason)

    def _count(self) -> None:
        """Count waiting frames and publishes in the memory that the server holds; small amounts go uncounted."""
        held = self._backlog.size_bytes + self._publishing
        held = 0 if held < COUNT_BYTES else int(held * HELD_FACTOR)
        if held != self._counted and self._holding is not None:
            self._holding.receive(held - self._counted)
            self._counted = held

    async def _room(self) -> None:
        """Read no more while the principal holds more than its share."""
        holding = self._holding
        while not self._socket.gone and holding is not None and holding.over:
            holding.slow()
            room = asyncio.Event()
            holding.call_when_room(room.set)
            await room.wait()

    async def _answer(self, group: list[Incoming]) -> None:
        socket = self._socket
        for start in range(0, len(group), ANSWERS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            items = group[start : start + ANSWERS_AT_ONCE]
            answers = [item.answer for item in items]
            asked = [(it.request, it.message_id, it.context) for it in items if it.request and it.message_id]
            if asked:
                await socket.writable.wait()
                socket.queue_all(answers)  # with the replies that come of the same input
                self._replies.follow(asked)
            else:
                await socket.send_all(answers)

    async def _expire_all(self) -> None:
        """sendTimeoutMillis: answer what waits for longer. It may still be stored, as with any timeout."""
        self._expiry = asyncio.current_task()
        while not self._done:
            oldest = self._under_way[0].arrived_ms if self._under_way else self._backlog.oldest_ms
            now = self._clock.monotonic_ms()
            await pause(self._clock, self._timeout_ms + (now if oldest is None else oldest) - now)
            await self._expire(self._clock.monotonic_ms() - self._timeout_ms)

    async def _expire(self, before_ms: int) -> None:
        late: list[Incoming] = []
        if self._under_way and self._under_way[0].arrived_ms <= before_ms:
            late, self._under_way = self._under_way, []
        late += self._backlog.expire(before_ms)
        text = f"The message was not stored within {self._timeout_ms} ms"
        for item in late:
            item.answer = item.answer or refusal(UNKNOWN, text, item.context)
            if item.request is not None and item.message_id is None:
                self._replies.withdraw(item.request)
        await self._answer(late)

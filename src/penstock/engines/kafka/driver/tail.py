"""One consumer for the ends of all logs that are followed: a thread waits for records, and hands them to the loop in batches.

While the loop works at a batch, the next one gathers in librdkafka, within its bound: the thread waits.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from itertools import groupby
from threading import Semaphore, Thread
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from .errors import engine_error
from .reader import reading
from .record import At, Record

BATCH_MAX: Final = 500  # records: they are made entries on the loop, at about 2 µs each
WAIT_S: Final = 0.25  # of one wait of the thread
FETCH_WAIT_MS: Final = 100  # the broker's where nothing comes; who begins to follow may wait so long
AHEAD_KB: Final = 16_384  # that librdkafka holds for the loop, about

STALE_MAX: Final = (
    2  # batches with records of a log that was just left: one waits for the loop, and the thread has one
)


class Follower(Protocol):
    """A log that is followed; called on the loop."""

    def arrived(self, records: Sequence[Record]) -> None:
        """Records, in order; there may be gaps."""

    def reached(self, offset: int) -> None:
        """The log ends at an offset: what was not delivered before it is no record."""

    def lost(self, missing: bool) -> None:
        """Nothing more comes: the topic is not there (`missing`), or the offset is not."""


class TailReader:
    """The consumer and its thread; both begin with the first log that is followed."""

    def __init__(self, properties: Mapping[str, Any], executor: Executor) -> None:
        self._properties = properties
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._consumer: Consumer | None = None
        self._thread: Thread | None = None
        self._room = Semaphore(1)
        self._closed = False
        self._followers: dict[At, Follower] = {}
        self._changing = asyncio.Lock()
        self._turn = 0  # counts batches
        self._turned = asyncio.Event()
        self._left: dict[At, int] = {}  # in which turn a log was left, while records of it may arrive

    async def follow(self, place: At, offset: int, follower: Follower) -> None:
        """Deliver what comes from an offset on; raises what the cluster refuses."""
        async with self._changing:
            await self._let_pass(place)
            if self._closed:
                return
            self._followers[place] = follower
            try:
                await self._run(self._assign, [TopicPartition(*place, offset)])
            except KafkaException as error:
                del self._followers[place]
                raise engine_error(error, place[0]) from None

    async def leave(self, place: At) -> None:
        """Deliver no more of a log; harmless when repeated."""
        async with self._changing:
            if self._followers.pop(place, None) is None or self._consumer is None or self._closed:
                return
            try:
                await self._run(self._consumer.incremental_unassign, [TopicPartition(*place)])
            except KafkaException:
                pass  # it was not assigned any more
            self._left[place] = self._turn

    async def _let_pass(self, place: At) -> None:
        """Wait until no record of before `place` was left can arrive."""
        while place in self._left and not self._closed:
            self._turned.clear()
            await self._turned.wait()

    def _assign(self, places: list[TopicPartition]) -> None:
        if self._consumer is None:
            own = {"fetch.wait.max.ms": FETCH_WAIT_MS, "queued.max.messages.kbytes": AHEAD_KB}
            self._consumer = Consumer(reading(self._properties, **own))
        self._consumer.incremental_assign(places)
        if self._thread is None:
            self._thread = Thread(target=self._poll, args=(self._consumer,), name="kafka-tail", daemon=True)
            self._thread.start()

    async def _run(self, work: Any, *arguments: Any) -> None:
        await self._loop.run_in_executor(self._executor, work, *arguments)

    # -- in the thread

    def _poll(self, consumer: Consumer) -> None:
        while not self._closed:
            first = consumer.poll(WAIT_S)
            messages = [] if first is None else [first, *consumer.consume(BATCH_MAX - 1, 0)]
            if messages or self._left:
                self._room.acquire()
                try:
                    self._loop.call_soon_threadsafe(self._deliver, messages)
                except RuntimeError:  # the loop has ended
                    return

    # -- on the loop

    def _deliver(self, messages: Sequence[Message]) -> None:
        self._turn += 1
        self._turned.set()
        for place in [place for place, turn in self._left.items() if turn + STALE_MAX <= self._turn]:
            del self._left[place]
        try:
            for place, run in groupby(messages, _place):
                follower = self._followers.get(place)
                if follower is not None:
                    _hand(follower, list(run))
        finally:
            self._room.release()

    async def close(self) -> None:
        """End the thread, and leave."""
        async with self._changing:
            self._closed = True
            self._turned.set()
            self._followers.clear()
            self._room.release()
            if self._thread is not None:
                await self._run(self._thread.join)
            if self._consumer is not None:
                await self._run(self._consumer.close)
                self._consumer = None


def _place(message: Message) -> At:
    return message.topic(), message.partition()


def _hand(follower: Follower, messages: list[Message]) -> None:
    """Records as they are, and what is said between them."""
    if all(message.error() is None for message in messages):
        follower.arrived(messages)
        return
    for said, run in groupby(messages, lambda message: message.error() is not None):
        if not said:
            follower.arrived(list(run))
            continue
        for message in run:
            code = message.error().code()
            if code == KafkaError._PARTITION_EOF:
                follower.reached(message.offset())
            elif code == KafkaError._AUTO_OFFSET_RESET:
                follower.lost(missing=False)
            elif code in (
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                KafkaError._UNKNOWN_TOPIC,
                KafkaError._UNKNOWN_PARTITION,
            ):
                follower.lost(missing=True)

"""One consumer for the ends of all logs that are followed: a thread waits for records, and hands them to the loop in batches.

While the loop works at a batch, the next one gathers in librdkafka, within its bound: the thread waits.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Final, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import engine_error
from .reader import ask_for_leaders, fetching, mends, reading
from .record import At, Record
from .threads import in_thread

log = logging.getLogger(__name__)

BATCH_MAX: Final = 500  # records: they are made entries on the loop, at about 2 µs each
WAIT_S: Final = 0.05  # of one wait of the thread, which delays new followers and those that leave
FETCH_WAIT_MS: Final = 250  # the broker's without new records; logs followed then are in the next request
AHEAD_KB: Final = 16_384  # that librdkafka holds for the loop, about
MET_MAX: Final = 10_000  # topics that are remembered

STALE_MAX: Final = (
    2  # batches with records of a log that was just left: one waits for the loop, and the thread has one
)


class Follower(Protocol):
    """A log that is followed; called on the loop."""

    def arrived(self, records: Sequence[Record]) -> None:
        """Records, in order; there may be gaps."""

    def reached(self, offset: int) -> None:
        """The log ends at an offset: undelivered offsets before it are not records."""

    def truncated(self) -> None:
        """Received records are no longer in the log. `lost` follows."""

    def lost(self) -> None:
        """Nothing more comes: the topic or the offset is not there, or it may not be read."""


class _Change(NamedTuple):
    """A log is followed from an offset on, or no longer followed: then there is no offset."""

    place: At
    offset: int | None
    follower: Follower | None
    done: asyncio.Future[None]


class TailReader:
    """The consumer and its thread; both begin with the first log that is followed.

    The thread alone uses the consumer, and makes all changes that wait for it at once. So nothing that was read before a log was left
    arrives after `leave` returns.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._loop = asyncio.get_running_loop()
        self._thread: Thread | None = None
        self._room = Semaphore(1)
        self._closed = False
        self._followers: dict[At, Follower] = {}
        self._assigned: dict[At, int] = {}  # the thread's: the offset that each was assigned at
        self._met: set[str] = set()  # the thread's: topics whose leaders the consumer was made to ask for
        self._wanted: SimpleQueue[_Change] = SimpleQueue()

    async def follow(self, place: At, offset: int, follower: Follower) -> None:
        """Deliver what comes from an offset on, and nothing else; raises what the cluster refuses."""
        try:
            await self._change(place, offset, follower)
        except KafkaException as error:
            raise engine_error(error, place[0]) from None

    async def leave(self, place: At) -> None:
        """Deliver no more of a log; harmless when repeated."""
        if self._thread is None or self._closed:
            self._followers.pop(place, None)
        else:
            await self._change(place)

    async def _change(self, place: At, offset: int | None = None, follower: Follower | None = None) -> None:
        self._followers.pop(place, None)
        if self._closed:
            raise _ending()
        if self._thread is None:
            self._thread = Thread(target=self._run, name="kafka-tail", daemon=True)
            self._thread.start()
        done: asyncio.Future[None] = self._loop.create_future()
        self._wanted.put(_Change(place, offset, follower, done))
        await done

    # -- in the thread

    def _run(self) -> None:
        credentials, consumer = CredentialsInUse(self._clients), self._consumer()
        try:
            while not self._closed:
                if credentials.replaced():
                    consumer = self._renewed(consumer)
                self._make_changes(consumer)
                first = consumer.poll(WAIT_S)
                if first is not None:
                    messages = [first, *consumer.consume(BATCH_MAX - 1, 0)]
                    self._room.acquire()
                    self._loop.call_soon_threadsafe(self._deliver, messages)
        except RuntimeError:
            pass  # the loop has ended
        finally:
            consumer.close()

    def _consumer(self) -> Consumer:
        return self._clients.consumer("tail", reading(**fetching(FETCH_WAIT_MS, AHEAD_KB)))

    def _renewed(self, consumer: Consumer) -> Consumer:
        """A consumer with the current credentials that continues at the same positions."""
        try:
            made = self._consumer()
        except PenstockError as error:
            log.warning("still reading with the old certificates: %s", error)
            return consumer
        for one in consumer.position([TopicPartition(*place) for place in self._assigned]):
            if one.offset >= 0:  # else nothing was read yet
                self._assigned[one.topic, one.partition] = one.offset
        if self._assigned:
            made.incremental_assign([TopicPartition(*place, at) for place, at in self._assigned.items()])
        self._met.clear()
        self._meet(made, self._assigned)
        consumer.close()
        return made

    def _make_changes(self, consumer: Consumer) -> None:
        """Make all changes that wait; records that were handed over before arrive before the answer. Of several changes of a log the
        last one counts."""
        changes = [self._wanted.get() for _ in range(self._wanted.qsize())]
        if not changes:
            return
        try:
            self._assign(consumer, {one.place: one.offset for one in changes})
        except KafkaException:
            for one in changes:  # each by itself: the error is of one of them
                error: Exception | None = None
                try:
                    self._assign(consumer, {one.place: one.offset})
                except KafkaException as failed:
                    error = failed
                self._loop.call_soon_threadsafe(self._answer, [one], error)
            return
        self._loop.call_soon_threadsafe(self._answer, changes, None)

    def _assign(self, consumer: Consumer, offsets: Mapping[At, int | None]) -> None:
        left = [place for place in offsets if self._assigned.pop(place, None) is not None]
        if left:
            consumer.incremental_unassign([TopicPartition(*place) for place in left])
        new = {place: offset for place, offset in offsets.items() if offset is not None}
        if new:
            consumer.incremental_assign([TopicPartition(*place, offset) for place, offset in new.items()])
            self._assigned |= new
            self._meet(consumer, new)

    def _meet(self, consumer: Consumer, places: Collection[At]) -> None:
        """Have librdkafka ask for the leaders of topics that are new to the consumer. The answer comes behind a fetch that waits. It is
        not awaited, so that other topics are still read."""
        unmet = [place for place in places if place[0] not in self._met]
        if unmet:
            ask_for_leaders(consumer, unmet)
            if len(self._met) + len(unmet) > MET_MAX:
                self._met.clear()
            self._met.update(topic for topic, _ in unmet)

    # -- on the loop

    def _answer(self, changes: Sequence[_Change], error: Exception | None) -> None:
        for change in changes:
            if change.done.done():  # the caller does not wait any more
                continue
            if error is not None:
                change.done.set_exception(error)
                continue
            if change.follower is None:
                self._followers.pop(change.place, None)
            else:
                self._followers[change.place] = change.follower
            change.done.set_result(None)

    def _deliver(self, messages: Sequence[Message]) -> None:
        try:
            for place, run in groupby(messages, _place):
                follower = self._followers.get(place)
                if follower is not None:
                    self._hand(follower, list(run))
        finally:
            self._room.release()

    def _hand(self, follower: Follower, messages: list[Message]) -> None:
        """Hand on records, and handle the events (end of partition, errors) between them."""
        if all(message.error() is None for message in messages):
            follower.arrived(messages)
            return
        for is_event, run in groupby(messages, lambda message: message.error() is not None):
            if not is_event:
                follower.arrived(list(run))
                continue
            for message in run:
                error = message.error()
                if error.code() == KafkaError._PARTITION_EOF:
                    follower.reached(message.offset())
                elif not mends(error):
                    self._clients.errors.report("tail", error)
                    if error.code() == KafkaError._LOG_TRUNCATION:
                        follower.truncated()
                    follower.lost()

    async def close(self) -> None:
        """End the thread, and leave."""
        self._closed = True
        self._followers.clear()
        self._room.release()
        if self._thread is not None:
            await in_thread(self._thread.join)
        self._answer([self._wanted.get() for _ in range(self._wanted.qsize())], _ending())


def _ending() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")


def _place(message: Message) -> At:
    return message.topic(), message.partition()

"""One consumer for the ends of all logs that are followed: a thread waits for records, and hands them to the loop in batches.

While the loop works at a batch, the next one gathers in librdkafka, within its bound: the thread waits.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby, islice
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import engine_error
from .reader import mends, reading
from .record import At, Record
from .threads import in_thread

log = logging.getLogger(__name__)

BATCH_MAX: Final = 500  # records: they are made entries on the loop, at about 2 µs each
WAIT_S: Final = 0.05  # of one wait of the thread: who begins to follow, or leaves, waits so long
FETCH_WAIT_MS: Final = (
    250  # the broker's where nothing comes; what is followed then is asked for with the next request
)
AHEAD_KB: Final = 16_384  # that librdkafka holds for the loop, about
ASKED_MAX: Final = 32  # topics whose leaders are asked for at once, one request each
MET_MAX: Final = 10_000  # topics that are remembered

STALE_MAX: Final = (
    2  # batches with records of a log that was just left: one waits for the loop, and the thread has one
)


Work = Callable[[Consumer], None]


class Follower(Protocol):
    """A log that is followed; called on the loop."""

    def arrived(self, records: Sequence[Record]) -> None:
        """Records, in order; there may be gaps."""

    def reached(self, offset: int) -> None:
        """The log ends at an offset: what was not delivered before it is no record."""

    def truncated(self) -> None:
        """Records that came here are no longer in the log. `lost` follows."""

    def lost(self) -> None:
        """Nothing more comes: the topic or the offset is not there, or it may not be read."""


class TailReader:
    """The consumer and its thread; both begin with the first log that is followed.

    The thread alone uses the consumer: what is to be done with it waits for its turn. So nothing that was read before a log
    was left arrives after `leave` returns.
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
        self._unmet: set[str] = set()  # the thread's: topics that were just assigned
        self._wanted: SimpleQueue[tuple[Work, Callable[[], None] | None, asyncio.Future[None]]] = (
            SimpleQueue()
        )

    async def follow(self, place: At, offset: int, follower: Follower) -> None:
        """Deliver what comes from an offset on, and nothing else; raises what the cluster refuses."""
        self._followers.pop(place, None)
        target = [TopicPartition(*place, offset)]

        def assign(consumer: Consumer) -> None:
            self._unassign(consumer, place)
            consumer.incremental_assign(target)
            self._assigned[place] = offset
            self._unmet.add(place[0])

        def assigned() -> None:
            self._followers[place] = follower

        try:
            await self._have(assign, assigned)
        except KafkaException as error:
            raise engine_error(error, place[0]) from None

    async def leave(self, place: At) -> None:
        """Deliver no more of a log; harmless when repeated."""
        self._followers.pop(place, None)
        if self._thread is not None and not self._closed:
            await self._have(lambda consumer: self._unassign(consumer, place))

    async def _have(self, work: Work, then: Callable[[], None] | None = None) -> None:
        """Have something done in the thread, and `then` on the loop, before anything that comes after."""
        if self._closed:
            raise _ending()
        if self._thread is None:
            self._thread = Thread(target=self._run, name="kafka-tail", daemon=True)
            self._thread.start()
        future: asyncio.Future[None] = self._loop.create_future()
        self._wanted.put((work, then, future))
        await future

    # -- in the thread

    def _run(self) -> None:
        credentials, consumer = CredentialsInUse(self._clients), self._consumer()
        try:
            while not self._closed:
                if credentials.replaced():
                    consumer = self._renewed(consumer)
                self._work(consumer)
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
        own = {"fetch.wait.max.ms": FETCH_WAIT_MS, "queued.max.messages.kbytes": AHEAD_KB}
        return self._clients.consumer("tail", reading(**own))

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
        consumer.close()
        return made

    def _work(self, consumer: Consumer) -> None:
        """Do what is wanted; what was handed over before arrives before the answer."""
        while not self._wanted.empty():
            work, then, future = self._wanted.get()
            error: Exception | None = None
            try:
                work(consumer)
            except KafkaException as failed:
                error = failed
            self._loop.call_soon_threadsafe(_answer, future, error, then)
        if self._unmet:
            self._meet(consumer)

    def _meet(self, consumer: Consumer) -> None:
        """Have librdkafka ask for the leaders of new topics; without that it asks once a second, in one request for all.

        The answers come behind a fetch that waits. They are not awaited, so that other topics are read meanwhile. librdkafka uses
        them when they arrive, as the topics are assigned already.
        """
        for topic in islice(self._unmet - self._met, ASKED_MAX):
            with suppress(KafkaException):  # the time is over at once
                consumer.list_topics(topic, 0)
        if len(self._met) + len(self._unmet) > MET_MAX:
            self._met.clear()
        self._met |= self._unmet
        self._unmet.clear()

    def _unassign(self, consumer: Consumer, place: At) -> None:
        if place in self._assigned:
            del self._assigned[place]
            consumer.incremental_unassign([TopicPartition(*place)])

    # -- on the loop

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
        while not self._wanted.empty():
            _answer(self._wanted.get()[2], _ending(), None)


def _answer(future: "asyncio.Future[None]", error: Exception | None, then: Callable[[], None] | None) -> None:
    if future.done():  # nobody waits any more
        return
    if error is None:
        if then is not None:
            then()
        future.set_result(None)
    else:
        future.set_exception(error)


def _ending() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")


def _place(message: Message) -> At:
    return message.topic(), message.partition()

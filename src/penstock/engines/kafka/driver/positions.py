"""The bounds of partitions.

A consumer that reads nothing is asked: the administrator's request for it corrupts memory in librdkafka 2.11 to 2.16 if a topic is
deleted in the meantime.
"""

import asyncio
from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks, each

from .clients import UNREACHABLE, Clients, CredentialsInUse
from .errors import error_of
from .record import At

# What Kafka understands in the place of a time (ms).
BEGIN: Final = -2
END: Final = -1
ALONE_AT_ONCE: Final = 16


class Offsets:
    """Each call waits, so that it is made in a thread. `committed`: records in open transactions, and behind them, do not count."""

    def __init__(self, clients: Clients, timeout_s: float, *, committed: bool) -> None:
        self._clients = clients
        self._credentials = CredentialsInUse(clients)
        self._properties: dict[str, Any] = {
            "group.id": "penstock",  # required, and never joined
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
        self._timeout_s = timeout_s
        self._making = Lock()
        self._consumer: Consumer | None = None

    def at(self, places: Sequence[At], time_ms: int) -> dict[At, int]:
        """The offsets of the first records of a time or after it, -1 without one; or of the beginning, or the end. Raises
        KafkaException."""
        with self._making:
            if self._credentials.replaced():
                self._consumer = None  # it ends once no call uses it
            if self._consumer is None:
                self._consumer = self._clients.consumer("offsets", self._properties)
            consumer = self._consumer
        try:
            return self._ask(consumer, places, time_ms)
        except KafkaException as error:
            # So that the consumer reports its errors. Not after each lookup: the calls of a consumer wait for one another.
            consumer.poll(0)
            found = error_of(error)
            if found is not None and found.code() in UNREACHABLE:
                self._leave(consumer)
            raise

    def bounds(self, places: Sequence[At]) -> dict[At, tuple[int, int]]:
        """The bounds of partitions. One request after the other: two at once would both ask for unknown leaders. Raises
        KafkaException."""
        begins, ends = self.at(places, BEGIN), self.at(places, END)
        return {place: (begins[place], end) for place, end in ends.items()}

    def _leave(self, consumer: Consumer) -> None:
        """Use another consumer from now on: librdkafka 2.16 may have lost all brokers (`KafkaAdmin.check_reachable`)."""
        with self._making:
            if consumer is self._consumer:
                self._consumer = None  # it ends once no call uses it

    def _ask(self, consumer: Consumer, places: Sequence[At], time_ms: int) -> dict[At, int]:
        wanted = [TopicPartition(topic, partition, time_ms) for topic, partition in places]
        try:
            found = consumer.offsets_for_times(wanted, timeout=self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() == KafkaError._UNKNOWN_PARTITION:  # not there, or not heard of yet
                for topic in {topic for topic, _ in places}:
                    # What librdkafka knows may be minutes old.
                    consumer.list_topics(topic, timeout=self._timeout_s)
                raise KafkaException(KafkaError(KafkaError._NOENT)) from None
            raise
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
            if one.offset < 0 and time_ms < 0:  # no broker was asked
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return {(one.topic, one.partition): one.offset for one in found}

    def close(self) -> None:
        """End the consumer's threads, and wait for them."""
        with self._making:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


Ends = tuple[int, int]  # the first offset, and the one after the last


class Positions(Protocol):
    """What an administrator knows of partitions; of the driver's `KafkaAdmin`."""

    async def bounds(self, places: Iterable[At]) -> dict[At, Ends]: ...


class EndLookup:
    """Asks for all that was wanted since the last request, one request after the other."""

    def __init__(self, positions: Positions, tasks: Tasks) -> None:
        self._positions = positions
        self._tasks = tasks
        self._wanted: dict[At, asyncio.Future[Ends]] = {}
        self._asking = False

    async def ends(self, place: At) -> Ends:
        """The present bounds of one log. Raises TOPIC_NOT_FOUND, UNAVAILABLE."""
        future = self._wanted.get(place)
        if future is None:
            future = self._wanted[place] = asyncio.get_running_loop().create_future()
            if not self._asking:
                self._asking = True
                self._tasks.spawn(self._ask(), "ask where logs end")
        return await asyncio.shield(future)

    async def _ask(self) -> None:
        try:
            while self._wanted:
                await asyncio.sleep(0)  # requests of the same turn of the loop join
                wanted, self._wanted = self._wanted, {}
                await self._answer(wanted)
        finally:
            self._asking = False

    async def _answer(self, wanted: dict[At, asyncio.Future[Ends]]) -> None:
        try:
            found = await self._positions.bounds(wanted)
        except PenstockError as error:
            if len(wanted) > 1 and error.kind is not ErrorKind.UNAVAILABLE:
                # It is the error of one of them: each is asked for alone, so that no other waits for it.
                await each(lambda one: self._answer(dict((one,))), list(wanted.items()), ALONE_AT_ONCE)
                return
            for future in wanted.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # perhaps no caller waits any more
        else:
            for place, future in wanted.items():
                if not future.done():
                    future.set_result(found[place])

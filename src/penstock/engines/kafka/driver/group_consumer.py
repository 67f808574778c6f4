"""A member of a consumer group: a consumer of librdkafka, used by one call at a time on a thread.

Between fetches it is polled (`keep`), and holds the records that arrive for the next fetch. Beyond a bound its partitions are paused:
librdkafka drops the records that it fetched ahead.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .errors import ends_client, engine_error
from .held_records import HeldRecords, place_of
from .reader import QUEUE_BACKOFF_MS, ask_for_leaders, mends
from .record import At, Record
from .threads import DaemonThreads

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_S: Final = 0.25  # of one wait in a thread; a fetch that is given up leaves it then
GATHER_S: Final = 0.005  # that a fetch waits for records after the first one
JOIN_S: Final = 10.0  # for a rebalance to end when offsets are committed
COMMITTED_S: Final = 5.0  # for the coordinator to say what is committed in partitions that come back
REFUSAL_S: Final = 0.2  # for an error to be reported
LEAVE_S: Final = 2.0  # for a revocation to be reported
CLOSE_S: Final = 5.0  # for the coordinator's answer; the thread goes on without the caller

_OPTIONS: Final[Mapping[str, Any]] = {
    "enable.auto.offset.store": False,
    "auto.commit.interval.ms": 5000,  # Kafka's default
    "isolation.level": "read_committed",
    "session.timeout.ms": 10_000,  # after which the partitions of a killed process go to other members
    "heartbeat.interval.ms": 1000,  # how soon a member learns of a rebalance
    "max.poll.interval.ms": 60_000,  # also the longest that a hanging process holds up a rebalance
    "fetch.wait.max.ms": 100,  # a partition that is added or sought waits for the request under way
    "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
    "queued.max.messages.kbytes": 16_384,
    "topic.metadata.refresh.interval.ms": 10_000,  # how soon new topics and partitions are found
    "socket.nagle.disable": True,
}
_EAGER: Final = "range,roundrobin"  # `range` is among the defaults of Kafka's Java client, too
_COOPERATIVE: Final = "cooperative-sticky"
# A commit is refused with these while the group shares out its partitions.
_REBALANCING: Final = frozenset(
    (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
)
# The member goes on without the topic, or joins again.
_IGNORED: Final = frozenset(
    (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._MAX_POLL_EXCEEDED)
)


class GroupConsumer:
    """One member. The consumer exists from the first call on. After `close` no call is allowed."""

    def __init__(
        self,
        clients: Clients,
        executor: DaemonThreads,
        group: str,
        *,
        client_id: str,
        reset: str,
        auto_commit: bool,
    ) -> None:
        """`reset` is `auto.offset.reset`. With `auto_commit`, offsets are committed that a later fetch or `close` confirms."""
        self.group = group
        self.closed = False
        self._clients = clients
        self._credentials = CredentialsInUse(clients)
        self._executor = executor
        self._auto_commit = auto_commit
        self._properties = {
            **_OPTIONS,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": reset,
            "enable.auto.commit": auto_commit,
        }
        self._consumer: Any = None
        self._cooperative = False
        self._stale = False  # another consumer has to take its place
        self._topics: Sequence[str] = ()  # that it subscribes to
        self._assigned: frozenset[At] = frozenset()
        self._held = HeldRecords()
        self._paused = False
        self._failure: KafkaError | None = None
        self._running: Future[Any] | None = None

    # -- on the loop

    @property
    def assigned(self) -> frozenset[At]:
        """The partitions that it has now."""
        return self._assigned

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return self._running is None or self._running.done()

    async def subscribe(self, topics: Collection[str]) -> None:
        """Share the partitions of topics with the other members, instead of the former ones."""
        await self._run(self._subscribe, sorted(topics))

    async def assign(self, places: Collection[At]) -> None:
        """Have these partitions, without sharing."""
        await self._run(self._assign, places)

    async def seek(self, offsets: Mapping[At, int]) -> None:
        """Continue at these offsets, of assigned partitions."""
        await self._run(self._seek, offsets)

    async def wait(self, wait_s: float, bytes_min: int = 0) -> None:
        """Wait for records, until it `holds` them; `peek` then returns them. Confirms the records that were taken before.

        Raises the reason if the cluster refuses them. A wait that is cancelled loses none.
        """
        until = monotonic() + wait_s
        while True:
            left = until - monotonic()
            await self._run(self._gather, min(WAIT_S, max(left, 0.0)), bytes_min)
            failure, self._failure = self._failure, None
            if failure is not None and not self._held:
                raise engine_error(failure, f"group {self.group}")
            if left <= 0 or self.closed or self.holds(bytes_min):
                return

    def holds(self, bytes_min: int) -> bool:
        """Whether there are records of so many bytes, or as many as a member holds."""
        return self._held.reaches(bytes_min)

    def peek(self, bytes_max: int) -> list[Record]:
        """The records that follow, within `bytes_max` of keys, values and headers, but at least one if any is here."""
        return self._held.peek(bytes_max)

    def take(self, count: int) -> None:
        """Move the positions behind the first records of `peek`."""
        self._held.take(count)

    async def commit(self, offsets: Mapping[At, tuple[int, str]] | None) -> None:
        """Commit offsets with their metadata; None: the positions of the assigned partitions.

        Raises SUBSCRIPTION_BUSY if the group has members and this one does not share its partitions.
        """
        await self._run(self._commit, offsets)

    async def committed(self, places: Sequence[At], timeout_s: float) -> dict[At, tuple[int, str]]:
        """The offsets and metadata that the group has committed for these partitions."""
        return await self._run(self._committed, places, timeout_s) if places else {}

    async def close(self) -> None:
        """Leave the group, for whose answer it waits CLOSE_S."""
        self.closed = True
        self._running = leaving = self._executor.submit(self._end, self._running)
        await asyncio.wait((asyncio.wrap_future(leaving),), timeout=CLOSE_S)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        while (running := self._running) is not None and not running.done():  # cancelled, or the keeper's
            await asyncio.wait((asyncio.wrap_future(running),))
        made = self._executor.submit(work, *arguments)
        self._running = made
        try:
            return await asyncio.wrap_future(made)
        except KafkaException as error:
            self._stale = self._stale or ends_client(error)
            raise engine_error(error, f"group {self.group}") from None

    def lend(self, running: "Future[Any]") -> None:
        """An idle member is used by a call that `running` ends."""
        self._running = running

    # -- on a thread

    def _current(self) -> Any:
        """The consumer, which has the current credentials. Raises UNAVAILABLE."""
        if self.closed:
            raise PenstockError(ErrorKind.CONSUMER_NOT_FOUND, f"the member has left group {self.group}")
        if self._consumer is not None and not self._stale and not self._credentials.outdated:
            return self._consumer
        properties = {
            **self._properties,
            "partition.assignment.strategy": _COOPERATIVE if self._cooperative else _EAGER,
        }
        try:
            made = self._clients.consumer("member", properties)
        except PenstockError as error:
            if self._consumer is None or self._stale:
                raise
            log.warning("group %s keeps its old credentials: %s", self.group, error)
            return self._consumer
        self._credentials.replaced()
        old, self._consumer, self._stale = self._consumer, made, False
        if old is not None:
            old.close()  # calls `_on_revoke`, if it subscribes
        self._paused = False
        self._held.clear()
        if self._topics:
            self._join(made)
        elif self._assigned:
            at = self._held.positions
            made.assign(
                [TopicPartition(*place, *([at[place]] if place in at else ())) for place in self._assigned]
            )
        return made

    def _join(self, consumer: Any) -> None:
        consumer.subscribe(
            list(self._topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _subscribe(self, topics: Sequence[str]) -> None:
        consumer = self._current()
        if topics and topics == self._topics:
            return
        self._store(consumer)
        if topics and self._topics:
            self._drop([place for place in self._assigned if place[0] not in topics])
        else:
            self._leave(consumer)
            consumer = self._current()
        self._topics = topics
        if topics:
            self._join(consumer)

    def _assign(self, places: Collection[At]) -> None:
        consumer = self._current()
        self._store(consumer)
        self._leave(consumer)
        consumer = self._current()
        consumer.assign([TopicPartition(*place) for place in places])
        self._assigned = frozenset(places)
        ask_for_leaders(consumer, places)

    def _leave(self, consumer: Any) -> None:
        """Give up subscription and assignment. A revocation that was reported later would end the next assignment."""
        if self._topics:
            consumer.unsubscribe()
            until = monotonic() + LEAVE_S
            while self._assigned and monotonic() < until:
                consumer.poll(0.01)
            self._topics = ()
            self._held.revoked(())
            self._stale = bool(self._assigned)
        consumer.unassign()
        self._drop(self._assigned)
        self._paused = False

    def _seek(self, offsets: Mapping[At, int]) -> None:
        consumer = self._current()
        for place, offset in offsets.items():
            self._held.forget((place,))
            until = monotonic() + LEAVE_S
            while True:
                try:
                    consumer.seek(TopicPartition(*place, offset))
                    break
                except KafkaException as error:  # a partition that was just assigned
                    if error.args[0].code() != KafkaError._STATE or monotonic() > until:
                        raise
                self._take_in([consumer.poll(0.01)])
            self._held.positions[place] = offset
        ask_for_leaders(consumer, offsets)

    def _gather(self, wait_s: float, bytes_min: int) -> None:
        """Store the positions that a fetch returned, and hold records: wait for one if there are too few."""
        consumer = self._current()
        self._store(consumer)
        if self._paused:
            self._paused = False
            places = list(self._assigned)
            consumer.resume([TopicPartition(*place) for place in places])
            ask_for_leaders(consumer, places)  # else librdkafka begins to read half a second later
        enough = self._held.reaches(bytes_min)
        gather_s = 0.0 if enough else GATHER_S
        first = consumer.poll(0.0 if enough else wait_s)
        self._take_in([first])
        if self._held.room and (first is not None or self._held):
            self._take_in(consumer.consume(self._held.room, gather_s))

    def _store(self, consumer: Any) -> None:
        returned = self._held.confirm()
        if self._auto_commit and (places := returned.keys() & self._assigned):
            consumer.store_offsets(offsets=[TopicPartition(*place, returned[place]) for place in places])

    def keep(self) -> None:
        """Take part in the group between fetches; never fails."""
        try:
            if self.closed or self._consumer is None:
                return
            consumer = self._current()
            self._take_in([consumer.poll(0)])
            if self._paused:
                return
            self._take_in(consumer.consume(max(1, self._held.room), 0))
            if self._held.full:
                self._paused = True
                consumer.pause([TopicPartition(*place) for place in self._assigned])
        except (KafkaException, PenstockError) as error:
            if isinstance(error, KafkaException) and ends_client(error):
                self._stale = True
            log.debug("a member of group %s is not served", self.group, extra={"reason": str(error)})

    def _take_in(self, messages: Sequence[Message | None]) -> None:
        for message in messages:
            if message is None:
                continue
            error = message.error()
            if error is not None:
                self._fail(error)
            elif place_of(message) in self._assigned:
                self._held.add(message)

    def _fail(self, error: KafkaError) -> None:
        if error.code() in _IGNORED or mends(error):
            return
        self._clients.errors.report("member", error)
        if error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL:
            if self._cooperative:  # both were tried
                self._failure = error
            self._cooperative = not self._cooperative
            self._stale = True
        elif error.fatal():
            self._stale = True
        else:
            self._failure = error

    def _commit(self, offsets: Mapping[At, tuple[int, str]] | None) -> None:
        consumer = self._current()
        if offsets is None:
            offsets = {at: (offset, "") for at, offset in self._held.positions.items()}
        if not offsets:
            return
        wanted = [TopicPartition(*place, offset, text) for place, (offset, text) in offsets.items()]
        until = monotonic() + JOIN_S
        while True:
            try:
                for one in consumer.commit(offsets=wanted, asynchronous=False):
                    if one.error is not None:
                        raise engine_error(one.error, one.topic)
                return
            except KafkaException as error:
                if error.args[0].code() not in _REBALANCING:
                    self._raise_refusal(consumer)
                    raise
                if not self._topics:
                    raise PenstockError(
                        ErrorKind.SUBSCRIPTION_BUSY,
                        f"group {self.group} has members, which share its partitions",
                    ) from None
                if monotonic() > until:
                    raise
            self._take_in([consumer.poll(0.05)])

    def _committed(self, places: Sequence[At], timeout_s: float) -> dict[At, tuple[int, str]]:
        return self._committed_of(self._current(), places, timeout_s)

    def _committed_of(
        self, consumer: Any, places: Sequence[At], timeout_s: float
    ) -> dict[At, tuple[int, str]]:
        try:
            found = consumer.committed([TopicPartition(*place) for place in places], timeout=timeout_s)
        except KafkaException:
            self._raise_refusal(consumer)
            raise
        for one in found:
            if one.error is not None:
                raise KafkaException(one.error)
        return {
            (one.topic, one.partition): (one.offset, one.metadata or "") for one in found if one.offset >= 0
        }

    def _raise_refusal(self, consumer: Any) -> None:
        """Raise why the coordinator refuses the group, if it does: calls fail then as if there were no coordinator."""
        until = monotonic() + REFUSAL_S
        while monotonic() < until:
            self._take_in([consumer.poll(0.01)])
            failure = self._failure
            if failure is not None and failure.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(failure)

    def _end(self, running: "Future[Any] | None") -> None:
        if running is not None:
            wait((running,))
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                self._store(consumer)
            except KafkaException as error:
                log.info("offsets of group %s are not committed", self.group, extra={"reason": str(error)})
            consumer.close()
        self._drop(self._assigned)

    # -- rebalances, within calls of the consumer

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if not self._topics:  # it has given up its subscription
            consumer.unassign()
            return
        places = [(one.topic, one.partition) for one in partitions]
        self._assigned |= {place for place in places if place[0] in self._topics}
        reached = self._reached(consumer)
        for one, place in zip(partitions, places, strict=True):
            if place in reached:
                one.offset = reached[place]
                self._held.restore(place, one.offset)
        (consumer.incremental_assign if self._cooperative else consumer.assign)(partitions)
        if self._paused and partitions:
            consumer.pause(partitions)
        else:
            ask_for_leaders(consumer, places)

    def _reached(self, consumer: Consumer) -> dict[At, int]:
        """The positions of partitions that come back in the rebalance that took them: records that were returned and not committed do not
        come again. Others may have committed more."""
        reached = self._held.revoked(self._assigned)
        if not reached:
            return {}
        try:
            committed = self._committed_of(consumer, list(reached), COMMITTED_S)
        except KafkaException:
            return {}
        return {place: max(offset, committed.get(place, (0, ""))[0]) for place, offset in reached.items()}

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._on_revoke(consumer, partitions)
        self._held.revoked(())

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        places = [(one.topic, one.partition) for one in partitions]
        self._assigned -= frozenset(places)
        self._held.revoke(places)

    def _drop(self, places: Collection[At]) -> None:
        """Partitions are this member's no longer."""
        self._assigned -= frozenset(places)
        self._held.forget(places)

"""The lease of slots: this process's membership in the group that shares out the partitions of the slots topic.

The group says which process should have a slot. It may be late or wrong: a process that was stopped believes that it has its slots until it
runs again. Records written under a lease need a separate fence (decision 0094).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.model.errors import PenstockError
from penstock.runtime.tasks import Tasks

from .clients import Clients
from .credentials import Properties
from .errors import engine_error
from .threads import in_thread

log = logging.getLogger(__name__)

SESSION_MS: Final = 6_000  # after which another process gets the slots of one that was killed
STALE_S: Final = SESSION_MS / 2000  # a longer gap in the thread puts the slots in doubt
POLL_S: Final = 0.1  # a rebalance ends the wait
REVOKE_S: Final = 5.0  # how long a revocation waits for `releasing`
RETRY_S: Final = 1.0  # until the member is created again, or doubtful slots are confirmed again

_MEMBER: Final[Properties] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "latest",
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": 1000,
    "socket.nagle.disable": True,
    # The partitions are paused, and have no records.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1,
}
_REFUSED: Final = frozenset(
    (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INVALID_SESSION_TIMEOUT,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.GROUP_MAX_SIZE_REACHED,
    )
)
# It continues while the machine is suspended.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseListener(Protocol):
    """Uses the slots; called on the loop."""

    def gained(self, slots: Sequence[int]) -> None:
        """Slots came."""

    async def releasing(self, slots: Sequence[int]) -> None:
        """Slots are about to be taken away, which waits until this returns, for up to REVOKE_S."""

    def lost(self, slots: Sequence[int]) -> None:
        """Slots were taken away some time ago: others may have them already."""

    async def confirm(self) -> None:
        """The process was stopped for so long that others may have the slots. Returns once it is known which ones it still
        has; called again if it raises PenstockError."""

    def confirmed(self) -> None:
        """After `confirm`: the lease holds the slots again that this process still has."""

    def refused(self, error: PenstockError) -> None:
        """The cluster does not let this process take part."""


class Lease:
    """`held` has the slots by their numbers, with a different value for each time that a slot came."""

    def __init__(
        self,
        clients: Clients,
        topic: str,
        group: str,
        listener: LeaseListener,
        *,
        client_id: str = "penstock",
        clock: Callable[[], float] = lambda: time.clock_gettime(_CLOCK),
    ) -> None:
        self.group = group
        self.held: Mapping[int, int] = {}
        self._clients = clients
        self._topic = topic
        self._listener = listener
        self._own = _MEMBER | {"group.id": group, "client.id": client_id}
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._turn_s = clock()  # when the thread was last seen running
        self._gaps = 0  # gaps that put the slots in doubt
        self._confirmed = 0  # the last gap after which they were confirmed
        self._confirming: asyncio.Task[None] | None = None
        self._times = 0  # how often slots came
        self._ending = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Join the group; slots come by `gained`."""
        self._turn_s = self._clock()
        self._thread = Thread(target=self._run, name="kafka lease", daemon=True)
        self._thread.start()

    def holds(self, slot: int) -> bool:
        """Whether the slot is this process's, as far as it can know: not after it was stopped, until that is confirmed."""
        return slot in self.held and not self.doubtful

    @property
    def doubtful(self) -> bool:
        """Whether the process was stopped, or the thread, and the slots are not confirmed yet."""
        return self._confirmed != self._gaps or self._clock() - self._turn_s > STALE_S

    @property
    def doubts(self) -> int:
        """How often the slots were in doubt, since the start."""
        return self._gaps

    async def close(self) -> None:
        """Release all slots, as `releasing` says, and leave the group."""
        self._ending.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            await in_thread(thread.join)
        await self._tasks.close()

    # -- the thread

    def _run(self) -> None:
        generation = -1
        consumer: Any = None
        while not self._ending.is_set():
            self._note_turn()
            try:
                if generation != self._clients.generation:
                    current = self._clients.generation
                    consumer, generation = self._join(consumer), current
                event = consumer.poll(POLL_S)
            except (KafkaException, PenstockError) as error:
                log.warning("group %s: the lease's client fails: %s", self.group, error)
                self._ending.wait(RETRY_S)
                continue
            failure = None if event is None else event.error()
            if failure is not None:
                self._failed(failure)
        if consumer is not None:
            consumer.close()  # calls `_on_revoke`

    def _join(self, old: Any) -> Any:
        """A member with the current credentials, in place of the old one."""
        try:
            consumer = self._clients.consumer("lease", self._own)
        except PenstockError as error:
            if old is None:
                raise
            log.warning("group %s keeps its old credentials: %s", self.group, error)
            return old
        if old is not None:
            old.close()  # calls `_on_revoke`
        consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        return consumer

    def _note_turn(self) -> None:
        now = self._clock()
        if now - self._turn_s > STALE_S:
            self._gaps += 1  # before the turn is noted: `doubtful` sees one of both
            self._call(self._confirm)
        self._turn_s = now

    def _failed(self, error: KafkaError) -> None:
        self._clients.errors.report("lease", error)
        if error.code() in _REFUSED or error.fatal():
            self._call(self._listener.refused, engine_error(error, f"group {self.group}"))

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        slots = [one.partition for one in partitions]
        consumer.incremental_assign([TopicPartition(self._topic, slot, 0) for slot in slots])
        if slots:
            consumer.pause([TopicPartition(self._topic, slot) for slot in slots])
            self._times += 1
            self.held = {**self.held, **dict.fromkeys(slots, self._times)}
            self._call(self._listener.gained, slots)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        slots = self._drop(partitions)
        released: Future[None] = Future()

        async def release() -> None:
            try:
                await self._listener.releasing(slots)
            finally:
                released.set_result(None)

        if slots and self._call(lambda: self._tasks.spawn(release(), "release slots")):
            self._wait_released(released)
        consumer.incremental_unassign(partitions)

    def _wait_released(self, released: "Future[None]") -> None:
        until = time.monotonic() + REVOKE_S
        while True:
            self._note_turn()  # waiting is not a gap
            try:
                released.result(POLL_S)
            except TimeoutError:
                if time.monotonic() > until:
                    log.warning("group %s: slots are given up before their last saves ended", self.group)
                    return
            else:
                return

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        slots = self._drop(partitions)
        if slots:
            self._call(self._listener.lost, slots)
        consumer.incremental_unassign(partitions)

    def _drop(self, partitions: list[TopicPartition]) -> list[int]:
        slots = [one.partition for one in partitions]
        self.held = {slot: number for slot, number in self.held.items() if slot not in slots}
        return slots

    def _call(self, function: Callable[..., object], *arguments: object) -> bool:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed
            return False
        return True

    # -- doubt, on the loop

    def _confirm(self) -> None:
        if self._confirming is None or self._confirming.done():
            self._confirming = self._tasks.spawn(self._confirm_all(), "confirm slots")

    async def _confirm_all(self) -> None:
        while self._confirmed != self._gaps:
            gaps = self._gaps
            try:
                await self._listener.confirm()
            except PenstockError as error:
                log.info("slots are not confirmed yet: %s", error.message)
                await asyncio.sleep(RETRY_S)
            else:
                self._confirmed = gaps
        self._listener.confirmed()

"""Members of consumer groups: membership, fencing and commits alone, as records come by the readers of logs.

One thread polls all members of this process. librdkafka sends their heartbeats on threads of its own, so that a callback which waits
costs no membership. Measured with librdkafka 2.16: a member takes 640 kB and four threads, a poll without an event 0.5 µs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.model.errors import ErrorKind, PenstockError

from .clients import Clients, CredentialsInUse
from .config import Properties
from .errors import engine_error, error_of
from .groups import Committed
from .record import At
from .threads import DaemonThreads, in_thread

log = logging.getLogger(__name__)

T = TypeVar("T")

POLL_S: Final = 0.1  # between two polls of all members: a rebalance is noticed so late
POLL_BUSY_S: Final = 0.01  # while one of them joins or rebalances
BUSY_S: Final = 3.0  # after its last event
REVOKE_S: Final = 5.0  # that a revocation waits for the loop
COMMITS_MAX: Final = 8  # at once, of all groups

_MEMBER: Final[Properties] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "session.timeout.ms": 10_000,  # then another process takes over what a killed one had
    "heartbeat.interval.ms": 1000,
    "topic.metadata.refresh.interval.ms": 30_000,  # partitions that others added are assigned after this
    # Partitions are paused: nothing is to be fetched.
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1,
}
_REFUSED: Final = frozenset(
    (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_GROUP_ID,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.GROUP_MAX_SIZE_REACHED,
    )
)
# A commit that may be accepted when it is sent again, as long as the partition was not taken away.
_REBALANCING: Final = frozenset(
    (KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID)
)


class Rebalanced(PenstockError):
    """A commit met a rebalance: it counts once the member has its partitions still, and sends it again."""


class Listener(Protocol):
    """Who has the partitions of a member; called on the loop."""

    def assigned(self, places: Sequence[At]) -> None:
        """Partitions came; called without any where a rebalance brought none."""

    def revoking(self, places: Sequence[At]) -> Mapping[At, Committed]:
        """Partitions are about to be taken away: nothing more is done with them. Returns what is committed before."""

    def revoked(self, places: Sequence[At], committed: Mapping[At, Committed]) -> None:
        """Partitions were taken away; what `revoking` returned was committed, or nothing was."""

    def lost(self, places: Sequence[At]) -> None:
        """Partitions were taken away: others may have them already."""

    def refused(self, error: PenstockError) -> None:
        """The cluster does not let this process take part."""


class Member:
    """One member of one group. Commits go on threads, so that nothing waits in the loop."""

    def __init__(
        self,
        make: Callable[[], Consumer],
        on_error: Callable[[KafkaError], None],
        group: str,
        listener: Listener,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        wake: Callable[[], None],
    ) -> None:
        self.group = group
        self.id = ""  # the name that the group's coordinator gave it
        self.busy_until = monotonic() + BUSY_S
        self._make = make
        self._on_error = on_error
        self._consumer = make()
        self._topics: list[str] = []
        self._listener = listener
        self._loop = loop
        self._executor = executor
        self._wake = wake
        # Held while the consumer is used: the client lets one thread after another use it, and a commit that waited for a
        # rebalance would be sent after it.
        self._lock = Lock()
        self._taken = 0  # how often partitions were taken away
        self._closed = False

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Have partitions of these topics, instead of those before; they come by a rebalance."""
        wanted = sorted(topics)

        def subscribed() -> None:
            self._topics = wanted
            self._subscribe()

        await self._run(subscribed)
        self.busy_until = monotonic() + BUSY_S
        self._wake()

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    async def look(self) -> None:
        """Learn of partitions that topics got: they are assigned soon."""
        # Only a list of all topics makes librdkafka compare what it is subscribed to.
        await self._run(lambda: self._consumer.list_topics(timeout=REVOKE_S))
        self.busy_until = monotonic() + BUSY_S
        self._wake()

    async def commit(self, changes: Mapping[At, Committed]) -> None:
        """Commit for partitions; raises `Rebalanced`, TOO_LARGE, and what else the cluster refuses."""
        taken = self._taken

        def sent() -> None:
            if self._taken != taken:
                raise Rebalanced(ErrorKind.UNAVAILABLE, f"group {self.group} is rebalanced")
            self._commit(changes)

        await self._run(sent)

    def _commit(self, changes: Mapping[At, Committed]) -> None:
        offsets = [TopicPartition(*at, one.offset, one.metadata) for at, one in changes.items()]
        for one in self._consumer.commit(offsets=offsets, asynchronous=False):
            if one.error is not None:
                raise KafkaException(one.error)

    async def leave(self) -> None:
        """Give everything back, and leave the group."""
        await in_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._consumer.close()  # calls `_on_revoke`

    async def _run(self, work: Callable[[], Any]) -> Any:
        def alone() -> Any:
            with self._lock:
                if self._closed:
                    raise PenstockError(ErrorKind.UNAVAILABLE, f"this process left group {self.group}")
                return work()

        try:
            return await self._loop.run_in_executor(self._executor, alone)
        except KafkaException as error:
            found = error_of(error)
            if found is not None and found.code() in _REBALANCING:
                raise Rebalanced(ErrorKind.UNAVAILABLE, f"group {self.group} is rebalanced") from None
            raise engine_error(error, f"group {self.group}") from None

    # -- on the thread that polls

    def poll(self) -> None:
        """Have callbacks called that are due."""
        if not self._lock.acquire(timeout=POLL_BUSY_S):
            return  # a commit is on its way: the next time
        try:
            if self._closed:
                return
            event = self._consumer.poll(0)
        finally:
            self._lock.release()
        error = None if event is None else event.error()
        if error is not None:
            self._on_error(error)
            if error.code() in _REFUSED or error.fatal():
                self._call(self._listener.refused, engine_error(error, f"group {self.group}"))
            else:
                log.debug("group %s: %s", self.group, error)

    def renew(self) -> None:
        """Rejoin the group with the current credentials: partitions are revoked and assigned by rebalances. Raises
        PenstockError; the member then stays unchanged."""
        with self._lock:
            if not self._closed:
                made = self._make()
                self._consumer.close()  # calls `_on_revoke`
                self._consumer = made
                if self._topics:
                    self._subscribe()
        self.busy_until = monotonic() + BUSY_S

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = self._event(partitions)
        consumer.incremental_assign([TopicPartition(*place, 0) for place in places])
        consumer.pause([TopicPartition(*place) for place in places])
        self._call(self._listener.assigned, places)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = self._event(partitions)
        self._taken += 1
        committed: Mapping[At, Committed] = {}
        try:
            committed = self._ask(self._listener.revoking, places)
            if committed:
                self._commit(committed)
        except Exception as error:  # another takes over from what was committed last
            committed = {}
            log.warning("group %s gives partitions back without their cursors: %r", self.group, error)
        self._call(self._listener.revoked, places, committed)
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._taken += 1
        self._call(self._listener.lost, self._event(partitions))
        consumer.incremental_unassign(partitions)

    def _event(self, partitions: list[TopicPartition]) -> list[At]:
        self.busy_until = monotonic() + BUSY_S
        self.id = str(self._consumer.memberid() or "")
        return [(one.topic, one.partition) for one in partitions]

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop has ended

    def _ask(self, function: Callable[[Sequence[At]], T], places: Sequence[At]) -> T:
        """What a function returns in the loop."""
        answer: Future[T] = Future()

        def asked() -> None:
            try:
                answer.set_result(function(places))
            except Exception as error:
                answer.set_exception(error)

        self._call(asked)
        return answer.result(REVOKE_S)


class Members:
    """The members of this process, and the thread that polls them; it begins with the first."""

    def __init__(self, clients: Clients, client_id: str) -> None:
        self.clients = clients
        self._client_id = client_id
        self._members: dict[Member, None] = {}
        self._executor = DaemonThreads(COMMITS_MAX, "kafka-commit")
        self._woken = Event()
        self._thread: Thread | None = None
        self._closed = False

    def join(self, group: str, listener: Listener) -> Member:
        """A member of a group, which is in it once it has subscribed to topics."""
        own = _MEMBER | {"group.id": group, "client.id": self._client_id}
        make = partial(self.clients.consumer, "member", own)
        on_error = partial(self.clients.errors.report, "member")
        member = Member(
            make, on_error, group, listener, asyncio.get_running_loop(), self._executor, self._woken.set
        )
        self._members[member] = None
        if self._thread is None:
            self._thread = Thread(target=self._poll, name="kafka-groups", daemon=True)
            self._thread.start()
        return member

    async def leave(self, member: Member) -> None:
        """Let a member leave its group; harmless when repeated."""
        await member.leave()
        self._members.pop(member, None)

    async def close(self) -> None:
        """Let all members leave, and end the thread."""
        await asyncio.gather(*map(self.leave, list(self._members)))
        self._closed = True
        self._woken.set()
        if self._thread is not None:
            await in_thread(self._thread.join)
        self._executor.shutdown(wait=False)

    def _poll(self) -> None:
        credentials = CredentialsInUse(self.clients)
        while not self._closed:
            members = list(self._members)
            if credentials.replaced():
                for member in members:
                    try:
                        member.renew()
                    except PenstockError as error:
                        log.warning("group %s keeps its old certificates: %s", member.group, error)
            for member in members:
                member.poll()
            now = monotonic()
            busy = any(member.busy_until > now for member in members)
            self._woken.wait(POLL_BUSY_S if busy else POLL_S)
            self._woken.clear()

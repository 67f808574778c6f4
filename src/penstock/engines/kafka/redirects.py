"""Clients of Pulsar's protocol are sent to the process that has the partition of their consumer.

A group gives partitions to processes, and a consumer at another one gets nothing. A lookup names a topic and no subscription, so
that it cannot know. So such a consumer is closed, as a broker of Pulsar's does with a topic that moved, and the lookup by which the client
comes again names the process that has the partition. Both are documents, as any process may be asked: where processes are
reached, and whom to send where.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import msgspec

from penstock.broker.cluster import Owner
from penstock.broker.consumer import Consumer
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ClientInfo

from .cluster import KafkaCluster
from .documents import Documents
from .driver.record import At
from .group import Group
from .naming import Naming
from .subscription import GroupSubscription
from .waits import Waits

log = logging.getLogger(__name__)

PROCESSES: Final = "processes"
REDIRECTS: Final = "redirects"
WAITED_S: Final = 3.0  # without its partition, until a client is sent elsewhere; doubled each time
SPREAD: Final = 2.0  # at most so much longer, as two processes would exchange their clients
WAITED_MAX_S: Final = 300.0
FORGOTTEN_S: Final = 600.0  # after the last time
COUNTS_S: Final = 10.0  # for so long lookups of the client name that process
LOOK_S: Final = 1.0  # between two looks who has the partitions of a group
NOBODY_S: Final = 30.0  # where nobody has them to whom clients can be sent
KEPT_MS: Final = (
    3_600_000  # how often it is written again where a process is reached; after twice as long it is gone
)


class _Process(msgspec.Struct, frozen=True):
    owner: Owner
    created_ms: int


class _Redirect(msgspec.Struct, frozen=True):
    owner: Owner
    created_ms: int


class Groups(Protocol):
    """The groups of this process."""

    @property
    def all(self) -> list[Group]: ...


class Redirects:
    """`cluster.own` is where this process alone is reached; without an address others cannot send clients here."""

    def __init__(
        self,
        cluster: KafkaCluster,
        documents: Documents,
        naming: Naming,
        client_id: str,
        groups: Groups,
        leave: Callable[[Consumer], Coroutine[Any, Any, None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._cluster = cluster
        self._naming = naming
        cluster.sent = self.owner
        self._documents = documents
        self._client_id = client_id
        self._groups = groups
        self._leave = leave
        self._spawn = spawn
        self._processes: dict[str, Owner] = {}
        self._known: dict[str, tuple[Owner, float]] = {}  # whom to send where, and since when
        self._written: dict[str, float] = {}  # those of this process, and when they go
        self._announced_ms = 0
        self._waiting: dict[GroupSubscription, float] = {}  # since when
        self._waits = Waits()
        self._sent: dict[tuple[str, At, str], tuple[int, float]] = {}  # how often, and when last
        self._next_look: dict[str, float] = {}
        self._wait_s = random.Random().uniform(WAITED_S, SPREAD * WAITED_S)  # no secret

    async def load(self) -> None:
        """Read where processes are reached, and hear of changes from now on."""
        gone: list[tuple[str, str]] = []
        now = _now_ms()

        def process(key: str, document: bytes | None) -> None:
            if now - msgspec.json.decode(document or b"", type=_Process).created_ms > 2 * KEPT_MS:
                gone.append((PROCESSES, key))
            else:
                self._process(key, document)

        def redirect(key: str, document: bytes | None) -> None:
            if now - msgspec.json.decode(document or b"", type=_Redirect).created_ms > KEPT_MS:
                gone.append((REDIRECTS, key))

        read_all = self._documents.reader.read_all
        read_all(PROCESSES, await self._documents.load_meta(PROCESSES), process)
        read_all(REDIRECTS, await self._documents.load_meta(REDIRECTS), redirect)
        self._documents.listeners[PROCESSES].append(self._process)
        self._documents.listeners[REDIRECTS].append(self._redirect)
        if gone:
            self._spawn(self._remove(gone), "remove addresses of processes that are gone")

    def _process(self, key: str, document: bytes | None) -> None:
        if document is None:
            self._processes.pop(key, None)
        else:
            self._processes[key] = msgspec.json.decode(document, type=_Process).owner

    def _redirect(self, key: str, document: bytes | None) -> None:
        if document is None:
            self._known.pop(key, None)
        else:
            self._known[key] = msgspec.json.decode(document, type=_Redirect).owner, _now()

    def owner(self, name: TopicName, client: ClientInfo) -> Owner:
        """Where a client finds a topic or partition; without an address where that is here."""
        place = self._naming.kafka_name(name.base), max(0, name.partition)
        owner, since = self._known.get(_key(place, client.address), (self._cluster.own, 0.0))
        return Owner("") if owner == self._cluster.own or _now() - since > COUNTS_S else owner

    # -- those that wait

    def look(self) -> None:
        """Called each second: send clients elsewhere that get nothing here, and tell of all that do not."""
        now = _now()
        self._waits.look(self._groups.all, now)
        self._forget(now)
        waiting: dict[GroupSubscription, float] = {}
        for group in self._groups.all:
            self._announce(group)
            mine = [source for source in group.sources.values() if _gets_nothing(source)]
            waiting |= {source: self._waiting.get(source, now) for source in mine}
            if mine and now >= self._next_look.get(group.name, 0.0):
                due = [source for source in mine if now - waiting[source] >= self._wait_s]
                if due:
                    self._next_look[group.name] = now + LOOK_S
                    self._spawn(
                        self._send(group, due), f"find the process that has partitions of {group.name}"
                    )
        self._waiting = waiting

    def _forget(self, now: float) -> None:
        self._next_look = {group: at for group, at in self._next_look.items() if at > now}
        self._sent = {key: one for key, one in self._sent.items() if now - one[1] <= FORGOTTEN_S}
        over = [key for key, until in self._written.items() if now > until]
        if over:
            for key in over:
                del self._written[key]
            self._spawn(self._remove([(REDIRECTS, key) for key in over]), "forget where clients were sent")

    def _announce(self, group: Group) -> None:
        """Let others know where this process is reached, once it has partitions."""
        now = _now_ms()
        if self._cluster.own == Owner("") or not group.assigned_at or now - self._announced_ms < KEPT_MS:
            return
        self._announced_ms = now
        row = (PROCESSES, self._client_id, msgspec.json.encode(_Process(self._cluster.own, now)))
        self._spawn(self._tell([row]), "say where this process is reached")

    async def _send(self, group: Group, due: Iterable[GroupSubscription]) -> None:
        try:
            members = await group.elsewhere()
        except PenstockError as error:
            log.debug("%s: %s", group.name, error.message)
            return
        known = False
        for source in due:
            to = next((one.client_id for one in members if source.at in one.assigned), "")
            owner = self._processes.get(to)
            if owner is not None and owner != self._cluster.own:
                known = True
                for consumer in _clients(source):
                    await self._send_one(source, consumer, owner)
        if not known:
            self._next_look[group.name] = _now() + NOBODY_S

    async def _send_one(self, source: GroupSubscription, consumer: Receiver, owner: Owner) -> None:
        address, now = consumer.options.client.address, _now()
        which = address.rpartition(":")[0], source.at, source.name
        count, _ = self._sent.get(which, (0, 0.0))
        waited = now - self._waiting.get(source, now)
        if waited < min(self._wait_s * 2**count, WAITED_MAX_S):
            return
        key = _key(source.at, address)
        self._written[key] = now + COUNTS_S
        row = (REDIRECTS, key, msgspec.json.encode(_Redirect(owner, _now_ms())))
        await self._tell([row])
        if key in self._known and _gets_nothing(source) and not consumer.closed:
            self._sent[which] = count + 1, now
            await self._leave(consumer)  # type: ignore[arg-type]  # consumers of groups are whole ones

    # -- documents

    async def _tell(self, rows: list[tuple[str, str, bytes | None]]) -> None:
        try:
            await self._documents.save_meta(rows)
        except PenstockError as error:
            log.info("other processes do not hear of this: %s", error.message)

    async def _remove(self, keys: Iterable[tuple[str, str]]) -> None:
        await self._tell([(kind, key, None) for kind, key in keys])

    async def close(self) -> None:
        """Nobody is sent here any more."""
        keys = [(REDIRECTS, key) for key in self._written]
        if self._announced_ms:
            keys.append((PROCESSES, self._client_id))
        if keys:
            await self._remove(keys)


def _clients(source: GroupSubscription) -> list[Receiver]:
    return [one for one in source.consumers if one.options.redirected]


def _gets_nothing(source: GroupSubscription) -> bool:
    return source.waiting and not source.taking and bool(_clients(source))


def _key(at: At, address: str) -> str:
    return f"{address.rpartition(':')[0]}\n{at[0]}-{at[1]}"


def _now() -> float:
    return asyncio.get_running_loop().time()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

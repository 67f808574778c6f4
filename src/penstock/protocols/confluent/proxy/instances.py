"""Consumer instances: members of groups that are kept between requests, by the role that created them, their group and name."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from penstock.broker.acting import acting_key
from penstock.broker.groups import GroupMember
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.remote_instances import RemoteInstances
from penstock.runtime.clock import Timers

from .codes import INSTANCE_EXISTS, INSTANCE_NOT_FOUND
from .formats import Format

NAMED: Final = "rest-consumer-"  # how names begin that clients do not choose


class Key(NamedTuple):
    """What identifies an instance. The role is None if authentication is off."""

    role: str | None
    group: str
    name: str


class Way(Enum):
    """How an instance got its partitions: the ways exclude one another."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    ASSIGNED = "assigned"


class Instance(msgspec.Struct, eq=False):
    """A member of a group, and what its creator asked for. Its requests come one after the other (`turn`)."""

    key: Key
    member: GroupMember
    format: Format
    wait_ms: int  # of a fetch, at most
    bytes_min: int  # that a fetch waits for
    expires_ms: int
    way: Way = Way.NONE
    acting: str = msgspec.field(default_factory=acting_key)
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    requests: int = 0  # that use it now; it does not expire meanwhile
    wake: Callable[[], None] | None = None  # ends the wait of the fetch that has the turn


class Instances:
    """The instances of this process. One without requests is closed after `limits.consumer_timeout_ms`."""

    def __init__(self, context: ServerContext, remote: RemoteInstances) -> None:
        self._context = context
        self._remote = remote
        self._instances: dict[Key, Instance] = {}
        self._making: set[Key] = set()
        self._timers = Timers(context.broker.clock, self._has)

    def new_name(self) -> str:
        """A name, by which other processes find the instance."""
        return NAMED + self._remote.new_id()

    async def created_elsewhere(self, key: Key, exchange: Exchange, body: bytes) -> bool:
        """Whether a name is that of another process, which answered the request for a new instance: a client may use a name again that it
        once got."""
        try:
            return await self._remote.answered(id_of(key), exchange, body=body)
        except PenstockError as error:
            if error.kind is not ErrorKind.CONSUMER_NOT_FOUND:
                raise
            return False  # the process has ended

    @asynccontextmanager
    async def making(self, key: Key, *, chosen: bool) -> AsyncIterator[None]:
        """Reserve the name of an instance that is being made; `chosen`: by the client. Raises ConfluentError for a name that is in use,
        TOO_MANY_REQUESTS."""
        most = self._context.limits.max_rest_consumers
        if len(self._instances) + len(self._making) >= most:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"there are {most} consumer instances, which is the most"
            )
        if key in self._making or self._find(key) is not None:
            raise _exists(key)
        self._making.add(key)
        try:
            if chosen and await self._remote.holder(path_of(key)) is not None:
                raise _exists(key)
            yield
        finally:
            self._making.discard(key)

    def add(self, key: Key, member: GroupMember, format: Format, wait_ms: int, bytes_min: int) -> None:
        """Keep a new instance."""
        made = Instance(key, member, format, wait_ms, bytes_min, self._due())
        self._instances[key] = made
        self._timers.at(made.expires_ms, self._expire, made)

    def _has(self, instance: Instance) -> bool:
        return self._instances.get(instance.key) is instance

    def _due(self) -> int:
        return self._context.broker.clock.monotonic_ms() + self._context.limits.consumer_timeout_ms

    def _find(self, key: Key) -> Instance | None:
        found = self._instances.get(key)
        if found is not None and found.member.closed:
            del self._instances[key]
            return None
        return found

    def check(self, key: Key) -> None:
        """Raise ConfluentError unless there is such an instance."""
        if self._find(key) is None:
            raise _gone()

    def get(self, key: Key) -> Instance:
        """An instance, for a request of a client: it lives on. Raises ConfluentError; FORBIDDEN if it reaches the cluster with another
        token of the role."""
        found = self._find(key)
        if found is None:
            raise _gone()
        if found.acting != acting_key():
            raise PenstockError(
                ErrorKind.FORBIDDEN,
                "the consumer instance was created with another token, which it uses in the cluster: create another instance",
            )
        found.expires_ms = self._due()
        return found

    @asynccontextmanager
    async def turn(self, instance: Instance) -> AsyncIterator[GroupMember]:
        """Use the member of an instance, which does not expire meanwhile. A fetch that waits ends."""
        instance.requests += 1
        if instance.wake is not None:
            instance.wake()
        try:
            async with instance.turn:
                if instance.member.closed:
                    raise instance.member.close_reason or _gone()
                yield instance.member
        finally:
            instance.requests -= 1
            instance.expires_ms = self._due()

    async def remove(self, instance: Instance) -> None:
        """Have a member leave its group."""
        if self._has(instance):
            del self._instances[instance.key]
        if instance.wake is not None:
            instance.wake()
        async with instance.turn:
            await instance.member.close()

    def _expire(self, instance: Instance) -> None:
        if not self._has(instance):
            return
        if instance.requests:
            instance.expires_ms = self._due()
        if instance.expires_ms > self._context.broker.clock.monotonic_ms():
            self._timers.at(instance.expires_ms, self._expire, instance)
            return
        self._context.broker.tasks.spawn(
            self.remove(instance), f"expire consumer instance {instance.key.name}"
        )

    async def close(self) -> None:
        """Close every instance."""
        self._timers.close()
        await asyncio.gather(*map(self.remove, list(self._instances.values())), return_exceptions=True)


def id_of(key: Key) -> str:
    """The id in a name that clients do not choose: it names the process."""
    return key.name.removeprefix(NAMED)


def path_of(key: Key) -> str:
    """Where other processes ask whether this one has an instance."""
    query = "" if key.role is None else "?" + urlencode({"role": key.role})
    return f"/rest/consumers/{quote(key.group, safe='')}/instances/{quote(key.name, safe='')}{query}"


def _exists(key: Key) -> ConfluentError:
    return ConfluentError(
        INSTANCE_EXISTS,
        f"Consumer instance {key.name[:200]} with the specified name already exists in the group {key.group[:200]}.",
    )


def _gone() -> ConfluentError:
    return ConfluentError(INSTANCE_NOT_FOUND, "Consumer instance not found.")

"""Consumer instances, which keep a subscription's consumer between two requests, and their fetches (PIP-64, Consume
messages)."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from penstock.broker.acting import acting_key
from penstock.broker.broker import Broker
from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.model.schema import SchemaInfo
from penstock.protocols.caller import Caller
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.limits import Limits
from penstock.protocols.remote_instances import RemoteInstances
from penstock.protocols.values import Form
from penstock.runtime.clock import Timers

from .encoding import Encoding
from .parts import Bounds, Decoding, Part
from .prepared import FETCH_MESSAGES_MIN, Prepared, Preparing

_QUICK_TURNS: Final = 4  # what is in memory comes within so many turns of the loop
HELD_MS: Final = 1000  # until an instance that has expired and is in use is checked again
_STORE_S: Final = 0.0005  # then the store is asked: about the time of one read


class Instance(msgspec.Struct, eq=False):
    """A named consumer, owned by the role that created it. `turn` admits one fetch at a time.

    `acting`: the key of the caller for which it reaches the cluster; empty if the cluster does not distinguish callers.
    """

    id: str
    topic: TopicName
    consumer: Consumer
    reader: SchemaInfo | None
    timeout_ms: int
    expires_ms: int
    acting: str = msgspec.field(default_factory=acting_key)
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    requests: int = 0  # that use it now; it is not removed meanwhile
    named: int = 0  # those of them that name it; it does not expire meanwhile
    prepared: Prepared | None = None  # for its next fetch


class Instances:
    """Every instance of this server. One without requests is removed when its time is over."""

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        preparing: Preparing,
        remote: RemoteInstances,
    ) -> None:
        """`remote` gives new instances their ids, by which other processes find this one."""
        self._broker = broker
        self._remote = remote
        self._preparing = preparing
        self._limits = limits
        self._instances: dict[str, Instance] = {}
        # By their ids: a deadline may be years away, and its instance long removed.
        self._timers = Timers(broker.clock, self._instances.__contains__)

    async def create(
        self,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        reader: SchemaInfo | None,
        timeout_ms: int,
        caller: Caller,
    ) -> Instance:
        """A new instance; raises what `Broker.subscribe` does, and TOO_MANY_REQUESTS."""
        most = self._limits.max_rest_consumers
        if len(self._instances) >= most:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"there are {most} consumer instances, which is the most"
            )
        if own := self._remote.properties():
            options = msgspec.structs.replace(options, properties={**options.properties, **own})
        consumer = await self._broker.subscribe(
            [topic], subscription, options, unique_name=bool(options.name)
        )
        caller.set_owner(consumer)
        expires_ms = self._broker.clock.monotonic_ms() + timeout_ms
        made = Instance(self._remote.new_id(), topic, consumer, reader, timeout_ms, expires_ms)
        self._instances[made.id] = made
        self._timers.at(made.expires_ms, self._expire, made.id)
        return made

    def find(self, id: str, topic: TopicName, subscription: str, role: str | None = None) -> Instance | None:
        """The role's instance with that id in that subscription; restarts its time-out. Raises FORBIDDEN if it reaches the
        cluster with another token of the role."""
        found = self._instances.get(id)
        if found is None or found.topic != topic or found.consumer.subscription != subscription:
            return None
        if found.consumer.owner != role:
            return None
        if found.acting != acting_key():
            raise PenstockError(
                ErrorKind.FORBIDDEN,
                f"consumer instance {id[:80]!r} was created with another token, which it uses in the cluster: create another instance",
            )
        return found if self._restart(found) else None

    def _restart(self, instance: Instance) -> bool:
        """Restart its time-out; False if its consumer is closed, which ends the instance."""
        if instance.consumer.closed:
            self._instances.pop(instance.id, None)
            self._end_prepared(instance)
            return False
        instance.expires_ms = self._broker.clock.monotonic_ms() + instance.timeout_ms
        return True

    def get(self, id: str, topic: TopicName, subscription: str, role: str | None = None) -> Instance:
        """As `find`; also raises CONSUMER_NOT_FOUND, or the reason why its subscription ended."""
        known = self._instances.get(id)
        found = self.find(id, topic, subscription, role)
        if found is None:
            if known is not None and known.consumer.close_reason is not None and known.topic == topic:
                raise known.consumer.close_reason
            raise PenstockError(
                ErrorKind.CONSUMER_NOT_FOUND,
                f"subscription {subscription} has no consumer instance {id[:80]!r}; it may have expired",
            )
        return found

    @contextmanager
    def hold(self, instances: Sequence[Instance], *, named: bool) -> Iterator[None]:
        """Keep the instances that a request uses. One that it `named` does not expire, and its time-out restarts at the end; others that
        expire are removed within HELD_MS after their last request."""
        for one in instances:
            one.requests += 1
            one.named += named
        try:
            yield
        finally:
            for one in instances:
                one.requests -= 1
                one.named -= named
                if named:
                    self._restart(one)

    def of(self, topic: TopicName, subscription: str, role: str | None) -> list[Instance]:
        """The role's instances of a subscription that have not expired."""
        now = self._broker.clock.monotonic_ms()
        return [
            one
            for one in self._instances.values()
            if one.consumer.subscription == subscription
            and one.topic == topic
            and one.consumer.owner == role
            and one.acting == acting_key()
            and not one.consumer.closed
            and (one.named or one.expires_ms > now)
        ]

    def prepare(self, instance: Instance, encoding: Encoding, prepared: Prepared) -> None:
        """Begin to write what its next fetch may bring."""
        self._end_prepared(instance)
        if not instance.consumer.closed:
            instance.prepared = prepared
            self._preparing.begin(prepared, instance.consumer, encoding)

    def take_prepared(self, instance: Instance, form: Form) -> Prepared | None:
        """What is written by now, if it is of this form; no more is."""
        found = instance.prepared
        self._end_prepared(instance)
        return found if found is not None and found.form == form else None

    def _end_prepared(self, instance: Instance) -> None:
        if instance.prepared is not None:
            self._preparing.end(instance.prepared)
            instance.prepared = None

    async def remove(self, instance: Instance) -> None:
        """Let a consumer leave its subscription; what it had goes to the others."""
        self._instances.pop(instance.id, None)
        self._end_prepared(instance)
        await instance.consumer.leave()

    def _expire(self, id: str) -> None:
        instance = self._instances.get(id)
        if instance is None:
            return
        now = self._broker.clock.monotonic_ms()
        if instance.named and not instance.consumer.closed:
            instance.expires_ms = now + instance.timeout_ms
        due_ms = instance.expires_ms
        if instance.requests and not instance.consumer.closed:
            due_ms = max(due_ms, now + HELD_MS)
        if due_ms > now:
            self._timers.at(due_ms, self._expire, id)
            return
        self._broker.tasks.spawn(self.remove(instance), f"expire consumer {instance.consumer.name}")

    async def close(self) -> None:
        """Close every consumer."""
        self._timers.close()
        await asyncio.gather(*map(self.remove, list(self._instances.values())))


class Fetch:
    """One fetch: permits are given for it alone, so that nothing waits with a consumer that does not come back."""

    def __init__(self, decoding: Decoding, consumer: Consumer, bounds: Bounds) -> None:
        self.consumer = consumer
        self.parts: list[Part] = []
        self._decoding = decoding
        self._bounds = bounds
        self._handed: list[Delivery] = []

    @property
    def may_go_on(self) -> bool:
        """Whether it brought all that it asked for, and that is worth preparing the next for."""
        return self._bounds.full and self._bounds.count >= FETCH_MESSAGES_MIN

    async def run(self, poll: LongPoll, wait_ms: int) -> None:
        """Collect what there is, waiting for the first message alone."""
        consumer = self.consumer
        consumer.flow(self._bounds.messages_left)
        try:
            await self._arrived()
            if len(consumer.outbox) or await poll.until(consumer.ready(), wait_ms):
                await self._gather()
        except BaseException:
            self.give_back()
            raise
        finally:
            consumer.stop_flow()
            consumer.give_back(consumer.take())

    async def _arrived(self) -> None:
        """Let what is there already come: a subscription needs turns of the loop, and perhaps its store."""
        turns = 0
        while not self.consumer.outbox and not all(source.idle for source in self.consumer.attached):
            await asyncio.sleep(0 if turns < _QUICK_TURNS else _STORE_S)
            turns += 1

    async def _gather(self) -> None:
        """Take what came, as long as more of it is there."""
        while self.consumer.outbox:
            for delivery in self.consumer.take():
                self._add(delivery)
            if self._bounds.full:
                return
            await self._arrived()

    def _add(self, delivery: Delivery) -> None:
        """Take the messages that are within the bounds; the rest of the delivery goes back."""
        part = self._decoding.part(delivery.topic, delivery.entry, delivery.mask, delivery.redeliveries)
        part.cut(self._bounds.take(part.sizes))
        mask = part.mask
        if mask:
            self.parts.append(part)
        if mask == delivery.mask:
            self._handed.append(delivery)
            return
        if mask:
            self._handed.append(msgspec.structs.replace(delivery, mask=mask))
        self.consumer.give_back([msgspec.structs.replace(delivery, mask=delivery.mask & ~mask)])

    def give_back(self) -> None:
        """No client got it: let it be delivered again."""
        self.consumer.give_back(self._handed)
        self._handed.clear()
        self.parts.clear()

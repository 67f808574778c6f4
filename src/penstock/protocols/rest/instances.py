"""Consumer instances: what keeps a subscription's consumer between two requests (PIP-64, Consume messages)."""

import asyncio
import secrets

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.runtime.timers import Timers
from penstock.engines.embedded.subscription import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.model.schema import SchemaInfo
from penstock.protocols.limits import Limits


class Instance:
    """A consumer with a name to ask for it, of the role that made it. `turn` lets one fetch at a time have it."""

    def __init__(
        self, id: str, topic: TopicName, consumer: Consumer, reader: SchemaInfo | None, timeout_ms: int
    ) -> None:
        self.id = id
        self.topic = topic
        self.consumer = consumer
        self.reader = reader
        self.timeout_ms = timeout_ms
        self.turn = asyncio.Lock()
        self.asking = 0  # requests that are at it now; it cannot expire under them
        self.expires_ms = 0


class Instances:
    """Every instance of this server. One that nobody asks for goes when its time is over."""

    def __init__(self, broker: Broker, limits: Limits) -> None:
        self._broker = broker
        self._limits = limits
        self._instances: dict[str, Instance] = {}
        self._timers = Timers(broker.clock)

    async def create(
        self,
        topic: TopicName,
        subscription: str,
        options: ConsumerOptions,
        reader: SchemaInfo | None,
        timeout_ms: int,
        role: str | None = None,
        proxy: str | None = None,
    ) -> Instance:
        """A new instance; raises what `Broker.subscribe` does, and TOO_MANY_REQUESTS."""
        most = self._limits.max_rest_consumers
        if len(self._instances) >= most:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"there are {most} consumer instances, which is the most"
            )
        consumer = await self._broker.subscribe(
            [topic], subscription, options, unique_name=bool(options.name)
        )
        consumer.owner, consumer.proxy = role, proxy
        made = Instance(secrets.token_urlsafe(12), topic, consumer, reader, timeout_ms)
        self._instances[made.id] = made
        made.expires_ms = self._broker.clock.monotonic_ms() + timeout_ms
        self._timers.at(made.expires_ms, self._expire, made)
        return made

    def find(self, id: str, topic: TopicName, subscription: str, role: str | None = None) -> Instance | None:
        """The role's instance of that id in that subscription, its time beginning anew."""
        found = self._instances.get(id)
        if found is None or found.topic != topic or found.consumer.subscription != subscription:
            return None
        if found.consumer.owner != role:
            return None
        if found.consumer.closed:
            self._instances.pop(id, None)
            return None
        found.expires_ms = self._broker.clock.monotonic_ms() + found.timeout_ms
        return found

    def get(self, id: str, topic: TopicName, subscription: str, role: str | None = None) -> Instance:
        """As `find`; raises CONSUMER_NOT_FOUND, or why its subscription is no more."""
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

    async def remove(self, instance: Instance) -> None:
        """Let a consumer leave its subscription; what it had goes to the others."""
        self._instances.pop(instance.id, None)
        await self._broker.leave(instance.consumer)

    def _expire(self, instance: Instance) -> None:
        if self._instances.get(instance.id) is not instance:
            return
        now = self._broker.clock.monotonic_ms()
        if instance.asking and not instance.consumer.closed:
            instance.expires_ms = now + instance.timeout_ms
        if instance.expires_ms > now:
            self._timers.at(instance.expires_ms, self._expire, instance)
            return
        self._broker.tasks.spawn(self.remove(instance), f"expire consumer {instance.consumer.name}")

    async def close(self) -> None:
        """Let every consumer go."""
        self._timers.close()
        for instance in list(self._instances.values()):
            await self.remove(instance)

    def __len__(self) -> int:
        return len(self._instances)

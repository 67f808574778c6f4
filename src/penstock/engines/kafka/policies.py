"""Namespaces and policies before Kafka: kept as documents; what Kafka does itself is the configuration of its topics.

Delayed messages that the cluster would delete before their delivery time are refused by the retention times of topics.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from penstock.broker.topic import MetaStore
from penstock.engines.registry.namespaces import ALWAYS, KIND, Namespaces
from penstock.engines.registry.policies import Policies
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import NamespacePolicies, Quota, Retention, TopicPolicies
from penstock.model.topic_config import (
    CLEANUP,
    RETENTION_BYTES,
    RETENTION_MS,
    cleanup,
    retention_bytes,
    retention_ms,
)
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .naming import Naming

log = logging.getLogger(__name__)

SHOWN_MAX: Final = 20  # pairs of namespaces in one log line

# Policies that are not enforced here, and their names for the user.
_REFUSED: Final = {
    "message_ttl_s": "expiry of messages",
    "size_quota": "backlog quotas",
    "age_quota": "backlog quotas",
    "deduplication": "deduplication",
}
TOPICS_MAX: Final = 10_000  # cached
REFUSED_MS: Final = 1_000  # the most age of a retention time that refuses a message: it may have been raised
UNBOUNDED: Final = -1


def check_kept(policies: TopicPolicies) -> None:
    """Raise NOT_SUPPORTED for a policy with a bound that is not enforced before Kafka."""
    for field, what in _REFUSED.items():
        if _bounds(getattr(policies, field)):
            raise PenstockError(ErrorKind.NOT_SUPPORTED, f"the engine behind this server has no {what}")


def _bounds(value: object) -> bool:
    if isinstance(value, Quota):
        return value.limit >= 0
    return bool(value)


def configs_of(policies: TopicPolicies) -> dict[str, str | None]:
    """Kafka's configuration for a topic's policies; None: its brokers decide."""
    kept, compaction = policies.retention, policies.compaction_threshold
    return {
        RETENTION_MS: None if kept is None else retention_ms(kept),
        RETENTION_BYTES: None if kept is None else retention_bytes(kept),
        CLEANUP: None if compaction is None else cleanup(compaction, kept),
    }


def retention_of(configs: Mapping[str, str]) -> Retention:
    """The retention that a topic's configuration means, in whole minutes and MiB; -1 is without bound."""
    ms, size = int(configs.get(RETENTION_MS, -1)), int(configs.get(RETENTION_BYTES, -1))
    return Retention(-(-ms // 60_000) if ms >= 0 else -1, -(-size >> 20) if size >= 0 else -1)


def decided(own: TopicPolicies, namespace: TopicPolicies) -> TopicPolicies:
    """What a topic decides, and what it does not from its namespace."""
    chosen = {
        field: value
        for field in TopicPolicies.__struct_fields__
        if (value := getattr(own, field)) is not None or (value := getattr(namespace, field)) is not None
    }
    return TopicPolicies(**chosen)


class KafkaNamespaces(Namespaces):
    """`broker.Namespaces`. `apply` sets the configuration of a namespace's topics after its policies changed.

    A new namespace is refused if it could share topics with another. If processes create two such namespaces at the same
    time, the one whose document comes first in the topic of documents counts: every process ignores the second document,
    and the process that wrote it deletes it.
    """

    apply: Callable[[NamespaceName], Awaitable[None]]

    def __init__(
        self, store: MetaStore, naming: Naming, *, auto_create: bool, reader: DocumentReader | None = None
    ) -> None:
        always = (*dict.fromkeys((*ALWAYS, *naming.named)),)
        super().__init__(store, auto_create=auto_create, always=always, reader=reader)
        self._naming = naming
        # Their documents came after those of namespaces that they conflict with.
        self._refused: set[NamespaceName] = set()

    async def load(self) -> None:
        """Read the stored namespaces; logs those that share topics, as older versions allowed."""
        await super().load()
        shared = self._naming.conflicts(self.all())
        if shared:
            log.warning(
                "namespaces share topics: their prefixes in Kafka overlap",
                extra={
                    "namespaces": [f"{one} {other}" for one, other in shared[:SHOWN_MAX]],
                    "pairs": len(shared),
                },
            )

    def learned(self, key: str, document: bytes | None) -> None:
        name = NamespaceName.parse(key)
        if document is None:
            self._refused.discard(name)
        elif not self.exists(name):
            try:
                self._naming.check_new(name, self.all())
            except PenstockError as error:
                self._refused.add(name)
                log.warning("a namespace is ignored", extra={"namespace": key, "reason": error.message})
                return
        super().learned(key, document)

    async def _save(self, name: NamespaceName, documents: list[tuple[str, str, bytes | None]]) -> None:
        if not self.exists(name):
            self._naming.check_new(name, self.all())
        await super()._save(name, documents)
        if name in self._refused:  # another process wrote first
            await self._store.save_meta([(KIND, str(name), None)])
            self._naming.check_new(name, self.all())
            raise PenstockError(ErrorKind.UNAVAILABLE, f"namespace {name} was not created: try again")

    async def update(self, name: NamespaceName, policies: NamespacePolicies) -> None:
        check_kept(policies)
        before = self.find(name)
        await super().update(name, policies)
        if before is not None and configs_of(before) != configs_of(policies):
            await self.apply(name)


class KafkaPolicies(Policies):
    """`broker.Policies`. `apply` sets the configuration of other policies in Kafka."""

    apply: Callable[[TopicName], Awaitable[None]]

    def learn_defaults(self, configs: Mapping[str, str]) -> None:
        """What Kafka's brokers keep of a topic that no policy says anything of, by the configuration of such a topic."""
        if RETENTION_MS in configs:  # else it may not be seen
            self._defaults = msgspec.structs.replace(self._defaults, retention=retention_of(configs))

    def configs(self, name: TopicName) -> dict[str, str]:
        """Kafka's configuration for a new topic's policies."""
        told = configs_of(self._decided(name))
        return {key: value for key, value in told.items() if value is not None}

    def all_configs(self, name: TopicName) -> dict[str, str | None]:
        """The same when they change; None: Kafka's brokers decide."""
        return configs_of(self._decided(name))

    def _decided(self, name: TopicName) -> TopicPolicies:
        return decided(self.of_topic(name), self.of_namespace(name.namespace_name))

    async def change_topic(self, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies]) -> None:
        def checked(policies: TopicPolicies) -> TopicPolicies:
            changed = change(policies)
            check_kept(changed)
            return changed

        before = configs_of(self._decided(name))
        await super().change_topic(name, checked)
        if configs_of(self._decided(name)) != before:
            await self.apply(name)


class _Known(msgspec.Struct, frozen=True):
    at_ms: int
    retention_ms: int


class RetentionTimes:
    """Retention time by Kafka topic. `configs` fetches a topic's configuration, which is cached for `learned_ms`."""

    def __init__(
        self, configs: Callable[[str], Awaitable[Mapping[str, str]]], clock: Clock, learned_ms: int
    ) -> None:
        self._configs = configs
        self._clock = clock
        self._learned_ms = learned_ms
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._locks: Locks[str] = Locks()

    async def check_delay(self, topic: str, deliver_at: int, publish_time: int) -> None:
        """Raise BAD_PARAMETER unless the topic keeps a record of `publish_time` until `deliver_at` (ms, both).

        Accepts any delay if this server may not see the topic's configuration. Deletion by size (`retention.bytes`) cannot
        be predicted and is not checked. Raises UNAVAILABLE.
        """
        wait_ms = deliver_at - publish_time
        if wait_ms <= 0 or self._keeps(await self._learn(topic, self._learned_ms), wait_ms):
            return
        kept = await self._learn(topic, REFUSED_MS)
        if not self._keeps(kept, wait_ms):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"a delay of {wait_ms} ms is longer than topic {topic} keeps messages: {kept} ms (retention.ms)",
            )

    def _keeps(self, retention_ms: int, wait_ms: int) -> bool:
        return retention_ms == UNBOUNDED or wait_ms <= retention_ms

    async def _learn(self, topic: str, learned_ms: int) -> int:
        """A topic's retention (ms), at most `learned_ms` old."""
        found = self._fresh(topic, learned_ms)
        if found is not None:
            return found
        async with self._locks.hold(topic):
            found = self._fresh(topic, learned_ms)
            if found is None:
                found = await self._ask(topic)
                self._known[topic] = _Known(self._clock.monotonic_ms(), found)
                self._known.move_to_end(topic)
                if len(self._known) > TOPICS_MAX:
                    self._known.popitem(last=False)
        return found

    def _fresh(self, topic: str, learned_ms: int) -> int | None:
        known = self._known.get(topic)
        fresh = known is not None and self._clock.monotonic_ms() - known.at_ms < learned_ms
        return known.retention_ms if known is not None and fresh else None

    async def _ask(self, topic: str) -> int:
        try:
            configs = await self._configs(topic)
        except PenstockError as error:
            if error.kind is not ErrorKind.FORBIDDEN:
                raise
            return UNBOUNDED
        if "delete" not in configs.get(CLEANUP, "delete"):
            return UNBOUNDED
        return max(UNBOUNDED, int(configs.get(RETENTION_MS, UNBOUNDED)))

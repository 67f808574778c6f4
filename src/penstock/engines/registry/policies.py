"""What holds for a topic: its own policies before its namespace's before the server's."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.topic import MetaStore
from penstock.engines.shared.documents import DocumentReader
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics, InForce, Quota, QuotaAction, Retention, TopicPolicies

from .namespaces import Namespaces

KIND: Final = "topic-policies"
_NOTHING: Final = TopicPolicies()
# The policies of a topic whose document was never read: nothing is deleted.
_KEEP_ALL: Final = TopicPolicies(
    retention=Retention(), message_ttl_s=0, size_quota=Quota(), age_quota=Quota(), compaction_threshold=0
)


class Policies:
    """Policies of topics, stored by their base names, and the effective policies."""

    def __init__(
        self,
        store: MetaStore,
        namespaces: Namespaces,
        settings: BrokerSettings,
        *,
        reader: DocumentReader | None = None,
    ) -> None:
        self._store = store
        self._reader = reader or DocumentReader()
        self._namespaces = namespaces
        self._own: dict[TopicName, TopicPolicies] = {}
        self._changing = asyncio.Lock()
        self._listeners: list[Callable[[TopicName | NamespaceName], None]] = []
        action = QuotaAction(settings.backlog_quota_policy)
        self._defaults = InForce(
            Retention(settings.retention_minutes, settings.retention_mb),
            settings.message_ttl_s,
            Quota(settings.backlog_quota_bytes, action),
            Quota(settings.backlog_quota_s, action),
            settings.deduplication,
            settings.max_producers_per_topic,
            settings.max_consumers_per_topic,
            settings.max_consumers_per_subscription,
            settings.max_subscriptions_per_topic,
        )
        self._max_topics = settings.max_topics_per_namespace
        self._auto_topics = AutoTopics(settings.auto_create_topics, settings.auto_create_partitions)
        namespaces.on_change(self._changed)

    def on_change(self, listener: Callable[[TopicName | NamespaceName], None]) -> None:
        """Have `listener` called with the topic or namespace after every change of policies."""
        self._listeners.append(listener)

    def _changed(self, name: TopicName | NamespaceName) -> None:
        for listener in self._listeners:
            listener(name)

    async def load(self) -> None:
        """Read stored policies."""
        self._reader.read_all(KIND, await self._store.load_meta(KIND), self._learn)

    def learned(self, key: str, document: bytes | None) -> None:
        """Another process has stored a topic's own policies, or removed them (None). If they cannot be read, the last ones
        stay in force."""
        self._learn(key, document)
        if (name := TopicName.parse_known(key)) is not None:
            self._changed(name)

    def _learn(self, key: str, document: bytes | None) -> None:
        name = TopicName.parse_known(key)
        if name is None:
            return
        if document is None:
            self._own.pop(name, None)
        else:
            self._own.setdefault(name, _KEEP_ALL)  # until it is read
            self._own[name] = msgspec.json.decode(document, type=TopicPolicies)

    # -- what holds

    def of_topic(self, name: TopicName) -> TopicPolicies:
        """The policies set for a topic; a partition has its topic's."""
        return self._own.get(name) or self._own.get(name.base) or _NOTHING

    def of_namespace(self, name: NamespaceName) -> TopicPolicies:
        """What a namespace has; nothing if there is none."""
        return self._namespaces.find(name) or _NOTHING

    def in_force(self, name: TopicName) -> InForce:
        """What holds for a topic."""
        own = self.of_topic(name)
        return _over(own, self.in_namespace(name.namespace_name))

    def in_namespace(self, name: NamespaceName) -> InForce:
        """What holds for the topics of a namespace that decide nothing themselves."""
        return _over(self.of_namespace(name), self._defaults)

    def max_topics(self, name: NamespaceName) -> int:
        """The most logs of a namespace; 0: any number."""
        found = self._namespaces.find(name)
        return self._max_topics if found is None or found.max_topics is None else found.max_topics

    def auto_topics(self, name: NamespaceName) -> AutoTopics:
        """Whether topics of a namespace are created when they are first used."""
        found = self._namespaces.find(name)
        return self._auto_topics if found is None or found.auto_topics is None else found.auto_topics

    # -- changing it

    async def change_topic(self, name: TopicName, change: Callable[[TopicPolicies], TopicPolicies]) -> None:
        """Set what a topic has of its own by what it is now, durably before it counts; changes wait for one
        another. `name` is the topic's, not a partition's."""
        async with self._changing:
            await self._set(name, change(self._own.get(name, _NOTHING)))

    async def _set(self, name: TopicName, policies: TopicPolicies) -> None:
        document = None if policies == _NOTHING else msgspec.json.encode(policies)
        if name.persistent:
            await self._store.save_meta([(KIND, str(name), document)])
        if document is None:
            self._own.pop(name, None)
        else:
            self._own[name] = policies
        self._changed(name)

    async def forget(self, name: TopicName) -> None:
        """Remove the policies set for a topic."""
        if name in self._own:
            await self.change_topic(name, lambda policies: _NOTHING)


def _over(chosen: TopicPolicies, below: InForce) -> InForce:
    """`chosen`, and what it does not decide from `below`."""
    if chosen is _NOTHING:
        return below
    decided = {
        field: value for field in InForce.__struct_fields__ if (value := getattr(chosen, field)) is not None
    }
    return msgspec.structs.replace(below, **decided)

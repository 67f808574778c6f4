"""The embedded log or a Pulsar cluster as `broker.ClusterView`: one broker, and subscriptions as consumer groups."""

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability, not_supported, require
from penstock.broker.cluster_view import (
    ConfigSynonym,
    ConfigValue,
    Group,
    Lag,
    Member,
    Node,
    Nodes,
    Replicas,
    Sees,
)
from penstock.broker.subscription import SubscriptionFigures
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.policy import SubscriptionType
from penstock.model.target import Target
from penstock.protocols.context import ServerContext
from penstock.runtime.tasks import chosen, each

from .configs import configs_of, default_configs

BROKER_ID: Final = 0
KIND: Final = "cluster"  # of the document that has the cluster's id
ID: Final = "id"
AT_ONCE: Final = 16  # topics that are looked at side by side

_SET: Final = "DYNAMIC_TOPIC_CONFIG"
_DEFAULT: Final = "DEFAULT_CONFIG"
_ONE_ACTIVE: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)


class BrokerView:
    """`broker.ClusterView` over the parts that every broker has."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._broker: Broker = context.broker
        self._naming = asyncio.Lock()

    # -- the cluster

    async def nodes(self) -> Nodes:
        """One broker, at the address of this server's HTTP."""
        reached = urlsplit(self._context.http_url or self._context.https_url)
        node = Node(BROKER_ID, reached.hostname, reached.port)
        return Nodes(await self._cluster_id(), [node], BROKER_ID)

    async def _cluster_id(self) -> str:
        """The name of a Pulsar cluster; of the embedded log an id that is kept in its store."""
        broker = self._broker
        if broker.cluster is not None:
            answer = await broker.cluster.request("GET", Target.of("admin", "v2", "clusters"))
            if answer.status != 200:
                raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster does not say its name")
            names = msgspec.json.decode(answer.body, type=list[str])
            return next((name for name in sorted(names) if name != "global"), "pulsar")
        documents = broker.own_documents
        if documents is None:
            raise not_supported("cluster id")
        async with self._naming:
            found = (await documents.load_meta(KIND)).get(ID)
            if found is None:
                found = urlsafe_b64encode(uuid4().bytes).rstrip(b"=").replace(b"-", b"A")
                await documents.save_meta([(KIND, ID, found)])
            return found.decode()

    async def replicas(self, topic: TopicName) -> Sequence[Replicas]:
        topics = self._broker.topics
        await topics.learn(topic)
        return [Replicas(BROKER_ID, [BROKER_ID], [BROKER_ID])] * (topics.partitions(topic) or 1)

    # -- configurations

    async def configs(self, topics: Sequence[TopicName]) -> Mapping[TopicName, Sequence[ConfigValue]]:
        found = await each(self._configs_of, topics, AT_ONCE)
        return {topic: values for topic, values in zip(topics, found, strict=True) if values}

    async def _configs_of(self, topic: TopicName) -> Sequence[ConfigValue]:
        logs = await self._logs(topic)
        if not logs:
            return ()
        defaults = default_configs(self._broker)
        return [
            _config(name, value, defaults[name]) for name, value in configs_of(self._broker, logs[0]).items()
        ]

    # -- groups

    async def groups(self, sees: Sees, *, everything: bool) -> Sequence[Group]:
        found = _Groups()
        for log, name, figures, active in await self._subscriptions(sees, None):
            found.add(log, name, figures, active)
        return found.all()

    async def group(self, id: str, sees: Sees, *, everything: bool) -> Group | None:
        found = _Groups()
        for log, name, figures, active in await self._subscriptions(sees, id):
            found.add(log, name, figures, active)
        return next(iter(found.all()), None)

    async def lags(self, group: str, sees: Sees) -> Sequence[Lag]:
        require(self._broker.capabilities, Capability.OFFSETS)
        found = []
        for log, _, figures, _ in await self._subscriptions(sees, group):
            await log.refresh()
            bounds = log.bounds
            mark = min(max(figures.mark, bounds.first_offset), bounds.next_offset)
            found.append(Lag(log.name.base, log.partition, mark, bounds.next_offset))
        return sorted(found, key=lambda one: (one.topic, one.partition))

    async def _subscriptions(
        self, sees: Sees, only: str | None
    ) -> Sequence[tuple[Topic, str, SubscriptionFigures, str | None]]:
        """The durable subscriptions of the topics that are seen, of one name or all: each with its log, what is known of it and the
        name of its active consumer."""

        async def of(topic: TopicName) -> list[tuple[Topic, str, SubscriptionFigures, str | None]]:
            found = []
            for log in await self._logs(topic):
                for name in await self._names(log):
                    if only is not None and name != only:
                        continue
                    known = await self._known(log, name)
                    if known is not None and known[0].durable:
                        found.append((log, name, *known))
            return found

        await self._broker.topics.learn_names(DEFAULT_NAMESPACE)
        topics = await chosen(self._broker.topics.names(DEFAULT_NAMESPACE, "persistent"), sees)
        return [one for part in await each(of, topics, AT_ONCE) for one in part]

    async def _logs(self, topic: TopicName) -> Sequence[Topic]:
        """The logs of a topic; none if it was deleted."""
        try:
            return await self._broker.topics.all_of(topic, create=False)
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
            return ()

    async def _names(self, log: Topic) -> Iterable[str]:
        cluster = self._broker.cluster
        if cluster is None:
            return list(log.subscriptions)
        answer = await cluster.request("GET", Target.of_topic(log.name, "stats"))
        if answer.status == 404:
            return ()
        if answer.status != 200:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"the cluster answered {answer.status} for {log.name}")
        return msgspec.json.decode(answer.body, type=_Stats).subscriptions

    async def _known(self, log: Topic, name: str) -> tuple[SubscriptionFigures, str | None] | None:
        """What is known of a subscription; None if it is gone."""
        try:
            if self._broker.cluster is None:
                one = log.subscriptions[name]
            else:
                (one,) = await self._broker.subscriptions.of(log.name, name)
        except KeyError:
            return None
        except PenstockError as error:
            if error.kind is not ErrorKind.SUBSCRIPTION_NOT_FOUND:
                raise
            return None
        return one.figures(), None if one.active is None else one.active.name


class _Stats(msgspec.Struct):
    """What Pulsar's admin API says of a topic's subscriptions."""

    subscriptions: dict[str, Any] = {}


class _Groups:
    """Consumer groups, made of the subscriptions of a name on every log."""

    def __init__(self) -> None:
        self._partitions: dict[str, dict[str, list[tuple[TopicName, int]]]] = {}
        self._types: dict[str, SubscriptionType | None] = {}

    def add(self, log: Topic, name: str, figures: SubscriptionFigures, active: str | None) -> None:
        """Take in the subscription of one log."""
        members = self._partitions.setdefault(name, {})
        self._types[name] = self._types.get(name) or figures.type
        alone = figures.type in _ONE_ACTIVE and active is not None
        for consumer in figures.connected:
            partitions = members.setdefault(consumer, [])
            if not alone or consumer == active:
                partitions.append((log.name.base, log.partition))

    def all(self) -> list[Group]:
        """The groups, ordered."""
        return [self._group(name) for name in sorted(self._partitions)]

    def _group(self, name: str) -> Group:
        kind = self._types[name]
        members = [
            Member(consumer, consumer, None, sorted(partitions))
            for consumer, partitions in sorted(self._partitions[name].items())
        ]
        return Group(
            name,
            "STABLE" if members else "EMPTY",
            "CLASSIC",
            "" if kind is None else kind.name.lower(),
            coordinator=BROKER_ID,
            members=members,
        )


def _config(name: str, value: str, default: str) -> ConfigValue:
    if value == default:
        return ConfigValue(name, value, synonyms=[ConfigSynonym(name, value, _DEFAULT)])
    synonyms = [ConfigSynonym(name, value, _SET), ConfigSynonym(name, default, _DEFAULT)]
    return ConfigValue(name, value, _SET, is_default=False, synonyms=synonyms)

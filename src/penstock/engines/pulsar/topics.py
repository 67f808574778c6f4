"""Which topics the cluster has, as far as it was learned, and those that this server uses."""

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.topics import TopicDocument, TopicObserver
from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import PulsarException, TopicNotFound
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics, InForce
from penstock.model.target import Target
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .cluster import PulsarCluster
from .errors import own_error
from .namespaces import PulsarNamespaces
from .topic import PulsarTopic

KNOWN_MAX: Final = 50_000
UNUSED_MS: Final = 600_000  # then a topic without clients here is forgotten
NEVER: Final = -1  # when a list was learned that is no longer right
NO_TOPICS: Final = AutoTopics(False)
_AWAY: Final = frozenset((ErrorKind.UNAVAILABLE, ErrorKind.REQUEST_TIMEOUT))


class _Known(msgspec.Struct, frozen=True):
    """What was learned of a topic, and when; no document: it is not there."""

    at_ms: int
    document: TopicDocument | None


class PulsarTopics:
    """`broker.Topics`. `learners` learn with each topic, such as its schema."""

    tail_bytes = 0

    def __init__(
        self,
        cluster: PulsarCluster,
        namespaces: PulsarNamespaces,
        clock: Clock,
        policies: Callable[[TopicName], InForce],
        learned_ms: int,
    ) -> None:
        self.listeners: set[Callable[[TopicName], None]] = set()
        self.observers: list[TopicObserver] = []
        self.learners: list[Callable[[TopicName], Awaitable[None]]] = []
        self._cluster = cluster
        self._namespaces = namespaces
        self._clock = clock
        self._policies = policies
        self._learned_ms = learned_ms
        self._known: OrderedDict[TopicName, _Known] = OrderedDict()
        self._names: dict[NamespaceName, tuple[int, list[TopicName]]] = {}
        self._open: dict[TopicName, PulsarTopic] = {}
        self._of: defaultdict[TopicName, set[TopicName]] = defaultdict(set)  # open logs by their base
        self._locks: Locks[TopicName] = Locks()

    # -- learning

    def fresh(self, name: TopicName) -> bool:
        """Whether a topic was learned a short while ago."""
        known = self._known.get(name)
        return known is not None and self._clock.monotonic_ms() - known.at_ms < self._learned_ms

    async def learn(self, name: TopicName) -> None:
        base = name.base
        if self.fresh(base):
            return
        async with self._locks.hold(base):
            if self.fresh(base):
                return
            try:
                await self._learn(base)
                if name != base and not self.exists(base):
                    await self._learn(name)  # its name only looks like a partition's
            except PenstockError as error:
                if error.kind not in _AWAY or not self.exists(base):
                    raise
                # What was learned last counts: producers and consumers wait for the cluster to come back.
                known = self._known[base]
                self._known[base] = _Known(self._clock.monotonic_ms(), known.document)

    async def _learn(self, name: TopicName) -> None:
        await self._namespaces.learn(name.namespace_name)
        try:
            partitions = await self._cluster.context.lookup.partitions(str(name), create=False)
        except TopicNotFound:
            self._put(name, None)
            return
        except PulsarException as error:
            raise own_error(error) from None
        self._put(name, TopicDocument(partitions=partitions))
        for learner in self.learners:
            await learner(name)

    def _put(self, name: TopicName, document: TopicDocument | None) -> None:
        before = self._known.pop(name, None)
        self._known[name] = _Known(self._clock.monotonic_ms(), document)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        if document is None:
            for log in list(self._of.get(name, ())):
                self._forget(log, deleted=True)
        self._check_names(name, there=document is not None)
        if before is not None and before.document != document:
            self._changed(name)

    def _check_names(self, name: TopicName, *, there: bool) -> None:
        """Have the topics of a namespace listed again where the list is no longer right."""
        at_ms, names = self._names.get(name.namespace_name, (0, None))
        if names is not None and at_ms != NEVER:
            at = bisect_left(names, name)
            if (at < len(names) and names[at] == name) != there:
                self._names[name.namespace_name] = NEVER, names

    def _changed(self, name: TopicName) -> None:
        for listener in list(self.listeners):
            listener(name)

    def appeared(self, name: TopicName, partitions: int) -> None:
        """The cluster has just created a topic, as it was used."""
        self._put(name, TopicDocument(partitions=partitions))

    async def learn_names(self, namespace: NamespaceName) -> None:
        now = self._clock.monotonic_ms()
        known = self._names.get(namespace)
        if known is not None and known[0] != NEVER and now - known[0] < self._learned_ms:
            return
        await self._namespaces.learn(namespace)
        try:
            found = await self._cluster.context.lookup.topics(str(namespace), RegexSubscriptionMode.AllTopics)
        except PulsarException as error:
            raise own_error(error) from None
        names = [name for text in found if (name := TopicName.parse_known(text)) is not None]
        partitions: dict[TopicName, int] = {}
        for name in names:
            count = name.partition + 1 if name.partition >= 0 else 0
            partitions[name.base] = max(count, partitions.get(name.base, 0))
        for name, count in partitions.items():
            document = self.document(name)
            if document is None or document.partitions < count:
                self._put(name, TopicDocument(partitions=count))
        self._names[namespace] = now, sorted(partitions)
        if len(self._names) > KNOWN_MAX:
            del self._names[next(iter(self._names))]

    async def learn_whole(self, name: TopicName) -> None:
        """As `learn`: administrators ask the cluster."""
        await self.learn(name)

    # -- which there are

    def document(self, name: TopicName) -> TopicDocument | None:
        for one in (name.base, name):
            known = self._known.get(one)
            if known is not None and known.document is not None:
                return known.document
        return None

    def exists(self, name: TopicName) -> bool:
        base = self._known.get(name.base)
        if base is not None and base.document is not None:
            return name == name.base or 0 <= name.partition < base.document.partitions
        known = self._known.get(name)
        return known is not None and known.document is not None

    def missing(self, name: TopicName) -> PenstockError:
        namespace = name.namespace_name
        more = "" if self._namespaces.exists(namespace) else f": there is no namespace {namespace}"
        return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist{more}")

    def partitions(self, name: TopicName) -> int:
        if not self.exists(name):
            raise self.missing(name)
        known = self._known.get(name)
        return 0 if known is None or known.document is None else known.document.partitions

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        _, names = self._names.get(namespace, (0, []))
        return [name for name in names if domain is None or name.domain == domain]

    def logs(self, name: TopicName) -> list[TopicName]:
        count = self.partitions(name)
        return [name.of_partition(number) for number in range(count)] if count else [name]

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self._namespaces.exists(name.namespace_name):
            return NO_TOPICS
        return self._namespaces.auto(name.namespace_name)

    # -- those in use

    @property
    def open_topics(self) -> Sequence[PulsarTopic]:
        return list(self._open.values())

    async def get(self, name: TopicName, *, create: bool | None = None) -> PulsarTopic:
        await self._ensure(name, create=create)
        if self.partitions(name):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is partitioned: name a partition")
        return self._log(name)

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[PulsarTopic]:
        await self._ensure(name, create=create)
        return [self._log(one) for one in self.logs(name)]

    def _log(self, name: TopicName) -> PulsarTopic:
        topic = self._open.get(name)
        if topic is None:
            topic = PulsarTopic(name, self._cluster, self._clock, self._policies(name))
            self._open[name] = topic
            self._of[name.base].add(name)
        return topic

    async def _ensure(self, name: TopicName, *, create: bool | None) -> None:
        await self.learn(name)
        if self.exists(name):
            return
        base = self._known.get(name.base)
        if name.partition >= 0 and base is not None and base.document is not None:
            raise PenstockError(
                ErrorKind.PARTITION_NOT_FOUND, f"{name.base} has {base.document.partitions} partitions"
            )
        allowed = self.auto(name).allowed if create is None else create
        if not allowed or name.partition >= 0:
            raise self.missing(name)
        await self.create(name, self.auto(name).partitions)

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        admin = self._cluster.admin
        try:
            if partitions:
                await admin.call("PUT", Target.of_topic(name, "partitions"), body=partitions)
            elif name.persistent:
                await admin.call("PUT", Target.of_topic(name), body=properties)
        except PenstockError as error:
            # Another server, or a client of the cluster, was quicker; or only brokers may: then they do, as it is used.
            if error.kind not in (ErrorKind.ALREADY_EXISTS, ErrorKind.FORBIDDEN):
                raise
        self.appeared(name, partitions)

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        raise PenstockError(
            ErrorKind.NOT_SUPPORTED, "properties of topics are changed by the cluster's own admin REST"
        )

    async def terminate(self, name: TopicName) -> Sequence[PulsarTopic]:
        logs = await self.all_of(name, create=False)
        parts = ("partitions",) if self.partitions(name) else ()
        target = Target.of_topic(name, "terminate", *parts)
        await self._cluster.admin.call("POST", target, missing=ErrorKind.TOPIC_NOT_FOUND)
        for log in logs:
            log.terminated = True
        return logs

    # -- coming and going

    def _forget(self, name: TopicName, *, deleted: bool) -> None:
        topic = self._open.pop(name, None)
        logs = self._of[name.base]
        logs.discard(name)
        if not logs:
            del self._of[name.base]
        if topic is not None:
            topic.end(deleted=deleted)

    def sweep(self) -> None:
        """Let readers leave that are not used, and forget topics without clients here."""
        before = self._clock.monotonic_ms() - UNUSED_MS
        for topic in self.open_topics:
            topic.sweep()
            for name, subscription in list(topic.subscriptions.items()):
                if not subscription.consumers:
                    del topic.subscriptions[name]
            if topic.used_ms < before and not topic.in_use:
                self._forget(topic.name, deleted=False)

    def close(self) -> None:
        """End every log."""
        for topic in self.open_topics:
            topic.end(deleted=False)

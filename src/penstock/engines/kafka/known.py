"""Which topics the cluster has, as far as it was learned; what is asked of them at once is answered from here."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.broker.topics import TopicDocument
from penstock.engines.registry.namespaces import Namespaces
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .driver.admin import Described, KafkaAdmin
from .driver.record import At
from .framing import Framings
from .naming import Naming
from .properties import TopicProperties

KNOWN_MAX: Final = 50_000
NEVER: Final = -1  # when something was learned that is no longer right
NO_TOPICS: Final = AutoTopics(False)
_AWAY: Final = frozenset((ErrorKind.UNAVAILABLE, ErrorKind.REQUEST_TIMEOUT))


class _Known(msgspec.Struct, frozen=True):
    """What was learned of a topic, and when; None: it is not there."""

    at_ms: int
    topic: Described | None


class KnownTopics:
    """`broker.Topics`, the part that lists topics and learns of them.

    A topic of Kafka's with one partition is one without partitions here. `gone` and `changed` are called with each topic
    that is no longer there, was made again or has other partitions; `changed` with those that come, too.
    """

    def __init__(
        self,
        admin: KafkaAdmin,
        naming: Naming,
        namespaces: Namespaces,
        properties: TopicProperties,
        clock: Clock,
        auto: Callable[[NamespaceName], AutoTopics],
        learned_ms: int,
        registry: Framings | None = None,  # of schemas
    ) -> None:
        self.gone: Callable[[TopicName], None] = lambda name: None
        self.changed: Callable[[TopicName], None] = lambda name: None
        self.registry = registry
        self.properties = properties
        self.naming = naming
        self._admin = admin
        self._namespaces = namespaces
        self._clock = clock
        self._auto = auto
        self._learned_ms = learned_ms
        self._known: OrderedDict[TopicName, _Known] = OrderedDict()
        self._names: dict[NamespaceName, list[TopicName]] = {}
        self._names_ms = NEVER
        self._listed = False
        self._locks: Locks[TopicName] = Locks()
        self._listing: Locks[str] = Locks()

    # -- learning

    def _fresh(self, at_ms: int) -> bool:
        return at_ms != NEVER and self._clock.monotonic_ms() - at_ms < self._learned_ms

    def _is_fresh(self, name: TopicName) -> bool:
        known = self._known.get(name)
        return known is not None and self._fresh(known.at_ms)

    async def learn(self, name: TopicName) -> None:
        base = name.base
        if self._is_fresh(base):
            return
        async with self._locks.hold(base):
            if self._is_fresh(base):
                return
            try:
                await self.ask(base)
                if name != base and not self.exists(base):
                    await self.ask(name)  # its name only looks like a partition's
                if self.registry is not None and self.exists(name):
                    await self.registry.learn(base)
            except PenstockError as error:
                if error.kind not in _AWAY or not self.exists(base):
                    raise
                # What was learned last counts: producers and consumers wait for the cluster to come back.
                self._known[base] = _Known(self._clock.monotonic_ms(), self._known[base].topic)

    async def ask(self, name: TopicName) -> Described | None:
        """Ask the cluster for one topic, however fresh what is known is."""
        kafka = self.naming.kafka_name(name)
        there = self._namespaces.exists(name.namespace_name)
        found = await self._admin.describe(kafka) if there else None
        self.put(name, found)
        return found

    def put(self, name: TopicName, found: Described | None, *, at_ms: int | None = None) -> None:
        """This is what there is of a topic; `at_ms` NEVER: it has to be asked again before it is used."""
        before = self._known.pop(name, None)
        now = self._clock.monotonic_ms() if at_ms is None else at_ms
        self._known[name] = _Known(now, found)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        was = None if before is None else before.topic
        if found is None:
            self._drop_name(name)
        else:
            self._add_name(name)
        if was is not None and (found is None or (found.id and was.id and found.id != was.id)):
            self.gone(name)
        if before is not None and was != found and (was is None or found is None or _differ(was, found)):
            self.changed(name)

    def _add_name(self, name: TopicName) -> None:
        names = self._names.get(name.namespace_name, [])
        if self._names_ms != NEVER and name not in names:
            self._names_ms = NEVER

    def _drop_name(self, name: TopicName) -> None:
        if name in self._names.get(name.namespace_name, ()):
            self._names_ms = NEVER

    async def learn_names(self, namespace: NamespaceName) -> None:
        if self._fresh(self._names_ms):
            return
        async with self._listing.hold(""):
            if not self._fresh(self._names_ms):
                await self.list_all()

    async def list_all(self) -> None:
        """Learn which topics the cluster has, all at once."""
        now = self._clock.monotonic_ms()
        listed = await self._admin.topics()
        names: dict[NamespaceName, list[TopicName]] = {}
        for kafka, partitions in listed.items():
            name = self._name_of(kafka)
            if name is None:
                continue
            names.setdefault(name.namespace_name, []).append(name)
            before = self._known.get(name)
            was = None if before is None else before.topic
            if was is None or was.partitions != partitions:
                # The list does not say which id a topic has: it is asked for when the topic is used.
                if before is None and self._listed:
                    self._known[name] = _Known(NEVER, None)  # it came
                self.put(name, Described("" if was is None else was.id, partitions), at_ms=NEVER)
        for name, known in list(self._known.items()):
            if known.topic is not None and name not in names.get(name.namespace_name, ()):
                self._known[name] = _Known(NEVER, known.topic)  # asked again before it counts as gone
        self._names = {namespace: sorted(found) for namespace, found in names.items()}
        self._names_ms = now
        self._listed = True

    def _name_of(self, kafka: str) -> TopicName | None:
        try:
            return self.naming.topic_name(kafka)
        except PenstockError:  # a name that Pulsar does not allow
            return None

    def forget_names(self) -> None:
        """Have the topics listed again before they are named."""
        self._names_ms = NEVER

    # -- which there are

    def found(self, name: TopicName) -> Described | None:
        """What was learned of a topic itself."""
        known = self._known.get(name)
        return None if known is None else known.topic

    def own(self, name: TopicName) -> TopicName:
        """The name of a log: partition 0 of a topic without partitions is the topic."""
        base = self.found(name.base)
        return name.base if base is not None and base.partitions <= 1 and name.partition == 0 else name

    def at(self, name: TopicName) -> At:
        """Kafka's topic and partition of a log that exists."""
        if self.found(name) is not None:
            return self.naming.kafka_name(name), 0
        return self.naming.kafka_name(name.base), max(0, name.partition)

    def document(self, name: TopicName) -> TopicDocument | None:
        for one in (name.base, name):
            found = self.found(one)
            if found is not None:
                count = found.partitions if found.partitions > 1 else 0
                return TopicDocument(partitions=count, properties=self.properties.of(one))
        return None

    def exists(self, name: TopicName) -> bool:
        base = self.found(name.base)
        if base is not None:
            return name == name.base or 0 <= name.partition < base.partitions
        return self.found(name) is not None

    def missing(self, name: TopicName) -> PenstockError:
        namespace = name.namespace_name
        more = "" if self._namespaces.exists(namespace) else f": there is no namespace {namespace}"
        return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist{more}")

    def partitions(self, name: TopicName) -> int:
        if not self.exists(name):
            raise self.missing(name)
        found = self.found(name)
        return 0 if found is None or found.partitions <= 1 else found.partitions

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        return [one for one in self._names.get(namespace, ()) if domain is None or one.domain == domain]

    def logs(self, name: TopicName) -> list[TopicName]:
        count = self.partitions(name)
        return [name.of_partition(number) for number in range(count)] if count else [self.own(name)]

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self._namespaces.serves(name.namespace_name):
            return NO_TOPICS
        return self._auto(name.namespace_name)


def _differ(was: Described, found: Described) -> bool:
    return was.partitions != found.partitions or bool(was.id and found.id and was.id != found.id)

"""The topics of a cluster, as far as this process learned of them, and those that it has opened.

The cluster lists its topics by name and number of partitions. A listing is compared with the previous one, and only its
differences are applied, in slices of time. The names of a namespace are kept sorted. So the work of a message, a request or a
change does not grow with the number of topics, and a listing does not block the event loop.
"""

from abc import ABC, abstractmethod
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from penstock.broker.topic import Topic
from penstock.broker.topic_listeners import TopicListeners
from penstock.broker.topics import TopicDocument, TopicObserver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks, Slices, each

from .name_list import NameLists

TOPICS_MAX: Final = 200_000  # that are known to exist, unless the cluster lists all that it has
ASKED_MAX: Final = 50_000  # topics and namespaces whose time of asking is known: clients choose names
UNUSED_MS: Final = 600_000  # after this a topic without clients here is closed
OPENING_MAX: Final = 32  # partitions of one topic at once
NEVER: Final = -1
NO_TOPICS: Final = AutoTopics(False)
_AWAY: Final = frozenset((ErrorKind.UNAVAILABLE, ErrorKind.REQUEST_TIMEOUT))


class Described(msgspec.Struct, frozen=True):
    """A topic of the cluster: the id that the cluster gave it ("": not known), and its number of partitions."""

    id: str
    partitions: int


class Namespaces(Protocol):
    """Which namespaces exist."""

    def exists(self, name: NamespaceName) -> bool: ...


class Opened(Topic, Protocol):
    """A topic with its log, as this process uses it."""

    used_ms: int
    deleted: bool

    @property
    def in_use(self) -> bool: ...
    def sweep(self) -> None: ...
    def end(self, *, deleted: bool) -> None: ...


T = TypeVar("T", bound=Opened)


class _Listing:
    """What the cluster, or one of its namespaces, listed last."""

    def __init__(self) -> None:
        self.at_ms = NEVER  # when it was asked for; NEVER: it is not right any more
        self.complete = False  # it was applied once: a topic that is not in it is new
        self.names: dict[str, TopicName | None] = {}  # by the cluster's names for them; None: hidden


class Catalog(ABC, Generic[T]):
    """`broker.Topics`, but for what changes topics. An engine says how its cluster is asked, and how a log is opened."""

    unpartitioned: int  # the number of partitions that the cluster shows of a topic without partitions
    lists_all: bool  # topics of all namespaces with all partitions; else of one namespace with partitions that are in use

    def __init__(self, namespaces: Namespaces, clock: Clock, learned_ms: int) -> None:
        self.listeners = TopicListeners()
        self.observers: list[TopicObserver] = []
        self._namespaces = namespaces
        self._clock = clock
        self._learned_ms = learned_ms
        self._there: OrderedDict[TopicName, Described] = OrderedDict()
        # When each topic was asked for, whether it exists or not; none whose answer may be wrong.
        self._asked: OrderedDict[TopicName, int] = OrderedDict()
        self._listings: OrderedDict[NamespaceName | None, _Listing] = OrderedDict()
        self._names = NameLists()  # of listed namespaces
        self._locks: Locks[TopicName] = Locks()
        self._listing_locks: Locks[NamespaceName | None] = Locks()
        self._open: dict[TopicName, T] = {}
        self._of: defaultdict[TopicName, set[TopicName]] = defaultdict(set)  # open logs by their base

    # -- what an engine says

    @abstractmethod
    async def _describe(self, name: TopicName) -> Described | None:
        """Ask the cluster for one topic. Raises UNAVAILABLE."""

    @abstractmethod
    async def _list(self, namespace: NamespaceName | None) -> Mapping[str, int]:
        """Ask for the topics of a namespace (None: of all), by the cluster's names, and their numbers of partitions. Raises
        UNAVAILABLE."""

    @abstractmethod
    def _name_of(self, text: str) -> TopicName | None:
        """The name of a listed topic; None if it is hidden."""

    @abstractmethod
    async def _learn_more(self, name: TopicName) -> None:
        """Learn what else belongs to a topic that exists, such as its schema."""

    @abstractmethod
    async def _new(self, name: TopicName) -> T:
        """Open a log. Raises UNAVAILABLE, TOPIC_NOT_FOUND."""

    @abstractmethod
    def auto(self, name: TopicName) -> AutoTopics: ...

    @abstractmethod
    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None: ...

    def _properties(self, name: TopicName) -> dict[str, str]:
        return {}

    def _close(self, topic: T, *, deleted: bool) -> None:
        """A log is not used any more."""
        topic.end(deleted=deleted)

    # -- learning

    def _is_fresh(self, at_ms: int) -> bool:
        return at_ms != NEVER and self._clock.monotonic_ms() - at_ms < self._learned_ms

    def fresh(self, name: TopicName) -> bool:
        """Whether the cluster was asked for a topic a short while ago."""
        return self._is_fresh(self._asked.get(name, NEVER))

    async def learn(self, name: TopicName, *, whole: bool = False) -> None:
        """As `broker.Topics.learn`; the engine that has more of the `whole` learns it."""
        base = name.base
        if self.fresh(base):
            return
        async with self._locks.hold(base):
            if self.fresh(base):
                return
            try:
                await self.ask(base)
                if name != base and not self.exists(base):
                    await self.ask(name)  # its name only looks like a partition's
                for one in (base, name):
                    if one in self._there:
                        await self._learn_more(one)
                        break
            except PenstockError as error:
                if error.kind not in _AWAY or not self.exists(base):
                    raise
                # The last answer counts: producers and consumers wait for the cluster to come back.
                self._note(base)

    async def ask(self, name: TopicName) -> Described | None:
        """Ask the cluster for one topic, however fresh the last answer is."""
        found = await self._describe(name)
        self.put(name, found)
        return found

    def put(self, name: TopicName, found: Described | None, *, stale: bool = False) -> None:
        """Enter a topic as the cluster has it now; None: it does not exist. `stale`: it is asked for before it is used."""
        was = self._there.get(name)
        listing = self._listings.get(self._scope(name.namespace_name))
        known = name in self._asked or was is not None or (listing is not None and listing.complete)
        self._note(name, stale=stale)
        if found is None:
            self._there.pop(name, None)
        else:
            self._there[name] = found
            if len(self._there) > TOPICS_MAX and not self.lists_all:
                self._there.popitem(last=False)
        if listing is not None and found is not None:
            self._names.put(name, max(1, found.partitions))
        elif found is None:
            self._names.drop(name)
        if found is None or (was is not None and _other_id(was, found)):
            for log in list(self._of.get(name, ())):
                self._forget(log, deleted=True)
        if known and _differ(was, found):
            self.listeners.tell(name)

    def _note(self, name: TopicName, *, stale: bool = False) -> None:
        self._asked.pop(name, None)
        if not stale:
            self._asked[name] = self._clock.monotonic_ms()
            if len(self._asked) > ASKED_MAX:
                self._asked.popitem(last=False)

    # -- listing

    def _scope(self, namespace: NamespaceName) -> NamespaceName | None:
        return None if self.lists_all else namespace

    async def learn_names(self, namespace: NamespaceName) -> None:
        scope = self._scope(namespace)
        if not self._is_listed(scope):
            async with self._listing_locks.hold(scope):
                if not self._is_listed(scope):
                    await self._learn_listing(scope)

    def _is_listed(self, scope: NamespaceName | None) -> bool:
        listing = self._listings.get(scope)
        return listing is not None and self._is_fresh(listing.at_ms)

    async def list_all(self) -> None:
        """Learn which topics of all namespaces there are, however fresh the last listing is."""
        async with self._listing_locks.hold(None):
            await self._learn_listing(None)

    async def _learn_listing(self, scope: NamespaceName | None) -> None:
        began_ms = self._clock.monotonic_ms()
        listed = await self._list(scope)
        listing = self._listings.setdefault(scope, _Listing())
        self._listings.move_to_end(scope)
        if len(self._listings) > ASKED_MAX and (oldest := self._listings.popitem(last=False)[0]) is not None:
            self._names.forget(oldest)
        before = listing.names
        names: dict[str, TopicName | None] = {}
        there: set[TopicName | None] = set()
        slices = Slices()
        for text, partitions in listed.items():
            await slices.step()
            name = names[text] = before[text] if text in before else self._name_of(text)
            there.add(name)
            if name is not None and self._asked.get(name, NEVER) < began_ms:
                self._listed(name, partitions)
        for namespace in self._names.namespaces if scope is None else (scope,):
            for name in self.names(namespace):
                await slices.step()
                if name not in there and self._asked.get(name, NEVER) < began_ms:
                    self._not_listed(name)
        listing.complete = True
        if listing.names is before:  # else topics may have other names since
            listing.names, listing.at_ms = names, began_ms

    def _listed(self, name: TopicName, partitions: int) -> None:
        was = self._there.get(name)
        if was is not None and not self.lists_all:
            partitions = max(partitions, was.partitions)
        if was is None or was.partitions != partitions:
            # The list does not say which id a topic has: it is asked for when the topic is used.
            self.put(name, Described("" if was is None else was.id, partitions), stale=True)
        elif name not in self._names:
            self._names.put(name, max(1, partitions))

    def _not_listed(self, name: TopicName) -> None:
        """Brokers do not learn of changes at the same time: a topic that is used is asked for before it counts as gone."""
        if name in self._of:
            self._note(name, stale=True)
            self._names.drop(name)
        else:
            self.put(name, None, stale=True)

    def forget_names(self) -> None:
        """Topics may have other names now: have them listed again before they are named."""
        for listing in self._listings.values():
            listing.names, listing.at_ms = {}, NEVER

    # -- which there are

    def found(self, name: TopicName) -> Described | None:
        """The topic of exactly this name, if it exists."""
        return self._there.get(name)

    def own(self, name: TopicName) -> TopicName:
        """The name of a log: partition 0 of a topic without partitions is the topic."""
        base = self._there.get(name.base)
        return name.base if base is not None and self._unpartitioned(base) and name.partition == 0 else name

    def _unpartitioned(self, found: Described) -> bool:
        return found.partitions <= self.unpartitioned

    def document(self, name: TopicName) -> TopicDocument | None:
        for one in (name.base, name):
            found = self._there.get(one)
            if found is not None:
                count = 0 if self._unpartitioned(found) else found.partitions
                return TopicDocument(partitions=count, properties=self._properties(one))
        return None

    def exists(self, name: TopicName) -> bool:
        base = self._there.get(name.base)
        if base is not None:
            return name == name.base or 0 <= name.partition < base.partitions
        return name in self._there

    def missing(self, name: TopicName) -> PenstockError:
        namespace = name.namespace_name
        more = "" if self._namespaces.exists(namespace) else f": there is no namespace {namespace}"
        return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist{more}")

    def partitions(self, name: TopicName) -> int:
        if not self.exists(name):
            raise self.missing(name)
        found = self._there.get(name)
        return 0 if found is None or self._unpartitioned(found) else found.partitions

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        return self._names.names(namespace, domain)

    def logs(self, name: TopicName) -> list[TopicName]:
        count = self.partitions(name)
        return [name.of_partition(number) for number in range(count)] if count else [self.own(name)]

    # -- those in use

    @property
    def open_topics(self) -> Sequence[T]:
        return list(self._open.values())

    def open_of(self, name: TopicName) -> list[T]:
        """The logs of a topic that are open."""
        return [self._open[one] for one in self._of.get(name, ())]

    async def get(self, name: TopicName, *, create: bool | None = None) -> T:
        await self.ensure(name, create=create)
        if self.partitions(name):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is partitioned: name a partition")
        return await self._log(self.own(name))

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[T]:
        await self.ensure(name, create=create)
        logs = self.logs(name)
        held = [topic for one in logs if (topic := self._open.get(one)) is not None]
        return held if len(held) == len(logs) else await each(self._log, logs, OPENING_MAX)

    async def _log(self, name: TopicName) -> T:
        topic = self._open.get(name)
        if topic is None:
            made = await self._new(name)
            topic = self._open.setdefault(name, made)  # another call may have been quicker
            if topic is made:
                self._of[name.base].add(name)
                for observer in self.observers:
                    observer.opened(topic)
        return topic

    async def ensure(self, name: TopicName, *, create: bool | None = None) -> None:
        """Have a topic exist, which is created as configured. Raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND."""
        await self.learn(name)
        if self.exists(name):
            return
        base = self._there.get(name.base)
        if name.partition >= 0 and base is not None:
            raise PenstockError(
                ErrorKind.PARTITION_NOT_FOUND, f"{name.base} has {base.partitions} partitions"
            )
        auto = self.auto(name)
        if not (auto.allowed if create is None else create) or name.partition >= 0:
            raise self.missing(name)
        try:
            await self.create(name, auto.partitions)
        except PenstockError as error:
            if error.kind is not ErrorKind.ALREADY_EXISTS:  # another process or client was quicker
                raise
            await self.ask(name)

    def _forget(self, name: TopicName, *, deleted: bool) -> None:
        topic = self._open.pop(name, None)
        logs = self._of[name.base]
        logs.discard(name)
        if not logs:
            del self._of[name.base]
        if topic is not None:
            self._close(topic, deleted=deleted)

    async def sweep(self) -> None:
        """Close readers that are not used, and topics without clients here."""
        before = self._clock.monotonic_ms() - UNUSED_MS
        slices = Slices()
        for topic in self.open_topics:
            await slices.step()
            topic.sweep()
            unused = topic.deleted or (topic.used_ms < before and not topic.in_use)
            if unused and self._open.get(topic.name) is topic:
                self._forget(topic.name, deleted=topic.deleted)

    def close(self) -> None:
        """End every log."""
        for topic in self.open_topics:
            topic.end(deleted=False)


def _other_id(was: Described, found: Described) -> bool:
    return bool(was.id and found.id and was.id != found.id)


def _differ(was: Described | None, found: Described | None) -> bool:
    if was is None or found is None:
        return was is not found
    return was.partitions != found.partitions or _other_id(was, found)

"""Which topics there are, and those that are open."""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.broker.settings import BrokerSettings
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topic_listeners import TopicListeners
from penstock.broker.topics import TopicDocument
from penstock.engines.core.ports import Store
from penstock.engines.core.topic.access import Access, Epochs
from penstock.engines.core.topic.topic import Topic, TopicParts
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.policies import Policies
from penstock.engines.shared.documents import DocumentReader
from penstock.engines.shared.name_list import NameLists, check_growth, check_new, check_partitions
from penstock.engines.shared.tail import TailCache
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Locks

from .compactions import Compactions
from .events import TopicEvents

log = logging.getLogger(__name__)

_KIND: Final = "topic"
NO_TOPICS: Final = AutoTopics(False)


def _logs(document: TopicDocument) -> int:
    return document.partitions or 1


class Topics:
    """`broker.Topics`: the topics of all namespaces. Logs are opened when first used."""

    def __init__(
        self,
        store: Store,
        transient: Store,
        namespaces: Namespaces,
        policies: Policies,
        epochs: Epochs,
        compactions: Compactions,
        events: TopicEvents,
        settings: BrokerSettings,
        clock: Clock,
        reader: DocumentReader,
    ) -> None:
        self._store = store
        self._storage = StorageHealth.of(store)
        self._transient = transient
        self._namespaces = namespaces
        self._settings = settings
        self._clock = clock
        self._policies = policies
        self._epochs = epochs
        self._compactions = compactions
        self._events = events
        self._reader = reader
        self._unread: set[TopicName] = set()  # topics whose stored documents cannot be read
        self._names = NameLists()
        self.listeners = TopicListeners()
        self.observers = events.observers
        self._tails = TailCache(settings.tail_bytes)
        self._documents: dict[TopicName, TopicDocument] = {}
        self._open: dict[TopicName, Topic] = {}
        # By the base name: a topic and its partitions are opened, changed and deleted one after the other.
        self._locks: Locks[TopicName] = Locks()

    async def load(self) -> None:
        """Read which topics there are."""
        self._reader.read_all(_KIND, await self._store.load_meta(_KIND), self._learn)

    def _learn(self, key: str, document: bytes | None) -> None:
        name = TopicName.parse_known(key)
        if name is None:
            log.warning("topic %s has a name that is refused: it stays in the store and is not served", key)
            return
        self._unread.add(name)
        self._put(name, msgspec.json.decode(document or b"", type=TopicDocument))
        self._unread.remove(name)

    async def learn(self, name: TopicName, *, whole: bool = False) -> None:
        """Nothing to do: topics are always known."""

    async def learn_names(self, namespace: NamespaceName) -> None:
        """Nothing to do: topics are always known."""

    # -- which there are

    def document(self, name: TopicName) -> TopicDocument | None:
        return self._documents.get(name.base) or self._documents.get(name)

    def exists(self, name: TopicName) -> bool:
        if name in self._documents:
            return True
        base = self._documents.get(name.base)
        return base is not None and 0 <= name.partition < base.partitions

    def has_namespace(self, name: TopicName) -> bool:
        """Whether the namespace of a topic exists, or is created with the topic."""
        return self._namespaces.serves(name.namespace_name)

    def missing(self, name: TopicName) -> PenstockError:
        namespace = name.namespace_name
        more = "" if self._namespaces.exists(namespace) else f": there is no namespace {namespace}"
        return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist{more}")

    def partitions(self, name: TopicName) -> int:
        document = self._documents.get(name)
        if document is None:
            if self.exists(name):
                return 0
            raise self.missing(name)
        return document.partitions

    def names(self, namespace: NamespaceName, domain: str | None = None) -> list[TopicName]:
        return self._names.names(namespace, domain)

    def all_names(self) -> list[TopicName]:
        """Every topic there is, partitioned ones by their own name."""
        return list(self._documents)

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self.has_namespace(name):
            return NO_TOPICS
        return self._policies.auto_topics(name.namespace_name)

    def logs(self, name: TopicName) -> list[TopicName]:
        count = self.partitions(name)
        return [name.of_partition(n) for n in range(count)] if count else [name]

    @property
    def tail_bytes(self) -> int:
        return self._tails.bytes

    @property
    def open_topics(self) -> list[Topic]:
        return list(self._open.values())

    # -- opening

    async def get(self, name: TopicName, *, create: bool | None = None) -> Topic:
        topic = self._open.get(name)
        if topic is not None:
            return topic
        async with self._locks.hold(name.base):
            return await self._get(name, create=create)

    async def _get(self, name: TopicName, *, create: bool | None) -> Topic:
        """`get` for the holder of the lock."""
        topic = self._open.get(name)
        if topic is not None:
            return topic
        await self._ensure(name, create=create)
        document = self._documents.get(name)
        if document is not None and document.partitions:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is partitioned: name a partition")
        return await self._open_log(name)

    async def _open_log(self, name: TopicName) -> Topic:
        store = self._store if name.persistent else self._transient
        state = await store.open(str(name))
        topic = Topic(name, state, store, self._tails, self._clock, self._parts(name))
        await topic.listener.opened(topic)
        self._open[name] = topic
        return topic

    def _parts(self, name: TopicName) -> TopicParts:
        document = self.document(name)
        return TopicParts(
            access=Access(name, self._epochs),
            compaction=self._compactions.of(name),
            policies=self._policies.in_force(name),
            listener=self._events,
            hold_ms=self._settings.quota_hold_ms,
            terminated=document is not None and document.terminated,
            bytes_max=None if name.persistent else self._settings.transient_topic_bytes,
        )

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> list[Topic]:
        topic = self._open.get(name)
        if topic is not None:
            return [topic]
        async with self._locks.hold(name.base):
            return await self._all_of(name, create=create)

    async def _all_of(self, name: TopicName, *, create: bool | None) -> list[Topic]:
        """`all_of` for the holder of the lock."""
        await self._ensure(name, create=create)
        return [await self._get(n, create=create) for n in self.logs(name)]

    async def _ensure(self, name: TopicName, *, create: bool | None) -> None:
        if self.exists(name):
            return
        base = self._documents.get(name.base)
        if name.partition >= 0 and base is not None:
            raise PenstockError(
                ErrorKind.PARTITION_NOT_FOUND, f"{name.base} has {base.partitions} partitions"
            )
        allowed = self.auto(name).allowed if create is None else create
        if not allowed or name.partition >= 0:
            raise self.missing(name)
        self._check_readable(name)
        document = TopicDocument(partitions=self._policies.auto_topics(name.namespace_name).partitions)
        self._check_room(name, _logs(document))
        await self._namespaces.ensure(name.namespace_name)
        await self._keep(name, document)
        self.listeners.tell(name)

    def _check_readable(self, name: TopicName) -> None:
        """Raise UNAVAILABLE if the topic's document cannot be read: the topic exists and must not be created again."""
        if name in self._unread:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"the stored document of topic {name} cannot be read")

    async def _keep(self, name: TopicName, document: TopicDocument) -> None:
        if name.persistent:
            await self._store.save_meta([(_KIND, str(name), msgspec.json.encode(document))])
        self._put(name, document)

    def _put(self, name: TopicName, document: TopicDocument) -> None:
        self._documents[name] = document
        self._names.put(name, _logs(document))

    def _check_room(self, name: TopicName, logs: int) -> None:
        """Raise unless the namespace may have so many logs more (TOO_MANY_TOPICS) and the storage takes them."""
        self._storage.check(name)
        namespace = name.namespace_name
        self._names.check_room(namespace, logs, self._policies.max_topics(namespace))

    # -- changing

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        check_new(name, partitions, self._settings.max_partitions)
        async with self._locks.hold(name.base):
            if name in self._documents:
                raise PenstockError(ErrorKind.ALREADY_EXISTS, f"topic {name} already exists")
            self._check_readable(name)
            self._namespaces.check(name.namespace_name)
            document = TopicDocument(partitions=partitions, properties=properties or {})
            self._check_room(name, _logs(document))
            await self._namespaces.ensure(name.namespace_name)
            await self._keep(name, document)
        self.listeners.tell(name)

    async def set_partitions(self, name: TopicName, partitions: int) -> None:
        """Let a partitioned topic grow; raises FEWER_PARTITIONS, and BAD_PARAMETER for a topic without partitions."""
        check_partitions(partitions, self._settings.max_partitions)
        async with self._locks.hold(name.base):
            have = self.partitions(name)
            if not have or name not in self._documents:
                raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is not a partitioned topic")
            check_growth(name, have, partitions)
            self._check_room(name, partitions - have)
            document = msgspec.structs.replace(self._documents[name], partitions=partitions)
            await self._keep(name, document)
        self.listeners.tell(name)

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        async with self._locks.hold(name.base):
            if name not in self._documents:
                raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist")
            document = self._documents[name]
            changed = msgspec.structs.replace(document, properties=change(document.properties))
            await self._keep(name, changed)

    async def terminate(self, name: TopicName) -> list[Topic]:
        async with self._locks.hold(name.base):
            logs = await self._all_of(name, create=False)
            base = name.base if name.base in self._documents else name
            await self._keep(base, msgspec.structs.replace(self._documents[base], terminated=True))
        for topic in logs:
            topic.terminate()
        return logs

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic with all its logs; raises TOPIC_IN_USE if clients are connected, unless `force`."""
        async with self._locks.hold(name.base):
            if name not in self._documents:
                raise self.missing(name)
            logs = await self._all_of(name, create=False)
            for topic in logs:
                if (topic.producers or topic.consumer_count) and not force:
                    raise PenstockError(
                        ErrorKind.TOPIC_IN_USE,
                        f"{name} has active producers or consumers; delete it with force",
                    )
            gone = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was deleted")
            for topic in logs:
                self._open.pop(topic.name, None)
                topic.close(gone)
            # The document goes last: a topic of this name that comes later begins with nothing, whatever happens.
            for topic in logs:
                await topic.store.delete(topic.ledger)
                await topic.listener.deleted(topic)
            if name.persistent:
                await self._store.save_meta([(_KIND, str(name), None)])
            del self._documents[name]
            self._names.drop(name)
        self.listeners.tell(name)

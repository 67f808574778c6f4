"""Consumers that other processes look for: those whose properties have names of Penstock's own (`penstock-…`).

Kafka shows the members of a group, and nothing of the consumers behind them. So what such a consumer says is a document, which counts
as long as its process is a member of the group. Documents of processes that ended without removing them go later.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.model.policy import OWN_PROPERTIES

from .documents import Documents
from .driver.groups import Group
from .driver.record import At
from .naming import Naming

log = logging.getLogger(__name__)

KIND: Final = "consumers"
LEFT_MS: Final = 600_000  # a document so old whose process is no member is removed

Key = tuple[str, str]  # a topic without a partition, and a subscription


class Described(Protocol):
    """What is known of groups; of the driver's `KafkaGroups`."""

    async def describe(self, group: str) -> Group | None: ...


class ShownConsumer(msgspec.Struct, frozen=True):
    """What other processes see of a consumer. `client_id` is its process's in Kafka."""

    topic: str
    subscription: str
    client_id: str
    properties: dict[str, str]
    created_ms: int


class ShownConsumers:
    """Those of every process. `client_id` names this one; `spawn` runs what nobody waits for."""

    def __init__(
        self,
        documents: Documents,
        groups: Described,
        client_id: str,
        prefix: str,
        naming: Naming,
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._documents = documents
        self._groups = groups
        self._client_id = client_id
        self._prefix = prefix
        self._naming = naming
        self._spawn = spawn
        self._shown: dict[str, ShownConsumer] = {}
        self._keys: defaultdict[Key, set[str]] = defaultdict(set)

    async def load(self) -> None:
        """Read what is kept, and hear of changes from now on."""
        self._documents.reader.read_all(KIND, await self._documents.load_meta(KIND), self.learned)
        self._documents.listeners[KIND].append(self.learned)
        old = time.time_ns() // 1_000_000 - LEFT_MS
        left = [key for key, one in self._shown.items() if one.created_ms < old]
        if left:
            self._spawn(self._remove_dead(left), "remove consumers that are gone")

    def learned(self, key: str, document: bytes | None) -> None:
        """A document is stored, or removed (None)."""
        before = self._shown.pop(key, None)
        if before is not None:
            same = self._keys[before.topic, before.subscription]
            same.discard(key)
            if not same:
                del self._keys[before.topic, before.subscription]
        if document is not None:
            made = self._shown[key] = msgspec.json.decode(document, type=ShownConsumer)
            self._keys[made.topic, made.subscription].add(key)

    # -- of this process

    async def show(
        self, name: str, topics: Sequence[TopicName], subscription: str, given: Mapping[str, str]
    ) -> None:
        """Have other processes see a consumer, if it says anything to them. `name` is its own within the subscription."""
        properties = {key: value for key, value in given.items() if key.startswith(OWN_PROPERTIES)}
        if not properties:
            return
        now = time.time_ns() // 1_000_000
        rows: list[tuple[str, str, bytes | None]] = []
        for topic in topics:
            made = ShownConsumer(str(topic.base), subscription, self._client_id, properties, now)
            rows.append((KIND, self._key(name, topic, subscription), msgspec.json.encode(made)))
        try:
            await self._documents.save_meta(rows)
        except PenstockError as error:  # it is found where it was made
            log.warning("a consumer is not seen by other processes: %s", error.message)

    def hide(self, name: str, topics: Sequence[TopicName], subscription: str) -> None:
        """A consumer is gone; harmless for one that was not shown."""
        keys = [self._key(name, topic, subscription) for topic in topics]
        gone = [key for key in keys if key in self._shown]
        if gone:
            self._spawn(self._remove(gone), "hide a consumer from other processes")

    def _key(self, name: str, topic: TopicName, subscription: str) -> str:
        return "\n".join((self._client_id, name, subscription, str(topic)))

    async def close(self) -> None:
        """Those of this process are gone."""
        await self._remove([key for key, one in self._shown.items() if one.client_id == self._client_id])

    async def _remove(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        try:
            await self._documents.save_meta([(KIND, key, None) for key in keys])
        except PenstockError as error:
            log.debug("consumers are still shown: %s", error.message)

    async def _remove_dead(self, keys: Sequence[str]) -> None:
        for key in keys:
            shown = self._shown.get(key)
            if shown is not None and shown.client_id not in await self._members(shown.subscription):
                await self._remove([key])

    # -- of all

    async def of(self, log: TopicName, subscription: str) -> list[Mapping[str, str]]:
        """What consumers of a subscription of a topic say, those first whose process has the partition. Raises UNAVAILABLE."""
        topic, place = log.base, (self._naming.kafka_name(log.base), max(0, log.partition))
        await self._documents.catch_up()
        keys = self._keys.get((str(topic), subscription), ())
        shown = [self._shown[key] for key in keys]
        if not shown:
            return []
        members = await self._members(subscription)
        live = [one for one in shown if one.client_id in members]
        live.sort(key=lambda one: (place not in members[one.client_id], one.created_ms))
        return [one.properties for one in live]

    async def _members(self, subscription: str) -> dict[str, frozenset[At]]:
        """The processes in a group, and the partitions that each has."""
        found = await self._groups.describe(self._prefix + subscription)
        return {} if found is None else {one.client_id: one.assigned for one in found.members}

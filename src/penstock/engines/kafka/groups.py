"""Kafka's consumer groups as `broker.Groups`: topics by their names here, and records with the schemas that they name."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from time import monotonic
from typing import Final

from penstock.broker.groups import (
    Committed,
    Edge,
    GroupOptions,
    GroupRecord,
    Position,
    Since,
    TopicPartition,
)
from penstock.broker.names import check_partition
from penstock.broker.pattern_topics import PatternTopics
from penstock.broker.watches import WatchTopics
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .cluster import KafkaCluster
from .driver.group_consumer import GroupConsumer
from .driver.group_consumers import GroupConsumers
from .driver.record import At, Record
from .framing import Framing, UnknownSchemas, version_of
from .headers import split_headers
from .internal import owner_group
from .schema_registry.formats import FramedSchemas
from .topics import KafkaTopics

FOLLOW_S: Final = 1.0  # between looks for topics that match a pattern, within a fetch
_MISSING: Final = (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)


class KafkaGroupMembers:
    """`broker.Groups`."""

    def __init__(self, cluster: KafkaCluster, topics: KafkaTopics, watch: WatchTopics) -> None:
        self._cluster = cluster
        self._topics = topics
        self._watch = watch
        self._consumers = GroupConsumers(cluster.clients, cluster.tasks)

    async def join(self, group: str, options: GroupOptions) -> "KafkaGroupMember":
        if not group:
            raise PenstockError(ErrorKind.BAD_PARAMETER, "a consumer group has a name")
        if group == owner_group(self._cluster.settings):
            raise PenstockError(
                ErrorKind.FORBIDDEN, f"consumer group {group} belongs to the processes of this server"
            )
        consumer = self._consumers.make(
            group, client_id=options.name, reset=options.start.value, auto_commit=options.auto_commit
        )
        return KafkaGroupMember(self._cluster, self._topics, self._watch, consumer)

    async def close(self) -> None:
        """Close all members: they leave their groups."""
        await self._consumers.close()


class KafkaGroupMember:
    """`broker.GroupMember`."""

    close_reason: PenstockError | None = None

    def __init__(
        self, cluster: KafkaCluster, topics: KafkaTopics, watch: WatchTopics, consumer: GroupConsumer
    ) -> None:
        self.owner: str | None = None
        self.proxy: str | None = None
        self._cluster = cluster
        self._topics = topics
        self._watch = watch
        self._consumer = consumer
        self._names: dict[str, TopicName] = {}  # of the topics that it reads, by Kafka's
        self._subscribed: Sequence[TopicName] = ()
        self._pattern: PatternTopics | None = None

    @property
    def closed(self) -> bool:
        return self._consumer.closed

    @property
    def topics(self) -> Sequence[TopicName]:
        return self._subscribed

    @property
    def assignment(self) -> Sequence[TopicPartition]:
        return sorted(TopicPartition(self._names[topic], number) for topic, number in self._consumer.assigned)

    def _at(self, one: TopicPartition) -> At:
        return self._topics.naming.kafka_name(one.topic), one.partition

    # -- partitions

    async def subscribe(self, topics: Sequence[TopicName]) -> None:
        names = {self._topics.naming.kafka_name(name): name for name in topics}
        for name in names.values():
            try:
                await self._topics.ensure(name)
            except PenstockError as error:
                if error.kind not in _MISSING:
                    raise
        self._end_pattern()
        await self._read(names)

    async def subscribe_pattern(self, pattern: str, allowed: Callable[[TopicName], bool]) -> None:
        made = PatternTopics(self._topics, self._watch, pattern, allowed)
        self._end_pattern()
        self._pattern = made
        await self._follow(made)

    async def _follow(self, pattern: PatternTopics) -> None:
        names = await pattern.names()
        if names != self._subscribed:
            await self._read({self._topics.naming.kafka_name(name): name for name in names})

    async def _read(self, names: dict[str, TopicName]) -> None:
        self._names |= names  # the former ones as long as it has their partitions
        await self._consumer.subscribe(names)
        self._names, self._subscribed = names, sorted(names.values())

    def _end_pattern(self) -> None:
        pattern, self._pattern = self._pattern, None
        if pattern is not None:
            pattern.close()

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            await self._topics.ensure(one.topic, create=False)
            check_partition(one.partition, self._topics.partitions(one.topic) or 1)
        self._end_pattern()
        names = {self._topics.naming.kafka_name(one.topic): one.topic for one in partitions}
        self._names |= names
        await self._consumer.assign([self._at(one) for one in partitions])
        self._names, self._subscribed = names, ()

    async def unsubscribe(self) -> None:
        self._end_pattern()
        await self._read({})

    # -- positions

    async def seek(self, positions: Mapping[TopicPartition, Position]) -> None:
        admin = self._cluster.admin
        found: dict[At, int] = {}
        edges: dict[Edge, list[At]] = {}
        times: dict[int, list[At]] = {}
        for one, position in positions.items():
            if isinstance(position, Edge):
                edges.setdefault(position, []).append(self._at(one))
            elif isinstance(position, Since):
                times.setdefault(position.timestamp, []).append(self._at(one))
            else:
                found[self._at(one)] = position
        for timestamp, places in times.items():
            for place, offset in (await admin.at_time(places, max(0, timestamp))).items():
                if offset < 0:
                    edges.setdefault(Edge.END, []).append(place)
                else:
                    found[place] = offset
        for edge, places in edges.items():
            found |= await (admin.begins if edge is Edge.BEGINNING else admin.ends)(places)
        await self._consumer.seek(found)

    async def commit(self, offsets: Mapping[TopicPartition, Committed] | None = None) -> None:
        await self._consumer.commit(
            None
            if offsets is None
            else {self._at(one): (given.offset, given.metadata) for one, given in offsets.items()}
        )

    async def committed(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        wanted = {self._at(one): one for one in partitions}
        found = await self._consumer.committed(list(wanted), self._cluster.timeout_s)
        return {wanted[at]: Committed(offset, text) for at, (offset, text) in found.items()}

    # -- records

    async def fetch(self, wait_ms: int, bytes_max: int, bytes_min: int = 0) -> list[GroupRecord]:
        until = monotonic() + wait_ms / 1000
        while True:
            left = max(0.0, until - monotonic())
            if self._pattern is not None:
                await self._follow(self._pattern)
            await self._consumer.wait(left if self._pattern is None else min(left, FOLLOW_S), bytes_min)
            if left > FOLLOW_S and not self._consumer.holds(bytes_min):
                continue
            found = self._consumer.peek(bytes_max)
            try:
                records = self._open(found)
            except _UnknownSchemasOf as unknown:
                await unknown.registry.learn_ids(unknown.topic, unknown.schemas)
                continue  # the keeper may have used the consumer since
            self._consumer.take(len(found))
            if records:
                return records
            if left <= 0:
                break
        if self._cluster.problem is not None:
            raise PenstockError(ErrorKind.UNAVAILABLE, self._cluster.problem)
        return []

    def _open(self, found: Sequence[Record]) -> list[GroupRecord]:
        records: list[GroupRecord] = []
        registry = self._topics.registry
        for kafka, run in groupby(found, lambda record: record.topic()):
            topic = self._names[kafka]
            try:
                framing = None if registry is None else registry.framing(topic)
                records += _opened(topic, list(run), framing)
            except UnknownSchemas as unknown:
                assert registry is not None
                raise _UnknownSchemasOf(registry, topic, unknown) from None
        return records

    async def close(self) -> None:
        if not self.closed:
            self._end_pattern()
            await self._consumer.close()


class _UnknownSchemasOf(Exception):
    def __init__(self, registry: FramedSchemas, topic: TopicName, schemas: UnknownSchemas) -> None:
        super().__init__(str(topic))
        self.registry = registry
        self.topic = topic
        self.schemas = schemas


def _opened(topic: TopicName, found: Sequence[Record], framing: Framing | None) -> list[GroupRecord]:
    """Records of a topic as they are stored, with the versions of their schemas; raises UnknownSchemas."""
    keys, values = [record.key() for record in found], [record.value() for record in found]
    headers = [record.headers() for record in found]
    versions: Sequence[int | None] | None = None
    frames: Sequence[tuple[int, int]] | None = None
    if framing is not None:
        opened_keys, opened_values = [*keys], [*values]
        versions = framing.open(opened_keys, opened_values, headers)
        if versions is not None:
            frames = [
                (len(key or b"") - len(opened_key or b""), len(value or b"") - len(opened_value or b""))
                for key, opened_key, value, opened_value in zip(
                    keys, opened_keys, values, opened_values, strict=True
                )
            ]
    records = [
        GroupRecord(
            topic=topic,
            partition=record.partition(),
            offset=record.offset(),
            timestamp=record.timestamp()[1],
            key=key,
            value=value,
        )
        for record, key, value in zip(found, keys, values, strict=True)
    ]
    if versions is not None and frames is not None:
        for one, version, (key_frame, value_frame) in zip(records, versions, frames, strict=True):
            one.schema_version, one.key_frame, one.value_frame = version, key_frame, value_frame
    for one, some in zip(records, headers, strict=True):
        if some:
            said, one.headers = split_headers(some)
            version = said.message.schema_version
            one.schema_version = (
                version if framing is None else version_of(version, one.schema_version, own=framing.own)
            )
            one.timestamp = said.message.event_time or one.timestamp
    return records

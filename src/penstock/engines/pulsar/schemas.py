"""The schemas of topics before a cluster, as learned (PIP-43).

Versions never change, so each is asked for once. Which one is the newest is what `learn` found last. Whether a schema may
follow another is the cluster's own decision.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.client.aio.link import Link
from penstock.client.errors import IncompatibleSchema, PulsarException, TopicNotFound, server_error
from penstock.client.session.commands import schema_info, wire_schema
from penstock.engines.attached.errors import own_error
from penstock.engines.shared.schemas import check_schema, schema_needed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType, SchemaVersion
from penstock.model.target import Target
from penstock.wire.metadata import schema_version_bytes, schema_version_number
from penstock.wire.pulsar_pb2 import CommandGetOrCreateSchema, CommandGetSchema

from .cluster import PulsarCluster

LEARNED_MAX: Final = 256  # of the newest versions are learned before a message names them
TOPICS_MAX: Final = 10_000  # whose schemas are remembered


class _Known(msgspec.Struct):
    """The learned schemas of a topic. A version that is None does not exist."""

    newest: SchemaVersion | None = None
    versions: dict[int, SchemaVersion | None] = {}
    unversioned: bool = True  # whether messages without a schema may go


class Schemas:
    """`broker.Schemas`, from learned schemas."""

    partial = True

    def __init__(self, cluster: PulsarCluster, bytes_max: int) -> None:
        self.changes = 0
        self._cluster = cluster
        self._bytes_max = bytes_max
        self._topics: dict[TopicName, _Known] = {}
        self._followers: list[Callable[[TopicName], None]] = []

    # -- learning

    async def learn(self, topic: TopicName) -> None:
        """Learn the newest schema and those before it, none if the topic does not exist. Raises refusals of the cluster."""
        found = await self._ask(await self._link(topic), topic, None)
        known = self._known(topic)
        if found is None or found.deleted:
            if found is not None:
                known.versions[found.version] = found
            self._set_newest(topic, known, None)
            return
        held = known.newest
        if held is not None and held.version == found.version and held.schema == found.schema:
            return
        if held is not None and held.version >= found.version:
            known.versions.clear()  # the topic was deleted, and is another now
        known.versions[found.version] = found
        self._set_newest(topic, known, found)
        await self.fetch(topic, *range(max(0, found.version - LEARNED_MAX), found.version))

    refresh = learn

    def knows(self, topic: TopicName, number: int) -> bool:
        """Whether `version` can answer."""
        known = self._topics.get(topic.base)
        return known is not None and number in known.versions

    async def fetch(self, topic: TopicName, *numbers: int) -> None:
        """Learn versions that messages name, before the messages are handed on. Raises what the cluster refuses."""
        known = self._known(topic)
        missing = [number for number in numbers if number not in known.versions]
        if missing:
            link = await self._link(topic)
            found = await asyncio.gather(*(self._ask(link, topic, number) for number in missing))
            known.versions.update(zip(missing, found, strict=True))

    def forget(self, topic: TopicName) -> None:
        """The topic is deleted."""
        if self._topics.pop(topic.base, None) is not None:
            self._changed(topic)

    def require_version(self, topic: TopicName) -> None:
        """The cluster takes no messages without a schema on this topic."""
        self._known(topic).unversioned = False

    def _known(self, topic: TopicName) -> _Known:
        known = self._topics.get(topic.base)
        if known is None:
            if len(self._topics) >= TOPICS_MAX:
                del self._topics[next(iter(self._topics))]
            known = self._topics[topic.base] = _Known()
        return known

    def _set_newest(self, topic: TopicName, known: _Known, newest: SchemaVersion | None) -> None:
        if known.newest is not newest:
            known.newest = newest
            self._changed(topic)

    def _changed(self, topic: TopicName) -> None:
        self.changes += 1
        for changed in self._followers:
            changed(topic.base)

    async def _link(self, topic: TopicName) -> Link:
        try:
            return await self._cluster.context.lookup.link(str(topic.base))
        except PulsarException as error:
            raise own_error(error, str(topic.base)) from None

    async def _ask(self, link: Link, topic: TopicName, number: int | None) -> SchemaVersion | None:
        """One version, or the newest; None if there is none."""
        wanted = None if number is None else schema_version_bytes(number)
        command = CommandGetSchema(topic=str(topic.base), schema_version=wanted)
        try:
            answer = await link.ask(command, self._cluster.timeout_s)
            if answer.HasField("error_code"):
                raise server_error(answer.error_code, answer.error_message)
        except TopicNotFound:
            return None
        except PulsarException as error:
            raise own_error(error, str(topic.base)) from None
        version = schema_version_number(answer.schema_version)
        found = number if version is None else version
        if found is None:
            return None
        schema = schema_info(answer.schema)
        return SchemaVersion(found, schema, deleted=schema.type is SchemaType.NONE)  # what a deletion leaves

    # -- reading

    def follow(self, changed: Callable[[TopicName], None]) -> None:
        self._followers.append(changed)
        for topic in list(self._topics):
            changed(topic)

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        known = self._topics.get(topic.base)
        return None if known is None else known.newest

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        known = self._topics.get(topic.base)
        found = None if known is None else known.versions.get(number)
        if found is None or found.deleted:
            raise _no_version(topic, number)
        return found

    async def key_prefix(self, topic: TopicName, number: int) -> bytes:
        return b""

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        known = self._known(topic)
        if known.versions.get(number) is None:
            known.versions.pop(number, None)  # it may have come since
            await self.fetch(topic, number)
        return self.version(topic, number)

    def get(self, topic: TopicName, number: int | None = None) -> SchemaVersion:
        if number is not None:
            for one in self.all(topic):
                if one.version == number:
                    return one
            raise _no_version(topic, number)
        newest = self.latest(topic)
        if newest is None:
            raise PenstockError(ErrorKind.SCHEMA_NOT_FOUND, "Schema not found")
        return newest

    def all(self, topic: TopicName, *, deleted: bool = False) -> list[SchemaVersion]:
        known = self._topics.get(topic.base)
        found = () if known is None else known.versions.values()
        every = sorted((one for one in found if one is not None), key=lambda one: one.version)
        if not deleted:
            last = max((one.version for one in every if one.deleted), default=-1)
            every = [one for one in every if one.version > last]
        return [one for one in every if not one.deleted]

    def find(self, topic: TopicName, schema: SchemaInfo) -> int | None:
        from penstock.codec.definition import same

        if self.latest(topic) is None:
            return None
        for version in reversed(self.all(topic)):
            if version.schema == schema or same(version.schema, schema):
                return version.version
        return None

    # -- the cluster decides

    def strategy(self, topic: TopicName) -> Compatibility:
        return Compatibility.UNDEFINED

    async def objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        return None

    def check_next(self, topic: TopicName, schema: SchemaInfo | None) -> None:
        """The cluster checks a schema when it is registered."""
        known = self._topics.get(topic.base)
        if schema is None and known is not None and not known.unversioned:
            raise schema_needed(topic)

    async def check_consumer(self, topic: TopicName, schema: SchemaInfo, *, used: bool) -> None:
        """Nothing to do: the cluster checks it when the consumer subscribes."""

    def check(self, topic: TopicName, schema: SchemaInfo) -> None:
        check_schema(schema, self._bytes_max)

    # -- changing

    async def get_or_create(
        self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False, checked: bool = False
    ) -> int | None:
        if schema.type in (SchemaType.NONE, SchemaType.BYTES):
            self.check_next(topic, None)
            return None
        found = self.find(topic, schema)
        if found is not None:
            return found
        self.check(topic, schema)
        number = await self._register(topic, schema)
        if number is not None and not self.knows(topic, number):
            await self.learn(topic)  # what the cluster has, as others see it
            await self.fetch(topic, number)
        return number

    async def _register(self, topic: TopicName, schema: SchemaInfo) -> int | None:
        context, command = self._cluster.context, CommandGetOrCreateSchema(schema=wire_schema(schema))
        try:
            command.topic = await self._served(topic)
            link = await context.lookup.link(command.topic)
            answer = await link.ask(command, self._cluster.timeout_s)
            if answer.HasField("error_code"):
                raise server_error(answer.error_code, answer.error_message)
        except IncompatibleSchema as error:
            raise own_error(error) from None
        except PulsarException as error:
            raise own_error(error, str(topic.base)) from None
        return schema_version_number(answer.schema_version)

    async def _served(self, topic: TopicName) -> str:
        """A topic that a broker serves: of a partitioned one, a partition."""
        if topic.partition >= 0:
            return str(topic)
        partitions = await self._cluster.context.lookup.partitions(str(topic))
        return str(topic.of_partition(0)) if partitions else str(topic)

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        base = topic.base
        target = Target.of_schemas(base, "schema")
        answer = await self._cluster.admin.call(
            "DELETE", target, missing=ErrorKind.SCHEMA_NOT_FOUND, force=str(force).lower()
        )
        if force:
            self.forget(topic)
        await self.learn(topic)
        return int(answer.get("version", -1)) if isinstance(answer, dict) else -1


def _no_version(topic: TopicName, number: int) -> PenstockError:
    return PenstockError(ErrorKind.SCHEMA_NOT_FOUND, f"{topic} has no schema version {number}")

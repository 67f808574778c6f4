"""The schemas of topics in a registry, and in documents those of types that a registry does not hold.

What is asked of them at once is what was learned last. A version that the registry numbers never changes. Whether one may
follow another is the registry's own decision.
"""

import asyncio
from typing import Final

from penstock.broker.settings import ClusterSettings
from penstock.broker.topic import MetaStore
from penstock.engines.kafka.framing import Framing, UnknownSchemas
from penstock.engines.kafka.naming import Naming
from penstock.engines.kafka.versions import BY_ID, DOCUMENTS, MESSAGE, is_document, pair
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.documents import DocumentReader
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType, SchemaVersion
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .client import Definition, RegistryClient
from .definitions import Outgoing, of_registry, to_registry
from .learning import Learning
from .topic import Part, SubjectNames, TopicSchemas, parts_of

REGISTER_MS: Final = 20_000  # so long a publish waits for its schema's registering, at most


class RegistrySchemas(Schemas):
    """`broker.Schemas`, and `broker.OtherRegistry`."""

    def __init__(
        self,
        settings: ClusterSettings,
        store: MetaStore,
        namespaces: Namespaces,
        naming: Naming,
        clock: Clock,
        bytes_max: int,
        tasks: Tasks,
        failures: Failures,
    ) -> None:
        """Raises BAD_PARAMETER for settings that cannot be used."""
        reader = DocumentReader(failures)
        super().__init__(store, namespaces, clock, bytes_max, first=DOCUMENTS, reader=reader)
        self._client = RegistryClient(settings)
        self.pass_on = self._client.pass_on
        self._naming = naming
        self._names = SubjectNames(settings.schema_registry_subjects, naming.kafka_name)
        self._learning = Learning(self._client, self._names, clock, tasks, failures)
        self._learning.changed = self._note_change

    def _note_change(self) -> None:
        self.changes += 1

    def framing(self, topic: TopicName) -> Framing:
        """The framing of a topic's values."""
        return self._learning.topic(topic).framing

    async def learn(self, topic: TopicName) -> None:
        """Learn the newest schema and those before it; where the registry is away, what was learned last counts."""
        await self._learning.learn(topic)

    async def learn_ids(self, topic: TopicName, unknown: UnknownSchemas) -> None:
        """Learn the meaning of ids in front of values and keys; never fails, and afterwards each is known or guessed."""
        await self._learning.learn_ids(self._learning.topic(topic), unknown)

    def topic_of(self, subject: str) -> TopicName | None:
        """As `broker.OtherRegistry.topic_of`: by the name of the topic in Kafka."""
        if not self._names.by_topic or not subject.endswith(("-value", "-key")):
            return None
        return self._naming.topic_name(subject.rpartition("-")[0])

    def subject_of(self, topic: TopicName, end: str) -> str:
        """As `broker.OtherRegistry.subject_of`."""
        return self._naming.kafka_name(topic.base) + end

    # -- reading

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        return self._learning.topic(topic).newest or super().latest(topic)

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        found = self._learning.topic(topic).known(number)
        return super().version(topic, number) if found is None else found

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        held = self._learning.topic(topic)
        if held.known(number) is None and number >= 0 and not is_document(number):
            await self._learning.find(held, number)
        return self.version(topic, number)

    async def key_prefix(self, topic: TopicName, number: int) -> bytes:
        await self.find_version(topic, number)
        return self.framing(topic).frame(b"", None, number)[0] or b""

    def get(self, topic: TopicName, number: int | None = None) -> SchemaVersion:
        held = self._learning.topic(topic)
        found = held.newest if number is None else held.known(number)
        return super().get(topic, number) if found is None else found

    def all(self, topic: TopicName, *, deleted: bool = False) -> list[SchemaVersion]:
        if not deleted:
            return self._live(topic)
        held = self._learning.topic(topic).values
        return [*super().all(topic, deleted=True), *(held[number] for number in sorted(held))]

    def _live(self, topic: TopicName) -> list[SchemaVersion]:
        held = self._learning.topic(topic)
        values = [held.values[number] for number in held.live if number in held.values]
        if held.newest is not None and held.newest not in values:
            values.append(held.newest)
        return [*super()._live(topic), *values]

    def find(self, topic: TopicName, schema: SchemaInfo) -> int | None:
        found = self._learning.topic(topic).find(schema)
        return super().find(topic, schema) if found is None else found

    # -- the registry decides

    def strategy(self, topic: TopicName) -> Compatibility:
        held = self._learning.topic(topic)
        return held.strategy if held.newest is not None else super().strategy(topic)

    def check_next(
        self, topic: TopicName, schema: SchemaInfo | None, *, forced: bool = False, checked: bool = False
    ) -> None:
        if schema is None or not self._in_registry(schema):
            super().check_next(topic, schema, forced=forced, checked=checked)

    def _in_registry(self, schema: SchemaInfo) -> bool:
        if schema.type is SchemaType.KEY_VALUE:
            parts = parts_of(schema)
            if parts is None or not self._names.by_topic:
                return False
            key, value = map(to_registry, parts)
            return key is not None and value is not None and not value.message
        return to_registry(schema) is not None

    async def objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        if not self._in_registry(schema):
            return await super().objection(topic, schema)
        if schema.type is not SchemaType.KEY_VALUE:
            return await self._objection_of(topic, schema, "value")
        key, value = parts_of(schema) or (schema, schema)
        why = await self._objection_of(topic, key, "key")
        return f"key: {why}" if why else await self._objection_of(topic, value, "value")

    # -- changing

    async def get_or_create(
        self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False, checked: bool = False
    ) -> int | None:
        held = self._learning.topic(topic)
        if not self._in_registry(schema):
            if not held.learned:  # a topic may have schemas in the registry, which this one may not follow
                await self._learning.ask(held)
            elif self.find(topic, schema) is None:
                await self.learn(topic)
            return await super().get_or_create(topic, schema, forced=forced)
        found = self.find(topic, schema)
        if found is not None:
            return found
        self.check(topic, schema)
        try:
            async with asyncio.timeout(REGISTER_MS / 1000), self._locks.hold(held.value):
                version = await self._get_or_register(topic, held, schema, forced=forced)
                await self._learning.ask(held)
                return version
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE, "the schema registry takes too long to take a schema: try again"
            ) from None

    async def _get_or_register(
        self, topic: TopicName, held: TopicSchemas, schema: SchemaInfo, *, forced: bool
    ) -> int:
        parts = parts_of(schema) if schema.type is SchemaType.KEY_VALUE else None
        if parts is None:
            return await self._registered(topic, held, schema, "value", forced=forced)
        key = await self._registered(topic, held, parts[0], "key", forced=forced)
        found = pair(key, await self._registered(topic, held, parts[1], "value", forced=forced))
        if found is None:
            raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"{held.key} has too many versions")
        return found

    async def _registered(
        self, topic: TopicName, held: TopicSchemas, schema: SchemaInfo, part: Part, *, forced: bool
    ) -> int:
        """The version of a part's schema, which is registered where it is not."""
        outgoing = _outgoing(schema)
        name = self._names.of_schema(topic, outgoing, part)
        definition = await self._with_imports(outgoing, register=False)
        found = None if definition is None else await self._client.lookup(name, definition)
        if found is None:
            if not (forced or self._policies(topic).schema_auto_update):
                raise PenstockError(
                    ErrorKind.INCOMPATIBLE_SCHEMA, "Schema not found and schema auto updating is disabled."
                )
            definition = await self._with_imports(outgoing, register=True) or outgoing.definition
            found = await self._learning.references.register(name, definition)
        known = of_registry(outgoing.definition, {file.name: file.text for file in outgoing.imports})
        if part == "key":
            held.add_key(found.id, found.version, known)
            return found.version
        version = found.version if self._names.by_topic else BY_ID + found.id
        held.add(found.id, version, known)
        if not self._names.by_topic and version not in held.live:
            held.live.append(version)  # as far as this process has met them
        return version + outgoing.message * MESSAGE

    async def _with_imports(self, outgoing: Outgoing, *, register: bool) -> Definition | None:
        direct = outgoing.file.imports if outgoing.file else ()
        return await self._learning.references.imported(
            outgoing.definition, direct, outgoing.imports, register=register
        )

    async def _objection_of(self, topic: TopicName, schema: SchemaInfo, part: Part) -> str | None:
        outgoing = _outgoing(schema)
        definition = await self._with_imports(outgoing, register=False)
        if definition is None:  # what it imports is not registered: the registry cannot be asked
            return await super().objection(topic, schema)
        return await self._client.objection(self._names.of_schema(topic, outgoing, part), definition)

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        held = self._learning.topic(topic)
        await self._learning.ask(held)
        if held.newest is None:
            return await super().delete(topic, force=force)
        deleted = await self._client.delete(held.value, permanent=force)
        if held.live_keys:
            await self._client.delete(held.key, permanent=force)
        if force:
            held.forget()
        await self._learning.ask(held)
        return max(deleted, default=-1)

    async def forget(self, topic: TopicName) -> None:
        """The topic is deleted. Its subjects stay, as others may use them."""
        await super().forget(topic)
        self._learning.forget(topic)

    async def close(self) -> None:
        """Ask the registry no more."""
        await self._client.close()


def _outgoing(schema: SchemaInfo) -> Outgoing:
    found = to_registry(schema)
    assert found is not None, schema.type
    return found

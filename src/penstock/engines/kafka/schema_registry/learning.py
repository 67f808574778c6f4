"""What a registry knows of topics' schemas, learned before it is asked for at once."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from penstock.codec.proto.native import ProtoFile
from penstock.engines.kafka.framing import UnknownSchemas
from penstock.engines.kafka.versions import BY_ID, DOCUMENTS, split_message, split_pair
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo
from penstock.runtime.clock import Clock
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks

from .client import Definition, Reference, Registered, RegistryClient
from .definitions import of_registry
from .topic import KEYS, Part, SubjectNames, TopicSchemas

log = logging.getLogger(__name__)

REFERENCES_MAX: Final = 200  # that one schema uses, also through others
REMEMBERED: Final = 1000
TRIES: Final = 10  # to register a schema beside other processes
TOPICS_MAX: Final = 10_000  # whose schemas are remembered
LEARNED_MAX: Final = 256  # of the newest versions are learned before a message names them
IDS_AT_ONCE: Final = 16  # that the registry is asked for
AWAY_MS: Final = 5_000  # so long a registry that did not answer is not waited for
REGISTRY: Final = "schema registry"  # the subject of its failures


class References:
    """Asks the registry for schemas by subject and version, which never change."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, int], Definition] = OrderedDict()

    async def of(self, definition: Definition) -> dict[str, str]:
        """The texts that a schema uses, also through others, by the names they are used by.

        Raises BAD_VALUE_SCHEMA if one is not there, and as the client.
        """
        found: dict[str, str] = {}
        waiting = list(definition.references)
        while waiting:
            one = waiting.pop()
            if one.name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise PenstockError(
                    ErrorKind.BAD_VALUE_SCHEMA, f"a schema that uses more than {REFERENCES_MAX} others"
                )
            used = await self._get(one)
            found[one.name] = used.text
            waiting += used.references
        return found

    async def _get(self, one: Reference) -> Definition:
        place = one.subject, one.version
        known = self._known.get(place)
        if known is None:
            held = await self._client.version(*place)
            if held is None:
                raise PenstockError(
                    ErrorKind.BAD_VALUE_SCHEMA,
                    f"a schema uses version {one.version} of {one.subject}, which is not there",
                )
            known = self._known[place] = held.definition
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def imported(
        self, definition: Definition, direct: Sequence[str], files: Sequence[ProtoFile], *, register: bool
    ) -> Definition | None:
        """A Protobuf schema with the files it imports as references: each is a subject of its name, as Confluent's
        serializers have it. None if one is not registered and `register` is off.
        """
        held: dict[str, Reference] = {}
        for file in files:
            used = tuple(held[name] for name in file.imports if name in held)
            imported = Definition("PROTOBUF", file.text, used)
            found = await self._client.lookup(file.name, imported)
            if found is None:
                if not register:
                    return None
                found = await self.register(file.name, imported)
            held[file.name] = Reference(file.name, file.name, found.version)
        references = tuple(held[name] for name in direct if name in held)
        return Definition(definition.type, definition.text, references)

    async def register(self, subject: str, definition: Definition) -> Registered:
        """Register a schema that was not found; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA, UNAVAILABLE."""
        for _ in range(TRIES):
            refused: PenstockError | None = None
            try:
                await self._client.register(subject, definition)
            except PenstockError as error:
                if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA:
                    raise
                refused = error
            held = await self._client.lookup(subject, definition)
            if held is not None:
                return held
            if refused is not None and await self._client.objection(subject, definition) is not None:
                raise refused
            # Another process registered at the same time, which a registry may answer with the same status.
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the schema registry does not take the schema of {subject}: try again"
        )


class Learning:
    """`changed` is called with each topic that has another newest schema."""

    def __init__(
        self,
        client: RegistryClient,
        names: SubjectNames,
        clock: Clock,
        tasks: Tasks,
        failures: Failures,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.references = References(client)
        self._client = client
        self._names = names
        self._clock = clock
        self._tasks = tasks
        self._failures = failures
        self._topics: OrderedDict[TopicName, TopicSchemas] = OrderedDict()
        self.away = False  # the registry did not answer when it was asked last: it is waited for elsewhere
        self._later: dict[tuple[TopicName, bytes], None] = {}  # ids to be learned when the registry is back

    def topic(self, topic: TopicName) -> TopicSchemas:
        """What is known of a topic."""
        base = topic.base
        found = self._topics.get(base)
        if found is None:
            if len(self._topics) >= TOPICS_MAX:
                self._topics.popitem(last=False)
            found = self._topics[base] = TopicSchemas(base, self._names, self._clock)
        return found

    def forget(self, topic: TopicName) -> None:
        """A topic is deleted."""
        self._failures.dropped(FailureKind.SCHEMA, _subject(topic))
        if self._topics.pop(topic.base, None) is not None:
            self.changed()

    def _note(self, topic: TopicName, error: PenstockError) -> None:
        """Report an error: one failure for a registry that does not answer, and one per topic that it refuses."""
        if error.kind is not ErrorKind.UNAVAILABLE:
            self._failures.failed(FailureKind.SCHEMA, _subject(topic), error.message)
            return
        self._failures.failed(FailureKind.SCHEMA, REGISTRY, error.message)
        if not self.away:
            self.away = True
            self._tasks.spawn(self._until_back(), "wait for the schema registry")

    async def _until_back(self) -> None:
        """Ask until the registry answers, so that nobody else waits for it; then learn what was left."""
        while self.away:
            await asyncio.sleep(AWAY_MS / 1000)
            try:
                await self._client.answers()
            except PenstockError as error:
                self._failures.failed(FailureKind.SCHEMA, REGISTRY, error.message)
            else:
                self.away = False
        self._failures.recovered(FailureKind.SCHEMA, REGISTRY)
        await self._learn_left()

    async def _learn_left(self) -> None:
        for topic, head in list(self._later):
            if self.away:
                return
            del self._later[topic, head]
            await self._learn_id(self.topic(topic), head)

    # -- subjects

    async def learn(self, topic: TopicName) -> None:
        """Learn the newest schema and those before it; where the registry is away, what was learned last counts."""
        if self.away:
            return
        try:
            await self.ask(self.topic(topic))
        except PenstockError as error:
            self._note(topic, error)
        else:
            self._failures.recovered(FailureKind.SCHEMA, _subject(topic))

    async def ask(self, topic: TopicSchemas) -> None:
        """Learn a topic's schemas; raises as the client."""
        if not self._names.by_topic:  # what is written and read is met by its id
            topic.learned = True
            return
        newest, newest_key, topic.strategy = await asyncio.gather(
            self._client.latest(topic.value),
            self._client.latest(topic.key),
            self._client.strategy(topic.value),
        )
        await self._ask_keys(topic, newest_key)
        known = None if newest is None or newest.version not in topic.live else newest.version
        if newest is None:
            topic.live.clear()
        elif known is None and ("value", newest.version) not in topic.odd:
            known = await self._ask_versions(topic, newest)
        if topic.set_newest(known):
            self.changed()
        topic.learned = True

    async def _ask_versions(self, topic: TopicSchemas, newest: Registered) -> int | None:
        live = await self._learn_all(topic, "value", newest)
        topic.live = sorted(one for one in live if one in topic.values)
        return newest.version if newest.version in topic.values else None

    async def _ask_keys(self, topic: TopicSchemas, newest: Registered | None) -> None:
        topic.framing.keyed = newest is not None
        if newest is None:
            topic.live_keys.clear()
        elif newest.version not in topic.live_keys and ("key", newest.version) not in topic.odd:
            live = await self._learn_all(topic, "key", newest)
            topic.live_keys = sorted(one for one in live if one in topic.keys)

    async def _learn_all(self, topic: TopicSchemas, part: Part, newest: Registered) -> list[int]:
        """Learn the versions of a subject that are not known yet; returns those that are not deleted."""
        subject, known = (
            (topic.key, topic.keys.keys()) if part == "key" else (topic.value, topic.values.keys())
        )
        await self.add(topic, part, newest)
        live = await self._client.versions(subject)
        missing = [one for one in live if one not in known and (part, one) not in topic.odd][-LEARNED_MAX:]
        for at in range(0, len(missing), IDS_AT_ONCE):
            some = missing[at : at + IDS_AT_ONCE]
            for found in await asyncio.gather(*(self._client.version(subject, one) for one in some)):
                if found is not None:
                    await self.add(topic, part, found)
        return live

    async def add(self, topic: TopicSchemas, part: Part, found: Registered) -> None:
        """A version of a subject is known; one that is not understood is left out."""
        subject = topic.key if part == "key" else topic.value
        schema = await self._understood(found.definition, f"version {found.version} of {subject}")
        if schema is None or (part == "key" and schema.type not in KEYS):
            topic.odd.add((part, found.version))
        elif part == "key":
            topic.add_key(found.id, found.version, schema)
        else:
            topic.add(found.id, found.version, schema)

    async def _understood(self, definition: Definition, what: str) -> SchemaInfo | None:
        """The schema of a definition; None, and a line in the log, if it is not understood here."""
        try:
            return of_registry(definition, await self.references.of(definition))
        except PenstockError as error:
            if error.kind is not ErrorKind.BAD_VALUE_SCHEMA:
                raise
            log.warning("a schema is not understood", extra={"schema": what, "reason": error.message})
            return None

    # -- versions that are asked for by their number

    async def find(self, topic: TopicSchemas, version: int) -> None:
        """Learn a version that is in the registry; raises as the client, also where it did not answer a moment ago."""
        parts = split_pair(version)
        if parts is None:
            await self._find(topic, split_message(version)[0])
            return
        if parts[0] not in topic.keys:
            found = await self._client.version(topic.key, parts[0])
            if found is not None:
                await self.add(topic, "key", found)
        if parts[1]:
            await self._find(topic, parts[1])

    async def _find(self, topic: TopicSchemas, version: int) -> None:
        if topic.known(version) is not None or version >= DOCUMENTS:
            return
        if version >= BY_ID:
            head = (version - BY_ID).to_bytes(4, "big")
            await self._learn_id(topic, head)
            if topic.known(version) is None and self.away:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE,
                    f"the schema registry does not answer, and schema {version - BY_ID} is not known here",
                )
            return
        found = await self._client.version(topic.value, version)
        if found is not None:
            await self.add(topic, "value", found)

    # -- ids in front of values and keys

    async def learn_ids(self, topic: TopicSchemas, unknown: UnknownSchemas) -> None:
        """Learn the meaning of ids in front of values and keys; never fails, and afterwards each is known or guessed."""
        if topic.framing.keyed is None:
            await self.learn(topic.topic)
            if topic.framing.keyed is None:
                topic.framing.keyed = False  # until the registry is back
        await self._learn_some(sorted(unknown.ids), topic, self._learn_id, topic.framing.guess_none)
        await self._learn_some(sorted(unknown.keys), topic, self._learn_key, topic.framing.guess_key)

    async def _learn_some(
        self,
        waiting: list[bytes],
        topic: TopicSchemas,
        learn: Callable[[TopicSchemas, bytes], Awaitable[bool]],
        guess: Callable[[bytes], None],
    ) -> None:
        while waiting:
            part, waiting = waiting[:IDS_AT_ONCE], waiting[IDS_AT_ONCE:]
            found = await asyncio.gather(*(learn(topic, head) for head in part))
            if waiting and not any(found):  # it is no framing, and there is no end of such ids
                for head in waiting:
                    guess(head)
                return

    async def _learn_id(self, topic: TopicSchemas, head: bytes) -> bool:
        """Whether an id is a schema's, or may be."""
        number = int.from_bytes(head, "big")
        if not self.away:
            try:
                return await self._ask_id(topic, number, head)
            except PenstockError as error:
                self._note(topic.topic, error)
        topic.framing.guess(head, BY_ID + number, AWAY_MS)
        if self.away and len(self._later) < TOPICS_MAX:
            self._later[topic.topic, head] = None
        return True

    async def _ask_id(self, topic: TopicSchemas, number: int, head: bytes) -> bool:
        definition = await self._client.by_id(number, topic.value)
        schema = None if definition is None else await self._understood(definition, f"id {number}")
        if schema is None:
            topic.framing.guess_none(head)
            return definition is not None
        version = BY_ID + number
        if self._names.by_topic:
            version = (await self._client.versions_of_id(number)).get(topic.value, version)
        topic.add(number, version, schema)
        return True

    async def _learn_key(self, topic: TopicSchemas, head: bytes) -> bool:
        """Whether an id is one of the keys' subject, or may be."""
        number = int.from_bytes(head, "big")
        if not self.away:
            try:
                version = (await self._client.versions_of_id(number)).get(topic.key)
                found = None if version is None else await self._client.version(topic.key, version)
                if found is not None:
                    await self.add(topic, "key", found)
            except PenstockError as error:
                self._note(topic.topic, error)
        if topic.framing.knows_key(head):
            return True
        topic.framing.guess_key(head, AWAY_MS if self.away else None)
        return self.away


def _subject(topic: TopicName) -> str:
    return f"{topic.base} schemas"

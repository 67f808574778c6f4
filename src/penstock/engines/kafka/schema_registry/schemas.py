"""The schemas of topics in a registry (`{topic}-value`), and in documents those of types that a registry does not hold.

What is asked of them at once is what `learn` found last. A version that the registry numbers never changes. Whether one may
follow another is the registry's own decision.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final

from penstock.broker.topic import MetaStore
from penstock.engines.kafka.framing import BY_ID, DOCUMENTS, Framing
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.schemas import Schemas
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import Compatibility, SchemaInfo, SchemaVersion
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .client import Definition, Registered, RegistryClient
from .definitions import HELD, of_registry, to_registry

log = logging.getLogger(__name__)

TOPICS_MAX: Final = 10_000  # whose schemas are remembered
LEARNED_MAX: Final = 256  # of the newest versions are learned before a message names them
IDS_AT_ONCE: Final = 16  # that the registry is asked for
TRIES: Final = 10  # to register a schema beside other processes
AWAY_MS: Final = 5_000  # so long a registry that did not answer is not waited for


class Subject:
    """What is known of a topic's schemas in the registry."""

    def __init__(self, name: str, topic: TopicName, clock: Clock) -> None:
        self.name = name
        self.learned = False
        self.newest: SchemaVersion | None = None
        self.live: list[int] = []
        self.versions: dict[int, SchemaVersion] = {}  # also those that were deleted, and those by id
        self.framing = Framing(topic, clock)


class RegistrySchemas(Schemas):
    """`broker.Schemas`. `subject_of` names the subject of a topic."""

    def __init__(
        self,
        store: MetaStore,
        namespaces: Namespaces,
        clock: Clock,
        bytes_max: int,
        client: RegistryClient,
        subject_of: Callable[[TopicName], str],
        tasks: Tasks,
    ) -> None:
        super().__init__(store, namespaces, clock, bytes_max, first=DOCUMENTS)
        self._client = client
        self._subject_of = subject_of
        self._tasks = tasks
        self._subjects: OrderedDict[TopicName, Subject] = OrderedDict()
        self._away_until_ms = 0
        self._later: dict[tuple[TopicName, bytes], None] = {}  # ids to be learned when the registry is back

    def framing(self, topic: TopicName) -> Framing:
        """The framing of a topic's values."""
        return self._subject(topic).framing

    def _subject(self, topic: TopicName) -> Subject:
        base = topic.base
        found = self._subjects.get(base)
        if found is None:
            if len(self._subjects) >= TOPICS_MAX:
                self._subjects.popitem(last=False)
            found = self._subjects[base] = Subject(self._subject_of(base), base, self._clock)
        return found

    # -- learning

    async def learn(self, topic: TopicName) -> None:
        """Learn the newest schema and those before it; where the registry is away, what was learned last counts."""
        if self._away:
            return
        try:
            await self._learn(self._subject(topic))
        except PenstockError as error:
            self._note(error)

    @property
    def _away(self) -> bool:
        return self._clock.monotonic_ms() < self._away_until_ms

    def _note(self, error: PenstockError) -> None:
        if not self._away:
            log.warning("schemas cannot be learned", extra={"reason": error.message})
        self._away_until_ms = self._clock.monotonic_ms() + AWAY_MS

    async def _learn(self, subject: Subject) -> None:
        newest = await self._client.latest(subject.name)
        if newest is None:
            subject.live.clear()
            self._set_newest(subject, None)
        elif subject.newest is None or subject.newest.version != newest.version:
            self._add(subject, newest)
            live = await self._client.versions(subject.name)
            missing = [one for one in live if one not in subject.versions][-LEARNED_MAX:]
            for at in range(0, len(missing), IDS_AT_ONCE):
                part = missing[at : at + IDS_AT_ONCE]
                for found in await asyncio.gather(*(self._client.version(subject.name, one) for one in part)):
                    if found is not None:
                        self._add(subject, found)
            subject.live = sorted(one for one in live if one in subject.versions)
            self._set_newest(subject, subject.versions.get(newest.version))
        subject.learned = True

    def _add(self, subject: Subject, found: Registered) -> None:
        schema = of_registry(found.definition)
        if schema is not None and found.version not in subject.versions:
            subject.versions[found.version] = SchemaVersion(found.version, schema)
            subject.framing.know(found.id, found.version)

    def _set_newest(self, subject: Subject, newest: SchemaVersion | None) -> None:
        if subject.newest is not newest:
            subject.newest = newest
            self.changes += 1

    async def learn_ids(self, topic: TopicName, heads: Collection[bytes]) -> None:
        """Learn what ids in front of values mean; never fails, and afterwards each is known or guessed."""
        subject = self._subject(topic)
        waiting = sorted(heads)
        while waiting:
            part, waiting = waiting[:IDS_AT_ONCE], waiting[IDS_AT_ONCE:]
            found = await asyncio.gather(*(self._learn_id(subject, head) for head in part))
            if waiting and not any(found):  # it is no framing, and there is no end of such ids
                for head in waiting:
                    subject.framing.guess(head, None)
                return

    async def _learn_id(self, subject: Subject, head: bytes) -> bool:
        """Whether an id is a schema's, or may be."""
        number, framing = int.from_bytes(head, "big"), subject.framing
        if not self._away:
            try:
                definition = await self._client.by_id(number)
                schema = None if definition is None else of_registry(definition)
                if schema is None:
                    framing.guess(head, None)
                    return definition is not None
                version = (await self._client.versions_of_id(number)).get(subject.name, BY_ID + number)
                subject.versions.setdefault(version, SchemaVersion(version, schema))
                subject.versions.setdefault(BY_ID + number, SchemaVersion(BY_ID + number, schema))
                framing.know(number, version)
                return True
            except PenstockError as error:
                self._note(error)
        framing.guess(head, BY_ID + number, AWAY_MS)
        if not self._later:
            self._tasks.spawn(self._learn_later(), "learn schemas once the registry is back")
        if len(self._later) < TOPICS_MAX:
            self._later[framing.topic, head] = None
        return True

    async def _learn_later(self) -> None:
        while self._later:
            await asyncio.sleep(AWAY_MS / 1000)
            for topic, head in list(self._later):
                number = BY_ID + int.from_bytes(head, "big")
                if not self._away and await self._learn_id(self._subject(topic), head):
                    if number in self._subject(topic).versions:
                        del self._later[topic, head]
                elif not self._away:
                    del self._later[topic, head]  # it is no schema's

    # -- reading

    def latest(self, topic: TopicName) -> SchemaVersion | None:
        return self._subject(topic).newest or super().latest(topic)

    def version(self, topic: TopicName, number: int) -> SchemaVersion:
        found = self._subject(topic).versions.get(number)
        return super().version(topic, number) if found is None else found

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        subject = self._subject(topic)
        if number not in subject.versions and 0 <= number < DOCUMENTS:
            if number >= BY_ID:
                await self._learn_id(subject, (number - BY_ID).to_bytes(4, "big"))
            else:
                found = await self._client.version(subject.name, number)
                if found is not None:
                    self._add(subject, found)
        return self.version(topic, number)

    def get(self, topic: TopicName, number: int | None = None) -> SchemaVersion:
        subject = self._subject(topic)
        if number is not None and number in subject.versions:
            return subject.versions[number]
        return subject.newest if number is None and subject.newest is not None else super().get(topic, number)

    def all(self, topic: TopicName, *, deleted: bool = False) -> list[SchemaVersion]:
        if not deleted:
            return self._live(topic)
        held = self._subject(topic).versions
        return [*super().all(topic, deleted=True), *(held[number] for number in sorted(held))]

    def _live(self, topic: TopicName) -> list[SchemaVersion]:
        subject = self._subject(topic)
        return [*super()._live(topic), *(subject.versions[number] for number in subject.live)]

    # -- the registry decides

    def strategy(self, topic: TopicName) -> Compatibility:
        return Compatibility.UNDEFINED if self._subject(topic).newest is not None else super().strategy(topic)

    async def objection(self, topic: TopicName, schema: SchemaInfo) -> str | None:
        if schema.type not in HELD:
            return await super().objection(topic, schema)
        return await self._client.objection(self._subject(topic).name, to_registry(schema))

    def check_next(self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False) -> None:
        if schema.type not in HELD:
            super().check_next(topic, schema, forced=forced)

    # -- changing

    async def get_or_create(
        self, topic: TopicName, schema: SchemaInfo, *, forced: bool = False
    ) -> int | None:
        subject = self._subject(topic)
        if schema.type not in HELD:
            if not subject.learned:  # a topic may have schemas in the registry, which this one may not follow
                await self._learn(subject)
            return await super().get_or_create(topic, schema, forced=forced)
        found = self.find(topic, schema)
        if found is not None:
            return found
        self.check(topic, schema)
        definition = to_registry(schema)
        async with self._locks.hold(subject.name):
            held = await self._client.lookup(subject.name, definition)
            if held is None:
                held = await self._register(topic, subject, definition, forced=forced)
            self._add(subject, held)
            await self._learn(subject)
        return held.version

    async def _register(
        self, topic: TopicName, subject: Subject, definition: Definition, *, forced: bool
    ) -> Registered:
        if not (forced or self._policies(topic).schema_auto_update):
            raise PenstockError(
                ErrorKind.INCOMPATIBLE_SCHEMA, "Schema not found and schema auto updating is disabled."
            )
        for _ in range(TRIES):
            refused: PenstockError | None = None
            try:
                await self._client.register(subject.name, definition)
            except PenstockError as error:
                if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA:
                    raise
                refused = error
            held = await self._client.lookup(subject.name, definition)
            if held is not None:
                return held
            if refused is not None and await self._client.objection(subject.name, definition) is not None:
                raise refused
            # Another process registered at the same time, which a registry may answer with the same status.
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the schema registry does not take the schema of {topic}: try again"
        )

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        subject = self._subject(topic)
        await self._learn(subject)
        if subject.newest is None:
            return await super().delete(topic, force=force)
        deleted = await self._client.delete(subject.name, permanent=force)
        if force:
            subject.versions.clear()
        await self._learn(subject)
        return max(deleted, default=-1)

    async def forget(self, topic: TopicName) -> None:
        """The topic is deleted. Its subject stays, as others may use it."""
        await super().forget(topic)
        if self._subjects.pop(topic.base, None) is not None:
            self.changes += 1

    async def close(self) -> None:
        """Ask the registry no more."""
        await self._client.close()

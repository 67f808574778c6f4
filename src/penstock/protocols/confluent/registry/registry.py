"""A schema registry with Confluent's rules: registering, looking up, deleting, levels and modes.

Requests are checked against the state (`subjects`) and become records. A write is durable and read before it is answered.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from penstock.broker.registry import RegistryRecord, RegistryRecords
from penstock.codec.registered import TYPES, Schema, incompatibilities
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo
from penstock.model.subjects import (
    BAD_SCHEMA,
    BAD_VERSION,
    INCOMPATIBLE,
    NOT_PERMITTED,
    REFERENCED,
    SCHEMA_NOT_FOUND,
    SUBJECT_DELETED,
    SUBJECT_NOT_DELETED,
    VERSION_DELETED,
    VERSION_MAX,
    VERSION_NOT_DELETED,
    VERSION_NOT_FOUND,
    Definition,
    Level,
    Mode,
    SubjectVersion,
    context_of,
    qualified,
)

from .changes import Changes
from .definitions import Definitions
from .settings import Settings, check_subject, not_found
from .subjects import (
    Subjects,
    config_record,
    gone_record,
    ids_record,
    mode_record,
    schema_key,
    schema_record,
)
from .topics import TopicSubjects, topic_schema


class Registry:
    """The registry over its state and its records, which the state learns. `process` names this process in what it writes."""

    types: Final = TYPES

    def __init__(
        self,
        subjects: Subjects,
        records: RegistryRecords,
        topics: TopicSubjects | None = None,
        process: str = "",
    ) -> None:
        self._subjects = subjects
        self._definitions = Definitions(subjects)
        self._topics = topics
        self._changes = Changes(records, topics, process)
        self.sync = self._changes.sync
        self.settings = Settings(
            subjects, self._changes, (lambda subject: None) if topics is None else topics.level
        )

    @property
    def revision(self) -> int:
        """Changes with every change of the state."""
        return self._subjects.revision

    # -- schemas

    async def register(
        self,
        subject: str,
        wanted: Definition,
        *,
        normalize: bool = False,
        schema_id: int | None = None,
        version: int | None = None,
        forced: bool = True,
    ) -> SubjectVersion:
        """The version of a definition under a subject, registered if it is new.

        `forced`: by an administrator of the topic. `schema_id` and `version` are taken in mode IMPORT. Raises ConfluentError: BAD_SCHEMA, INCOMPATIBLE, NOT_PERMITTED,
        BAD_SUBJECT.
        """
        check_subject(subject)
        for number in (schema_id, version):
            if number is not None and number > VERSION_MAX:
                raise ConfluentError(BAD_SCHEMA, f"{str(number)[:20]} is greater than {VERSION_MAX}")
        found = self.registered(subject, wanted, normalize=normalize, schema_id=schema_id)
        if found is not None:
            return found
        return await self._changes.make(
            lambda: self._register(
                subject, wanted, normalize=normalize, schema_id=schema_id, version=version, forced=forced
            )
        )

    def registered(
        self, subject: str, wanted: Definition, *, normalize: bool = False, schema_id: int | None = None
    ) -> SubjectVersion | None:
        """The version of a definition that a client has registered under a subject. Raises BAD_SCHEMA."""
        definition, schema = self._definitions.read(subject, wanted, normalize=normalize)
        if self._subjects.mode(subject) is Mode.IMPORT and schema_id is not None:
            return None
        found = self._find(subject, definition, schema)
        return None if found is None or not found.registered else found

    async def _register(
        self,
        subject: str,
        wanted: Definition,
        *,
        normalize: bool,
        schema_id: int | None,
        version: int | None,
        forced: bool,
    ) -> SubjectVersion:
        context = context_of(subject)
        definition, schema = self._definitions.read(subject, wanted, normalize=normalize)
        mode = self._subjects.mode(subject)
        if mode is not Mode.IMPORT or schema_id is None:
            found = self._find(subject, definition, schema)
            if found is not None:
                if (
                    not found.registered
                ):  # it came from the topic, or from another registry, so that the topic may lack it
                    found = await self._placed(found, forced=forced)
                    await self._changes.write([schema_record(found)])
                return found
        if mode in (Mode.READONLY, Mode.READONLY_OVERRIDE, Mode.FORWARD):
            raise ConfluentError(NOT_PERMITTED, f"Subject {subject} is in read-only mode")
        if schema_id is not None and schema_id > 0 and mode is not Mode.IMPORT:
            raise ConfluentError(NOT_PERMITTED, f"Subject {subject} is not in import mode")
        last = max((each.version for each in self._subjects.versions(subject, deleted=True)), default=0)
        if version is not None and version > 0 and mode is not Mode.IMPORT and version != last + 1:
            raise ConfluentError(BAD_SCHEMA, "Version is not one more than previous version")
        if mode is not Mode.IMPORT:
            existing = list(self._subjects.versions(subject))
            found_why = self._objections(subject, definition, schema, existing, self.settings.level(subject))
            if found_why:
                raise ConfluentError(
                    INCOMPATIBLE,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f'"{subject}", details: [{"; ".join(found_why)}]',
                )
        given = schema_id if schema_id is not None and schema_id > 0 else None
        number = version if version is not None and version > 0 else last + 1
        found_id = self._id(context, definition, schema, given)
        made = await self._placed(SubjectVersion(subject, number, found_id, definition), forced=forced)
        await self._changes.write([schema_record(made)])
        return made

    async def _placed(self, version: SubjectVersion, *, forced: bool) -> SubjectVersion:
        """A version as a client has registered it, with the schema of its topic that it is."""
        number, at = version.of_topic
        if self._topics is not None and number is None:
            texts = self._definitions.references(version.subject, version.definition)
            number, at = await self._topics.store(version.subject, version.definition, texts, forced=forced)
        return msgspec.structs.replace(version, registered=True, topic_version=number, topic_time=at)

    def _id(self, context: str, definition: Definition, schema: Schema, given: int | None) -> int:
        if given is not None:
            held = self._subjects.holders(context, given)
            if held and not self._definitions.same(held[0], definition, schema):
                raise ConfluentError(NOT_PERMITTED, f"Overwrite new schema with id {given} is not permitted.")
            return given
        known = self._subjects.id_of(context, definition)
        return self._subjects.next_id(context) if known is None else known

    def lookup(
        self, subject: str, wanted: Definition, *, normalize: bool = False, deleted: bool = False
    ) -> SubjectVersion:
        """The version of a subject with the same definition. Raises SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND, BAD_SCHEMA."""
        definition, schema = self._definitions.read(subject, wanted, normalize=normalize)
        self._known(subject, deleted=deleted)
        found = self._find(subject, definition, schema, deleted=deleted)
        if found is None:
            raise ConfluentError(SCHEMA_NOT_FOUND, "Schema not found")
        return found

    def by_id(self, context: str, schema_id: int, subject: str | None = None) -> SubjectVersion:
        """A version that has an id, one of the named subject if it has it. Raises SCHEMA_NOT_FOUND."""
        if subject is not None:
            context = context_of(subject)
        held = self._subjects.holders(context, schema_id)
        if not held:
            raise ConfluentError(SCHEMA_NOT_FOUND, f"Schema {schema_id} not found")
        return next((each for each in held if each.subject == subject), held[0])

    def of_topic(self, subject: str, number: int) -> SubjectVersion | None:
        """The version of a subject that is a version of its topic's schema."""
        every = list(self._subjects.versions(subject, deleted=True))
        return next((one for one in reversed(every) if one.topic_version == number), None)

    def has(self, context: str, schema_id: int) -> bool:
        """Whether a schema with this id is known."""
        return bool(self._subjects.holders(context, schema_id))

    def versions_of(self, context: str, schema_id: int, *, deleted: bool = False) -> list[SubjectVersion]:
        """Every version that has an id. Raises SCHEMA_NOT_FOUND."""
        self.by_id(context, schema_id)
        held = self._subjects.holders(context, schema_id)
        return [each for each in held if deleted or not each.deleted]

    def names(
        self, prefix: str = "", context: str = ".", *, deleted: bool = False, only_deleted: bool = False
    ) -> list[str]:
        """The subjects of a context; `:*:` as prefix asks for those of all contexts."""
        everywhere = prefix.startswith(":*:")
        start = qualified(context, prefix.removeprefix(":*:"))
        found = []
        for name in self._subjects.names():
            if not everywhere and context_of(name) != context_of(start):
                continue
            short = name.rpartition(":")[2] if everywhere else name
            if not short.startswith(prefix.removeprefix(":*:") if everywhere else start):
                continue
            live = any(True for _ in self._subjects.versions(name))
            if (not live) if only_deleted else (live or deleted):
                found.append(name)
        return found

    def versions(
        self, subject: str, *, deleted: bool = False, only_deleted: bool = False
    ) -> list[SubjectVersion]:
        """The versions of a subject. Raises SUBJECT_NOT_FOUND."""
        found = list(self._subjects.versions(subject, deleted=deleted or only_deleted))
        if only_deleted:
            found = [each for each in found if each.deleted]
        if not found:
            raise not_found(subject)
        return found

    def version(self, subject: str, number: str, *, deleted: bool = False) -> SubjectVersion:
        """One version, by its number, `latest` or `-1`. Raises BAD_VERSION, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND."""
        wanted = _number(number)
        if wanted == -1:
            return self.versions(subject, deleted=deleted)[-1]
        self._known(subject, deleted=deleted)
        found = self._subjects.version(subject, wanted)
        if found is None or (found.deleted and not deleted):
            raise ConfluentError(VERSION_NOT_FOUND, f"Version {wanted} not found.")
        return found

    def users(self, subject: str, number: str) -> list[int]:
        """The ids of the schemas that reference a version."""
        return sorted({each.id for each in self._subjects.users(self.version(subject, number, deleted=True))})

    def with_metadata(
        self, subject: str, wanted: Mapping[str, str], *, deleted: bool = False
    ) -> SubjectVersion:
        """The newest version whose metadata has these properties. Raises SUBJECT_NOT_FOUND, SCHEMA_NOT_FOUND."""
        for each in reversed(self.versions(subject, deleted=deleted)):
            properties = (each.definition.metadata or {}).get("properties") or {}
            if wanted.items() <= properties.items():
                return each
        raise ConfluentError(SCHEMA_NOT_FOUND, "Schema not found")

    def resolved(self, version: SubjectVersion) -> str:
        """The text of an Avro schema with its references put into it."""
        return self._definitions.schema(version).resolved()

    def serialized(self, version: SubjectVersion) -> str:
        """The FileDescriptorProto of a Protobuf schema, in base64."""
        return self._definitions.schema(version).serialized()

    def usable(self, subject: str, wanted: Definition) -> tuple[Definition, SchemaInfo, dict[str, str]]:
        """A definition as it would be stored under a subject, as a topic's schema, and the texts of its references. Raises
        ConfluentError: BAD_SCHEMA."""
        definition, _ = self._definitions.read(subject, wanted)
        references = self._definitions.references(subject, definition)
        try:
            return definition, topic_schema(definition, references), references
        except (ValueError, PenstockError) as error:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema: {error}") from None

    def greatest_id(self, context: str) -> int:
        """The greatest id ever given in a context."""
        return self._subjects.next_id(context) - 1

    def contexts(self) -> list[str]:
        """The contexts that have subjects, and the default one."""
        return self._subjects.contexts()

    # -- compatibility

    def objections(
        self, subject: str, wanted: Definition, number: str | None, *, normalize: bool = False
    ) -> list[str]:
        """Why a definition may not follow one version of a subject, or (None) those that its level says; empty if it may.

        Raises BAD_SCHEMA, BAD_VERSION, SUBJECT_NOT_FOUND, VERSION_NOT_FOUND.
        """
        if number is None:
            existing = list(self._subjects.versions(subject))
        else:
            existing = [self.version(subject, number)]
        definition, schema = self._definitions.read(subject, wanted, normalize=normalize)
        return self._objections(subject, definition, schema, existing, self.settings.level(subject))

    def _objections(
        self,
        subject: str,
        definition: Definition,
        schema: Schema,
        existing: Sequence[SubjectVersion],
        level: Level,
    ) -> list[str]:
        if level is Level.NONE or not existing:
            return []
        compared = existing if level.transitive else existing[-1:]
        before = [(each.definition.schema_type, self._definitions.schema(each)) for each in compared]
        return incompatibilities((definition.schema_type, schema), before, level)

    # -- deleting

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete every version, softly, or those deleted softly for good; returns their numbers.

        Raises SUBJECT_NOT_FOUND, SUBJECT_DELETED, SUBJECT_NOT_DELETED, REFERENCED, NOT_PERMITTED.
        """
        return await self._changes.make(lambda: self._delete_subject(subject, permanent=permanent))

    async def _delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        self._check_writable(subject)
        every = list(self._subjects.versions(subject, deleted=True))
        live = [each for each in every if not each.deleted]
        if not every:
            raise not_found(subject)
        if permanent and live:
            raise ConfluentError(
                SUBJECT_NOT_DELETED,
                f"Subject '{subject}' was not deleted first before being permanently deleted",
            )
        if not permanent and not live:
            raise ConfluentError(
                SUBJECT_DELETED,
                f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently",
            )
        for each in every if permanent else live:
            self._check_unused(each)
        if permanent:
            gone: list[RegistryRecord] = [
                RegistryRecord(schema_key(subject, each.version), None) for each in every
            ]
            await self._changes.write([*self._ids(every), *gone, *self._settings(subject)])
            return [each.version for each in every]
        await self._changes.write(
            [schema_record(msgspec.structs.replace(each, deleted=True)) for each in live]
        )
        await self._delete_of_topic(subject)
        return [each.version for each in live]

    async def delete_version(self, subject: str, number: str, *, permanent: bool = False) -> int:
        """Delete one version, softly, or one deleted softly for good; returns its number.

        Raises as `delete_subject`, with the codes of versions.
        """
        return await self._changes.make(lambda: self._delete_version(subject, number, permanent=permanent))

    async def _delete_version(self, subject: str, number: str, *, permanent: bool) -> int:
        self._check_writable(subject)
        one = self.version(subject, number, deleted=_number(number) != -1)
        if permanent and not one.deleted:
            raise ConfluentError(
                VERSION_NOT_DELETED,
                f"Subject '{subject}' Version {one.version} was not deleted first before being permanently"
                " deleted",
            )
        if not permanent and one.deleted:
            raise ConfluentError(
                VERSION_DELETED,
                f"Subject '{subject}' Version {one.version} was soft deleted. Set permanent=true to delete"
                " permanently",
            )
        self._check_unused(one)
        if permanent:
            others = any(each != one for each in self._subjects.versions(subject, deleted=True))
            settings = [] if others else self._settings(subject)
            apart = [] if one.topic_version is None else [gone_record(one)]
            gone = RegistryRecord(schema_key(subject, one.version), None)
            await self._changes.write([*self._ids([one]), *apart, gone, *settings])
        else:
            await self._changes.write([schema_record(msgspec.structs.replace(one, deleted=True))])
            await self._delete_of_topic(subject)
        return one.version

    def _ids(self, gone: Sequence[SubjectVersion]) -> list[RegistryRecord]:
        """The record of the greatest id, if a version with it is deleted for good. It is written first: a process may end before the
        records that follow."""
        context = context_of(gone[0].subject)
        greatest = self.greatest_id(context)
        return [ids_record(context, greatest)] if any(one.id == greatest for one in gone) else []

    async def _delete_of_topic(self, subject: str) -> None:
        """Delete the schema of a topic whose subject has no version any more."""
        if self._topics is not None and not any(True for _ in self._subjects.versions(subject)):
            await self._topics.delete(subject)

    def _settings(self, subject: str) -> list[RegistryRecord]:
        """The records that take a subject's level and mode away."""
        found: list[RegistryRecord] = []
        if self._subjects.config(subject) is not None:
            found.append(config_record(subject, None))
        if self._subjects.own_mode(subject) is not None:
            found.append(mode_record(subject, None))
        return found

    def _check_unused(self, one: SubjectVersion) -> None:
        if self._subjects.users(one):
            raise ConfluentError(
                REFERENCED,
                "One or more references exist to the schema "
                f"{{magic=1,keytype=SCHEMA,subject={one.subject},version={one.version}}}.",
            )

    def _check_writable(self, subject: str) -> None:
        if self._subjects.mode(subject) in (Mode.READONLY, Mode.READONLY_OVERRIDE):
            raise ConfluentError(NOT_PERMITTED, f"Subject {subject} is in read-only mode")

    # -- finding

    def _find(
        self, subject: str, definition: Definition, schema: Schema, *, deleted: bool = False
    ) -> SubjectVersion | None:
        """The newest version of a subject that is the same."""
        for each in reversed(list(self._subjects.versions(subject, deleted=deleted))):
            if self._definitions.same(each, definition, schema):
                return each
        return None

    def _known(self, subject: str, *, deleted: bool) -> None:
        if not any(True for _ in self._subjects.versions(subject, deleted=deleted)):
            raise not_found(subject)


def _number(number: str) -> int:
    if number in ("latest", "-1"):
        return -1
    if number.isascii() and number.isdigit() and len(number) < 11 and 1 <= int(number) <= VERSION_MAX:
        return int(number)
    raise ConfluentError(
        BAD_VERSION,
        f"The specified version '{number[:80]}' is not a valid version id. Allowed values are between"
        ' [1, 2^31-1] and the string "latest"',
    )

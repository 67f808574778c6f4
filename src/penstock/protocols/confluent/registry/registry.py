"""A schema registry with Confluent's rules: registering, looking up, deleting, levels and modes.

Requests are checked against the state (`subjects`) and become records. A write is durable and read before it is answered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.codec.registered import TYPES, Schema, incompatibilities
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo
from penstock.model.subjects import (
    BAD_LEVEL,
    BAD_MODE,
    BAD_SCHEMA,
    BAD_SUBJECT,
    BAD_VERSION,
    CONTEXT,
    INCOMPATIBLE,
    LEVEL_NOT_SET,
    MODE_NOT_SET,
    NO_SCHEMA,
    NOT_PERMITTED,
    REFERENCED,
    SCHEMA_NOT_FOUND,
    SUBJECT_DELETED,
    SUBJECT_NOT_DELETED,
    SUBJECT_NOT_FOUND,
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
from penstock.runtime.tasks import Locks

from .definitions import Definitions
from .subjects import (
    Record,
    Subjects,
    config_record,
    gone_record,
    ids_record,
    mode_record,
    schema_key,
    schema_record,
)
from .topics import TopicSubjects, topic_schema

SUBJECT_MAX: Final = 1000  # characters
_LEVEL: Final = "compatibilityLevel"

Write = Callable[[Sequence[Record]], Awaitable[None]]


class Registry:
    """The registry over its state and its records; `write` makes records durable, all or none, and has the state learn them."""

    types: Final = TYPES

    def __init__(self, subjects: Subjects, write: Write, topics: TopicSubjects | None = None) -> None:
        self._subjects = subjects
        self._definitions = Definitions(subjects)
        self._write = write
        self._topics = topics
        self._locks: Locks[str] = Locks()  # one writer for each context, which numbers ids

    async def sync(self) -> None:
        """Learn the schemas that topics have got or lost since the last time."""
        if self._topics is not None and not self._topics.current:
            async with self._locks.hold(CONTEXT):
                await self._sync()

    async def _sync(self) -> None:
        while self._topics is not None and not self._topics.current:
            records, done = self._topics.changes(), False
            try:
                if records:
                    await self._write(records)
                done = True
            finally:
                self._topics.written(done=done)

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
        _check_subject(subject)
        for number in (schema_id, version):
            if number is not None and number > VERSION_MAX:
                raise ConfluentError(BAD_SCHEMA, f"{str(number)[:20]} is greater than {VERSION_MAX}")
        context = context_of(subject)
        async with self._locks.hold(context):
            await self._sync()
            definition, schema = self._definitions.read(subject, wanted, normalize=normalize)
            mode = self._subjects.mode(subject)
            if mode is not Mode.IMPORT or schema_id is None:
                found = self._find(subject, definition, schema)
                if found is not None:
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
                found_why = self._objections(subject, definition, schema, existing, self._level(subject))
                if found_why:
                    raise ConfluentError(
                        INCOMPATIBLE,
                        "Schema being registered is incompatible with an earlier schema for subject "
                        f'"{subject}", details: [{"; ".join(found_why)}]',
                    )
            given = schema_id if schema_id is not None and schema_id > 0 else None
            number = version if version is not None and version > 0 else last + 1
            there: tuple[int | None, int | None] = (None, None)
            if self._topics is not None:
                texts = self._definitions.references(subject, definition)
                there = await self._topics.store(subject, definition, texts, forced=forced)
            schema_id = self._id(context, definition, schema, given)
            made = SubjectVersion(subject, number, schema_id, definition, False, *there)
            await self._write([schema_record(made)])
            return made

    def _level(self, subject: str) -> Level:
        """The level that counts: the subject's own, that of its topic, its context's, or the global one."""
        own = (self._subjects.config(subject) or {}).get(_LEVEL)
        if own is None and self._topics is not None:
            of_topic = self._topics.level(subject)
            if of_topic is not None:
                return of_topic
        return self._subjects.level(subject)

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
            raise _not_found(subject)
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
        return self._objections(subject, definition, schema, existing, self._level(subject))

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
        async with self._locks.hold(context_of(subject)):
            await self._sync()
            self._check_writable(subject)
            every = list(self._subjects.versions(subject, deleted=True))
            live = [each for each in every if not each.deleted]
            if not every:
                raise _not_found(subject)
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
                gone: list[Record] = [(schema_key(subject, each.version), None) for each in every]
                await self._write([*gone, *self._ids(every), *self._settings(subject)])
                return [each.version for each in every]
            await self._write([schema_record(msgspec.structs.replace(each, deleted=True)) for each in live])
            await self._delete_of_topic(subject)
            return [each.version for each in live]

    async def delete_version(self, subject: str, number: str, *, permanent: bool = False) -> int:
        """Delete one version, softly, or one deleted softly for good; returns its number.

        Raises as `delete_subject`, with the codes of versions.
        """
        async with self._locks.hold(context_of(subject)):
            await self._sync()
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
                gone: Record = schema_key(subject, one.version), None
                await self._write([gone, *self._ids([one]), *apart, *settings])
            else:
                await self._write([schema_record(msgspec.structs.replace(one, deleted=True))])
                await self._delete_of_topic(subject)
            return one.version

    def _ids(self, gone: Sequence[SubjectVersion]) -> list[Record]:
        """The record of the greatest id, if a version with it is deleted for good."""
        context = context_of(gone[0].subject)
        greatest = self.greatest_id(context)
        return [ids_record(context, greatest)] if any(one.id == greatest for one in gone) else []

    async def _delete_of_topic(self, subject: str) -> None:
        """Delete the schema of a topic whose subject has no version any more."""
        if self._topics is not None and not any(True for _ in self._subjects.versions(subject)):
            await self._topics.delete(subject)

    def _settings(self, subject: str) -> list[Record]:
        """The records that take a subject's level and mode away."""
        found: list[Record] = []
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

    # -- levels and modes

    def config(self, subject: str | None, *, default: bool = False) -> dict[str, Any]:
        """The configuration of a subject, or the global one. Raises LEVEL_NOT_SET unless `default`."""
        found = self._subjects.config(subject)
        if found is None and subject is not None and not default:
            raise ConfluentError(
                LEVEL_NOT_SET, f"Subject '{subject}' does not have subject-level compatibility configured"
            )
        level = {_LEVEL: self._level(subject or "").value}
        return {**level, **{name: value for name, value in (found or {}).items() if name != "subject"}}

    async def set_config(self, subject: str | None, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Change the configuration of a subject, or the global one; returns what was asked for. Raises BAD_LEVEL."""
        if subject is not None:
            _check_subject(subject)
        kept = ("compatibility", _LEVEL, "subject")
        changed = {name: value for name, value in wanted.items() if name not in kept and value is not None}
        if not isinstance(changed.get("normalize", False), bool):
            raise ConfluentError(NO_SCHEMA, "normalize is true or false")
        if wanted.get("compatibility") is not None:
            try:
                changed[_LEVEL] = Level(str(wanted["compatibility"]).upper()).value
            except ValueError:
                raise ConfluentError(
                    BAD_LEVEL,
                    "Invalid compatibility level. Valid values are none, backward, forward, full,"
                    " backward_transitive, forward_transitive, and full_transitive",
                ) from None
        if not changed:
            return {}
        async with self._locks.hold(context_of(subject or "")):
            await self._write([config_record(subject, {**(self._subjects.config(subject) or {}), **changed})])
        return {("compatibility" if name == _LEVEL else name): value for name, value in changed.items()}

    async def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Take a configuration away; returns what it was. Raises SUBJECT_NOT_FOUND where a subject has none."""
        async with self._locks.hold(context_of(subject or "")):
            if subject is not None and self._subjects.config(subject) is None:
                raise _not_found(subject)
            before = self.config(subject)
            if self._subjects.config(subject) is not None:
                await self._write([config_record(subject, None)])
            return before

    def mode(self, subject: str | None, *, default: bool = False) -> Mode:
        """The mode of a subject, or the global one. Raises MODE_NOT_SET unless `default`."""
        found = self._subjects.own_mode(subject)
        if found is None and subject is not None and not default:
            raise ConfluentError(
                MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured"
            )
        return self._subjects.mode(subject or "") if found is None else found

    async def set_mode(self, subject: str | None, wanted: str, *, force: bool = False) -> Mode:
        """Raises BAD_MODE, NOT_PERMITTED."""
        try:
            mode = Mode(wanted.upper())
        except ValueError:
            valid = ", ".join(each.value.lower() for each in Mode)
            raise ConfluentError(BAD_MODE, f"Invalid mode. Valid values are {valid}") from None
        if subject is not None:
            _check_subject(subject)
        async with self._locks.hold(context_of(subject or "")):
            used = self.names(deleted=True) if subject is None else list(self._subjects.versions(subject))
            if mode is Mode.IMPORT and used and not force:
                where = "there are schemas" if subject is None else f"subject {subject} has versions"
                raise ConfluentError(NOT_PERMITTED, f"Cannot import since {where}")
            await self._write([mode_record(subject, mode)])
        return mode

    async def delete_mode(self, subject: str | None) -> Mode:
        """Take a mode away; returns what it was. Raises SUBJECT_NOT_FOUND where a subject has none."""
        async with self._locks.hold(context_of(subject or "")):
            before = self._subjects.own_mode(subject)
            if before is None and subject is not None:
                raise _not_found(subject)
            await self._write([mode_record(subject, None)])
            return before or Mode.READWRITE

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
            raise _not_found(subject)


def _not_found(subject: str) -> ConfluentError:
    return ConfluentError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


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


def _check_subject(subject: str) -> None:
    bad = not subject or len(subject) > SUBJECT_MAX or any(ord(each) < 32 for each in subject)
    if bad or subject in ("__GLOBAL", "__EMPTY"):
        raise ConfluentError(BAD_SUBJECT, f"The specified subject '{subject[:80]}' is not a valid subject.")

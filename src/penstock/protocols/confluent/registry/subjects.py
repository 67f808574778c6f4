"""The state of a registry: subjects, ids, levels and modes, read from its records.

Records are those of the topic `_schemas`, which Confluent's registry and Karapace share: a JSON key and a JSON value, where a later
record replaces an earlier one with its key, and none deletes it. They may be written by other registries: fields that are not known
here stay, and a record that cannot be read is skipped.

Key types that begin with PENSTOCK_ and `RegistryRecord.own` are of this registry alone. Confluent's stops at a key type that it does not
know, so engines keep them elsewhere.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from penstock.broker.registry import RegistryRecord
from penstock.model.subjects import (
    Definition,
    Level,
    Mode,
    Reference,
    SubjectVersion,
    context_of,
    qualified,
)

log = logging.getLogger(__name__)

_DEFAULT_LEVEL: Final = Level.BACKWARD
_CONFIG_LEVEL: Final = "compatibilityLevel"


class _Key(msgspec.Struct):
    keytype: str
    subject: str | None = None
    version: int = 0


class _Schema(msgspec.Struct, omit_defaults=True, rename="camel", kw_only=True):
    """In the order in which Confluent's registry writes the fields."""

    subject: str
    version: int
    id: int
    schema_type: str | None = None
    references: tuple[Reference, ...] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    schema: str
    deleted: bool = False


class _Own(msgspec.Struct, omit_defaults=True, rename="camel"):
    """Which schema of a topic a version is."""

    topic_version: int | None = None
    topic_time: int | None = None
    registered: bool = False


class _Gone(msgspec.Struct):
    time: int | None = None


class _UpTo(msgspec.Struct):
    version: int


class _Greatest(msgspec.Struct):
    id: int


_key: Final = msgspec.json.Decoder(_Key)
_own: Final = msgspec.json.Decoder(_Own)
_KNOWN: Final = frozenset(
    msgspec.structs.fields(_Schema)[at].encode_name for at in range(len(_Schema.__struct_fields__))
)


def schema_record(version: SubjectVersion) -> RegistryRecord:
    """The record of a version."""
    definition = version.definition
    value = _Schema(
        subject=version.subject,
        version=version.version,
        id=version.id,
        schema_type=None if definition.schema_type == "AVRO" else definition.schema_type,
        references=definition.references or None,
        metadata=None if definition.metadata is None else dict(definition.metadata),
        rule_set=None if definition.rule_set is None else dict(definition.rule_set),
        schema=definition.schema,
    )
    # Fields with defaults are left out, but readers of the topic expect this one.
    content = {**msgspec.to_builtins(value), "deleted": version.deleted, **(version.unknown or {})}
    own = _Own(version.topic_version, version.topic_time, version.registered)
    noted = own != _Own()
    return RegistryRecord(
        schema_key(version.subject, version.version),
        msgspec.json.encode(content),
        msgspec.json.encode(own) if noted else b"",
    )


def schema_key(subject: str, version: int) -> str:
    """The key of a version. The order of its fields counts: compaction compares bytes."""
    return _text({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1})


def ids_record(context: str, greatest: int) -> RegistryRecord:
    """The record of the greatest id of a context, whose version is deleted: ids are not used again."""
    key = _text({"keytype": "PENSTOCK_IDS", "subject": f":{context}:", "magic": 0})
    return RegistryRecord(key, msgspec.json.encode(_Greatest(greatest)))


def gone_record(one: SubjectVersion) -> RegistryRecord:
    """The record that a topic's schema is no version of its subject any more, though the topic has it."""
    place = {"subject": one.subject, "version": one.topic_version, "magic": 0}
    return RegistryRecord(
        _text({"keytype": "PENSTOCK_GONE", **place}), msgspec.json.encode(_Gone(one.topic_time))
    )


def config_record(subject: str | None, config: Mapping[str, Any] | None) -> RegistryRecord:
    """The record of a subject's configuration, or the global one (None); no configuration deletes it."""
    return _setting("CONFIG", subject, config)


def mode_record(subject: str | None, mode: Mode | None) -> RegistryRecord:
    """The record of a subject's mode, or the global one (None)."""
    return _setting("MODE", subject, None if mode is None else {"mode": mode.value})


def _setting(kind: str, subject: str | None, value: Mapping[str, Any] | None) -> RegistryRecord:
    key = _text({"keytype": kind, "subject": subject, "magic": 0})
    if value is None:
        return RegistryRecord(key, None)
    named = {} if subject is None else {"subject": subject}
    return RegistryRecord(key, msgspec.json.encode({**named, **value}))


def _text(value: Mapping[str, Any]) -> str:
    return msgspec.json.encode(value).decode()


class Subjects:
    """What a registry has. Versions that were deleted softly are there, those deleted permanently are not."""

    def __init__(self) -> None:
        self.revision = 0  # records learned
        self.digests: dict[
            tuple[str, int], bytes
        ] = {}  # of Protobuf as it was read, by version, as far as known
        self._versions: dict[str, dict[int, SubjectVersion]] = {}
        self._ids: dict[tuple[str, int], dict[tuple[str, int], SubjectVersion]] = {}  # by context and id
        self._same: dict[tuple[str, Definition], set[int]] = {}  # ids by context and content
        self._greatest: dict[str, int] = {}  # ids ever given, by context
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, Mode] = {}
        self._gone: dict[str, set[tuple[int | None, int | None]]] = {}  # schemas of topics, by subject
        self._users: dict[tuple[str, int], set[tuple[str, int]]] = {}  # who references a version

    def learn(self, record: RegistryRecord) -> None:
        """Take in a record; one that cannot be read is skipped."""
        self.revision += 1
        try:
            self._learn(_key.decode(record.key), record)
        except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning(
                "a record of the schema registry cannot be read",
                extra={"key": record.key, "reason": str(error)},
            )

    def _learn(self, what: _Key, record: RegistryRecord) -> None:
        value = record.value
        match what.keytype:
            case "SCHEMA":
                self._learn_version(what, record)
            case "PENSTOCK_IDS" if value is not None and what.subject is not None:
                context = context_of(what.subject) if what.subject != ":.:" else "."
                greatest = msgspec.json.decode(value, type=_Greatest).id
                self._greatest[context] = max(greatest, self._greatest.get(context, 0))
            case "PENSTOCK_GONE" if value is not None and what.subject is not None:
                time = msgspec.json.decode(value, type=_Gone).time
                self._gone.setdefault(what.subject, set()).add((what.version, time))
            case "CONFIG":
                config = None if value is None else msgspec.json.decode(value, type=dict[str, Any])
                _set(self._configs, what.subject, config)
            case "MODE":
                mode = None if value is None else Mode(msgspec.json.decode(value)["mode"])
                _set(self._modes, what.subject, mode)
            case "DELETE_SUBJECT" if value is not None and what.subject is not None:
                last = msgspec.json.decode(value, type=_UpTo).version
                for one in list(self.versions(what.subject)):
                    if one.version <= last:
                        self._put(msgspec.structs.replace(one, deleted=True))
            case "CLEAR_SUBJECT" if value is not None and what.subject is not None:
                for one in list(self.versions(what.subject, deleted=True)):
                    if one.deleted:
                        self._remove(one)

    def _learn_version(self, key: _Key, record: RegistryRecord) -> None:
        if record.value is None:
            held = self._versions.get(key.subject or "", {}).get(key.version)
            if held is not None:
                self._remove(held)
            return
        content = msgspec.json.decode(record.value, type=dict[str, Any])
        found = msgspec.convert(content, _Schema)
        own = _own.decode(record.own) if record.own else _Own()
        definition = Definition(
            _compact(found.schema, found.schema_type),
            found.schema_type or "AVRO",
            found.references or (),
            found.metadata,
            found.rule_set,
        )
        unknown = {name: one for name, one in content.items() if name not in _KNOWN}
        self._put(
            SubjectVersion(
                found.subject,
                found.version,
                found.id,
                definition,
                found.deleted,
                own.topic_version,
                own.topic_time,
                own.registered,
                unknown or None,
            )
        )

    def _put(self, one: SubjectVersion) -> None:
        context = context_of(one.subject)
        held = self._versions.get(one.subject, {}).get(one.version)
        if held is not None:
            self._remove(held)
        self._versions.setdefault(one.subject, {})[one.version] = one
        self._ids.setdefault((context, one.id), {})[one.subject, one.version] = one
        self._same.setdefault((context, _hashable(one.definition)), set()).add(one.id)
        self._greatest[context] = max(one.id, self._greatest.get(context, 0))
        for used in one.definition.references:
            place = qualified(context, used.subject), used.version
            self._users.setdefault(place, set()).add((one.subject, one.version))

    def _remove(self, one: SubjectVersion) -> None:
        context = context_of(one.subject)
        self.digests.pop((one.subject, one.version), None)
        del self._versions[one.subject][one.version]
        if not self._versions[one.subject]:
            del self._versions[one.subject]
        holders = self._ids[context, one.id]
        del holders[one.subject, one.version]
        if not holders:
            del self._ids[context, one.id]
            content = context, _hashable(one.definition)
            ids = self._same[content]
            ids.discard(one.id)
            if not ids:
                del self._same[content]
        for used in one.definition.references:
            users = self._users.get((qualified(context, used.subject), used.version), set())
            users.discard((one.subject, one.version))

    # -- reading

    def names(self) -> Iterator[str]:
        """Every subject, sorted, also those whose versions are all deleted softly."""
        return iter(sorted(self._versions))

    def versions(self, subject: str, *, deleted: bool = False) -> Iterator[SubjectVersion]:
        """The versions of a subject, the oldest first; `deleted`: also those deleted softly."""
        held = self._versions.get(subject, {})
        return (held[number] for number in sorted(held) if deleted or not held[number].deleted)

    def version(self, subject: str, number: int) -> SubjectVersion | None:
        """One version, also a softly deleted one."""
        return self._versions.get(subject, {}).get(number)

    def of_topic(self, subject: str) -> set[tuple[int | None, int | None]]:
        """The topic's schemas that are, or were, versions of its subject."""
        known = {one.of_topic for one in self.versions(subject, deleted=True)}
        return known | self._gone.get(subject, set())

    def holders(self, context: str, schema_id: int) -> list[SubjectVersion]:
        """The versions that have an id, sorted by subject and number."""
        held = self._ids.get((context, schema_id), {})
        return [held[place] for place in sorted(held)]

    def id_of(self, context: str, definition: Definition) -> int | None:
        """The id of the same definition in any subject of a context; the least of several, whatever the order of the records."""
        return min(self._same.get((context, _hashable(definition)), ()), default=None)

    def next_id(self, context: str) -> int:
        """The id of the next new schema."""
        return self._greatest.get(context, 0) + 1

    def users(self, one: SubjectVersion) -> list[SubjectVersion]:
        """The versions that reference a version and are not deleted."""
        places = sorted(self._users.get((one.subject, one.version), ()))
        found = [self._versions[subject][number] for subject, number in places]
        return [each for each in found if not each.deleted]

    def contexts(self) -> list[str]:
        """The contexts that have subjects, and the default one."""
        return sorted({".", *map(context_of, self._versions)})

    def config(self, subject: str | None) -> dict[str, Any] | None:
        """The configuration of a subject, or the global one (None), as far as it was set."""
        return self._configs.get(subject)

    def level(self, subject: str) -> Level:
        """The level that counts for a subject: its own, its context's, or the global one."""
        for each in self._places(subject):
            chosen = self._configs.get(each, {}).get(_CONFIG_LEVEL)
            if (
                isinstance(chosen, str) and chosen in Level.__members__
            ):  # another registry may have written others
                return Level[chosen]
        return _DEFAULT_LEVEL

    def normalizes(self, subject: str) -> bool:
        """Whether schemas of a subject are normalized as they are registered."""
        for each in self._places(subject):
            chosen = self._configs.get(each, {}).get("normalize")
            if chosen is not None:
                return bool(chosen)
        return False

    def own_mode(self, subject: str | None) -> Mode | None:
        """The mode that was set for a subject, or globally (None)."""
        return self._modes.get(subject)

    def mode(self, subject: str) -> Mode:
        """The mode that counts for a subject."""
        found = (self._modes.get(each) for each in self._places(subject))
        return next((mode for mode in found if mode is not None), Mode.READWRITE)

    def _places(self, subject: str) -> tuple[str | None, ...]:
        context = context_of(subject)
        return (subject, None) if context == "." else (subject, f":{context}:", None)


def _compact(text: str, kind: str | None) -> str:
    """The text of a schema as this registry writes it: others keep white space."""
    if kind == "PROTOBUF":
        return text
    try:
        return msgspec.json.encode(msgspec.json.decode(text)).decode()
    except (msgspec.DecodeError, RecursionError):
        return text


def _set(settings: dict[Any, Any], subject: str | None, value: Any) -> None:
    if value is None:
        settings.pop(subject, None)
    else:
        settings[subject] = value


def _hashable(definition: Definition) -> Definition:
    """A definition that may be a key: metadata and rules as text."""
    if definition.metadata is None and definition.rule_set is None:
        return definition
    extras = msgspec.json.encode((definition.metadata, definition.rule_set), order="deterministic").decode()
    return Definition(f"{extras}\0{definition.schema}", definition.schema_type, definition.references)

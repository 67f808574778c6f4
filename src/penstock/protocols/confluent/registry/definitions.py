"""Definitions as clients give them and as versions have them: read with their references, normalized and compared."""

from hashlib import sha256
from typing import Final

import msgspec

from penstock.codec.registered import TYPES, Schema, read
from penstock.model.confluent import ConfluentError
from penstock.model.subjects import BAD_SCHEMA, Definition, Reference, SubjectVersion, context_of, qualified

from .subjects import Subjects

REFERENCES_MAX: Final = 200  # that one schema uses, also through others


class Definitions:
    """Reads definitions with the versions that they reference."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects

    def schema(self, version: SubjectVersion) -> Schema:
        """A version's schema, read with its references. Raises BAD_SCHEMA if one of them is gone."""
        return self.read(version.subject, version.definition)[1]

    def read(self, subject: str, wanted: Definition, *, normalize: bool = False) -> tuple[Definition, Schema]:
        """A definition as it is stored, and its schema. Raises BAD_SCHEMA."""
        kind = wanted.schema_type or "AVRO"
        if kind not in TYPES:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema type {kind[:80]}")
        if not wanted.schema.strip():
            raise ConfluentError(BAD_SCHEMA, "Empty schema")
        found = tuple(
            msgspec.structs.replace(one, version=self._referenced(subject, one).version)
            for one in wanted.references
        )
        wanted = msgspec.structs.replace(wanted, references=found)
        properties = (wanted.metadata or {}).get("properties") or {}
        if not isinstance(properties, dict):
            raise ConfluentError(
                BAD_SCHEMA, "Invalid schema: the properties of its metadata are not an object"
            )
        try:
            schema = read(kind, wanted.schema, self.references(subject, wanted))
            if normalize or self._subjects.normalizes(subject):
                schema = read(kind, schema.normalized(), self.references(subject, wanted))
                references = tuple(sorted(wanted.references, key=lambda one: (one.name, one.subject)))
                wanted = msgspec.structs.replace(wanted, references=references)
        except ValueError as error:
            raise ConfluentError(BAD_SCHEMA, f"Invalid schema of type {kind}: {error}") from None
        return msgspec.structs.replace(wanted, schema=schema.text, schema_type=kind), schema

    def references(self, subject: str, definition: Definition) -> dict[str, str]:
        """The texts of all that a definition uses, also through others, by the names it is used by."""
        found: dict[str, str] = {}
        waiting = [(subject, one) for one in definition.references]
        while waiting:
            user, one = waiting.pop()
            if one.name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise ConfluentError(BAD_SCHEMA, f"Invalid schema: more than {REFERENCES_MAX} references")
            used = self._referenced(user, one)
            found[one.name] = used.definition.schema
            waiting += [(used.subject, each) for each in used.definition.references]
        return found

    def _referenced(self, user: str, one: Reference) -> SubjectVersion:
        subject = qualified(context_of(user), one.subject)
        if one.version == -1:
            found = next(iter(list(self._subjects.versions(subject))[-1:]), None)
        else:
            found = self._subjects.version(subject, one.version)
        if found is None:
            raise ConfluentError(
                BAD_SCHEMA,
                f"Invalid schema: no schema reference found for subject {one.subject!r} and version {one.version}",
            )
        return found

    def same(self, one: SubjectVersion, definition: Definition, schema: Schema) -> bool:
        """Whether a version is a definition, which was read as `schema`."""
        held = one.definition
        if held == definition:
            return True
        if held.schema_type != definition.schema_type or held.schema_type != "PROTOBUF":
            return False
        if (held.references, held.metadata, held.rule_set) != (
            definition.references,
            definition.metadata,
            definition.rule_set,
        ):
            return False
        place = one.subject, one.version
        if place not in self._subjects.digests:
            self._subjects.digests[place] = _digest(self.schema(one))
        return self._subjects.digests[place] == _digest(schema)


def _digest(schema: Schema) -> bytes:
    return sha256(schema.key.encode()).digest()

"""Bodies and answers of the schema registry's API, for OpenAPI and for decoding. Unknown fields are ignored."""

from typing import Any

import msgspec

from penstock.model.subjects import Definition, Reference, SubjectVersion


class GivenReference(msgspec.Struct):
    """A schema that the given one uses."""

    name: str
    subject: str
    version: int


class GivenSchema(msgspec.Struct, rename="camel"):
    """A schema to register, to look up or to compare."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[GivenReference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    def definition(self) -> Definition:
        """The given definition; `schema` is there."""
        return Definition(
            self.schema or "",
            self.schema_type or "AVRO",
            tuple(Reference(one.name, one.subject, one.version) for one in self.references or ()),
            self.metadata or None,
            self.rule_set or None,
        )


class RegisteredSchema(msgspec.Struct, omit_defaults=True, rename="camel"):
    """A schema as it is answered. The type is left out for AVRO, as older registries do."""

    subject: str | None = None
    version: int | None = None
    id: int | None = None
    schema: str | None = None
    schema_type: str = "AVRO"
    references: list[Reference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    max_id: int | None = None

    @classmethod
    def of(cls, one: SubjectVersion, text: str | None = None, *, named: bool = True) -> "RegisteredSchema":
        """A version, with another text if one is given; `named`: with its subject, version and id."""
        definition = one.definition
        return cls(
            one.subject if named else None,
            one.version if named else None,
            one.id if named else None,
            definition.schema if text is None else text,
            definition.schema_type,
            list(definition.references),
            None if definition.metadata is None else dict(definition.metadata),
            None if definition.rule_set is None else dict(definition.rule_set),
        )


class SchemaId(msgspec.Struct):
    """The id of a registered schema."""

    id: int


class VersionOfId(msgspec.Struct):
    """A version that has an id."""

    subject: str
    version: int


class Compatible(msgspec.Struct, omit_defaults=True):
    """Whether a schema may follow."""

    is_compatible: bool
    messages: list[str] | None = None


class Config(msgspec.Struct, rename="camel"):
    """A level to set; other fields are kept as they are given."""

    compatibility: str | None = None
    normalize: bool | None = None


class ModeBody(msgspec.Struct):
    """A mode."""

    mode: str

"""JSON Schema documents as shapes: the kind of values that a schema allows, and the keywords about that kind.

A schema with keywords about several things, as a type and an enumeration, is the `allOf` of one shape for each; `type: [a, b]`
is an `anyOf`. Drafts 4 to 2020-12.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

import msgspec
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped] # the meta-schemas; it has no types
from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import (
    DRAFT4,
    DRAFT6,
    DRAFT7,
    UnknownDialect,
    specification_with,
)

TEXT_MAX: Final = 2 << 20  # characters of a document and the documents that it references

Schema = bool | dict[str, Any]


class JsonSchemaError(ValueError):
    """Why a text is not a JSON Schema, or which reference leads nowhere."""


class Kind(Enum):
    """What a shape says about values."""

    ANY = "any"
    NONE = "none"
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"  # also integers: `Shape.integer`
    BOOLEAN = "boolean"
    NULL = "null"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    IF = "if"
    ALL_OF = "allOf"
    ANY_OF = "anyOf"
    ONE_OF = "oneOf"

    @property
    def combines(self) -> bool:
        return self in (Kind.ALL_OF, Kind.ANY_OF, Kind.ONE_OF)


class Node(NamedTuple):
    """A schema within a document; `resolver` finds the references in it."""

    schema: Schema
    resolver: Any  # of referencing, whose type has a parameter that nothing here needs


class Shape(NamedTuple):
    """One kind of values. `branches` are those of a combination, or the one schema of `not`."""

    kind: Kind
    words: Mapping[str, Any] = {}
    resolver: Any = None
    branches: Sequence[Node] = ()

    @property
    def integer(self) -> bool:
        return self.words.get("type") == "integer"

    def node(self, schema: Schema) -> Node:
        """A schema in one of the keywords."""
        return Node(schema, self.resolver)


_TYPES: Final[Mapping[str, Kind]] = {
    "object": Kind.OBJECT,
    "array": Kind.ARRAY,
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
}
WORDS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.OBJECT: frozenset(
        (
            "properties",
            "patternProperties",
            "additionalProperties",
            "unevaluatedProperties",
            "required",
            "dependencies",
            "dependentRequired",
            "dependentSchemas",
            "maxProperties",
            "minProperties",
            "propertyNames",
        )
    ),
    Kind.ARRAY: frozenset(
        (
            "items",
            "prefixItems",
            "additionalItems",
            "unevaluatedItems",
            "contains",
            "minContains",
            "maxContains",
            "minItems",
            "maxItems",
            "uniqueItems",
        )
    ),
    Kind.STRING: frozenset(("maxLength", "minLength", "pattern")),
    Kind.NUMBER: frozenset(
        ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
    ),
}


class Document:
    """One JSON Schema with the documents that it references, by the URI or name in its `$ref`."""

    def __init__(self, text: str, references: Mapping[str, str] | None = None) -> None:
        """Raises JsonSchemaError."""
        references = references or {}
        if len(text) + sum(map(len, references.values())) > TEXT_MAX:
            raise JsonSchemaError(f"more than {TEXT_MAX} characters with the referenced schemas")
        self.texts = text, dict(references)
        self.schema = _read(text)
        self._dialect = _dialect(self.schema)
        _check_keywords(self.schema, self._dialect)
        self._specification = _specification(self.schema, DRAFT7)
        self._siblings = self._specification not in (DRAFT4, DRAFT6, DRAFT7)  # of $ref count
        try:
            root = self._resource(self.schema)
            base = root.id() or ""
            resources = {base: root}
            for name, more in references.items():
                resources[name] = resources[urljoin(base, name)] = self._resource(_read(more, name))
            self.registry: Registry[Any] = REGISTRY.with_resources(resources.items()).crawl()
            self._shapes: dict[int, tuple[Node, Shape]] = {}
            self._checked: set[int] = set()
            self.root = Node(self.schema, self.registry.resolver(base))
            self._check(self.root)
        except RecursionError:
            raise JsonSchemaError("the schema is nested too deeply") from None
        except (
            AttributeError,
            TypeError,
            KeyError,
        ) as error:  # a keyword of another type than referencing expects
            raise JsonSchemaError(f"a keyword has a value of the wrong type: {error}") from None

    def shape(self, node: Node) -> Shape:
        """What a schema allows, with its references followed. Raises JsonSchemaError."""
        known = self._shapes.get(id(node.schema))
        if known is None or known[0].schema is not node.schema:
            known = node, self._shaped(node)
            if isinstance(node.schema, dict):
                self._shapes[id(node.schema)] = known
        return known[1]

    def _resource(self, schema: Schema) -> "Resource[Any]":
        return _specification(schema, self._specification).create_resource(schema)

    def _shaped(self, node: Node) -> Shape:
        if isinstance(node.schema, bool):
            return Shape(Kind.ANY if node.schema else Kind.NONE)
        if not isinstance(node.schema, dict):
            raise JsonSchemaError(f"{str(node.schema)[:80]} is not a schema")
        node = Node(node.schema, node.resolver.in_subresource(self._resource(node.schema)))
        words: dict[str, Any] = node.schema  # type: ignore[assignment]  # it is not a bool, as seen above
        parts: list[Shape] = []
        if isinstance(words.get("$ref"), str):
            target = self.shape(self.follow(node, words["$ref"]))
            if not self._siblings:
                return target
            if target.kind is not Kind.ANY:
                parts.append(target)
        parts += self._typed(words, node)
        if "enum" in words:
            parts.append(Shape(Kind.ENUM, {"enum": words["enum"]}, node.resolver))
        if "const" in words:
            parts.append(Shape(Kind.CONST, {"const": words["const"]}, node.resolver))
        if "not" in words:
            parts.append(Shape(Kind.NOT, {}, node.resolver, (node._replace(schema=words["not"]),)))
        for kind in (Kind.ALL_OF, Kind.ANY_OF, Kind.ONE_OF):
            if words.get(kind.value):
                branches = [node._replace(schema=one) for one in words[kind.value]]
                parts.append(Shape(kind, {}, node.resolver, branches))
        if "if" in words:
            parts.append(
                Shape(Kind.IF, {one: words.get(one) for one in ("if", "then", "else")}, node.resolver)
            )
        if len(parts) > 1:
            return Shape(Kind.ALL_OF, {}, node.resolver, [self._kept(part) for part in parts])
        return parts[0] if parts else Shape(Kind.ANY, words, node.resolver)

    def _typed(self, words: Mapping[str, Any], node: Node) -> list[Shape]:
        named = words.get("type")
        if isinstance(named, list) and len(named) == 1:
            named = named[0]
        if isinstance(named, list):
            branches = [self._kept(self._of_type(one, words, node)) for one in named]
            return [Shape(Kind.ANY_OF, {}, node.resolver, branches)]
        if named is not None:
            return [self._of_type(named, words, node)]
        return [Shape(kind, words, node.resolver) for kind, own in WORDS.items() if not own.isdisjoint(words)]

    def _of_type(self, named: object, words: Mapping[str, Any], node: Node) -> Shape:
        kind = _TYPES.get(named) if isinstance(named, str) else None
        if kind is None:
            raise JsonSchemaError(f"{str(named)[:80]!r} is not a type of JSON Schema")
        return Shape(kind, {**words, "type": named}, node.resolver)

    def _kept(self, shape: Shape) -> Node:
        """A branch that no keyword has: its shape is found by the new schema that stands for it."""
        node = Node({}, shape.resolver)
        self._shapes[id(node.schema)] = node, shape
        return node

    def follow(self, node: Node, reference: str) -> Node:
        """The schema that a reference names."""
        followed = {id(node.schema)}
        while True:
            try:
                found = node.resolver.lookup(reference)
            except (Unresolvable, NoSuchResource, ValueError) as error:
                raise JsonSchemaError(f"the reference {reference[:200]!r} cannot be resolved") from error
            node = Node(found.contents, found.resolver)
            again = node.schema.get("$ref") if isinstance(node.schema, dict) else None
            if not isinstance(again, str) or (self._siblings and len(node.schema) > 1):  # type: ignore[arg-type]
                return node
            if id(node.schema) in followed:
                raise JsonSchemaError(f"the reference {reference[:200]!r} leads back to itself")
            followed.add(id(node.schema))
            reference = again

    def _check(self, node: Node) -> None:
        """Resolve every reference once, so that a later comparison finds all of them."""
        if not isinstance(node.schema, dict):
            return
        inner = Node(node.schema, node.resolver.in_subresource(self._resource(node.schema)))
        if isinstance(node.schema.get("$ref"), str):
            target = self.follow(inner, node.schema["$ref"])
            if id(target.schema) not in self._checked:
                # it may be at a keyword that has no schema in the dialect
                self._checked.add(id(target.schema))
                if not isinstance(target.schema, bool | dict):
                    raise JsonSchemaError(f"the reference {node.schema['$ref'][:200]!r} leads to no schema")
                _check_keywords(target.schema, self._dialect)
                self._check(target)
        for each in self._resource(node.schema).subresources():
            self._check(Node(each.contents, inner.resolver))


def _read(text: str, name: str = "the schema") -> Schema:
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise JsonSchemaError(f"{name} is not valid JSON: {error}") from None
    if not isinstance(schema, bool | dict):
        raise JsonSchemaError(f"{name} is not a JSON object or boolean")
    return schema


def _dialect(schema: Schema) -> str:
    """The URI of the dialect that a schema names; empty for none. Raises JsonSchemaError."""
    dialect = schema.get("$schema", "") if isinstance(schema, dict) else ""
    if not isinstance(dialect, str):
        raise JsonSchemaError("$schema is not a string")
    if "draft-03" in dialect:
        raise JsonSchemaError("draft 3 is not understood")
    return dialect


def _check_keywords(schema: Schema, dialect: str) -> None:
    """By the meta-schema of a dialect, draft 7 if it is empty or unknown, and by the newest one: all their keywords are
    compared."""
    from jsonschema.exceptions import SchemaError  # only for JSON Schema: the import takes 0.1 s
    from jsonschema.validators import Draft7Validator, validator_for

    if isinstance(schema, bool):
        return
    try:
        validator_for({"$schema": dialect}, default=Draft7Validator).check_schema(schema)
        for word in ("prefixItems", "dependentSchemas", "unevaluatedProperties", "unevaluatedItems"):
            held = schema.get(word, True)
            inner = held.values() if isinstance(held, dict) and word == "dependentSchemas" else [held]
            if not all(
                isinstance(one, bool | dict | (list if word == "prefixItems" else bool)) for one in inner
            ):
                raise JsonSchemaError(f"{word} has a value that is not a schema")
    except SchemaError as error:
        raise JsonSchemaError(f"{error.message[:200]} (at {error.json_path[:200]})") from None
    except RecursionError:
        raise JsonSchemaError("the schema is nested too deeply") from None


def _specification(schema: Schema, default: "Specification[Any]") -> "Specification[Any]":
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(dialect, str):
        return default
    try:
        return specification_with(dialect)
    except UnknownDialect:
        return default

"""Which JSON Schema accepts all values of another: a table of changes, read in both directions."""

import json
from typing import Any

import pytest

from penstock.codec.json_schema.differences import COMPARED_MAX, narrowed
from penstock.codec.json_schema.document import Document, JsonSchemaError

A, B = {"type": "string"}, {"type": "integer"}


def obj(**words: Any) -> dict[str, Any]:
    return {"type": "object", **words}


def closed(**properties: Any) -> dict[str, Any]:
    return obj(properties=properties, additionalProperties=False)


def partly(schema: Any, **properties: Any) -> dict[str, Any]:
    return obj(properties=properties, additionalProperties=schema)


def names(original: Any, update: Any) -> list[str]:
    documents = (Document(json.dumps(each)) for each in (original, update))
    return [each.name for each in narrowed(*documents)]


# (what changes, original, update, what breaks from original to update, what breaks from update to original)
CASES: list[tuple[str, Any, Any, list[str], list[str]]] = [
    ("nothing", obj(properties={"a": A}), obj(properties={"a": A}), [], []),
    ("annotations", {"type": "string", "title": "a"}, {"type": "string", "default": "b"}, [], []),
    ("everything allowed", A, True, [], ["TYPE_CHANGED"]),
    ("nothing was allowed", False, A, [], ["TYPE_CHANGED"]),
    ("type", A, B, ["TYPE_CHANGED"], ["TYPE_CHANGED"]),
    ("integer to number", B, {"type": "number"}, [], ["TYPE_NARROWED"]),
    # strings
    ("maxLength added", A, {**A, "maxLength": 5}, ["MAX_LENGTH_ADDED"], []),
    ("maxLength raised", {**A, "maxLength": 5}, {**A, "maxLength": 6}, [], ["MAX_LENGTH_DECREASED"]),
    ("minLength raised", {**A, "minLength": 5}, {**A, "minLength": 6}, ["MIN_LENGTH_INCREASED"], []),
    ("minLength 0", A, {**A, "minLength": 0}, [], []),
    ("pattern added", A, {**A, "pattern": "a"}, ["PATTERN_ADDED"], []),
    (
        "pattern changed",
        {**A, "pattern": "b"},
        {**A, "pattern": "a"},
        ["PATTERN_CHANGED"],
        ["PATTERN_CHANGED"],
    ),
    # numbers
    ("maximum raised", {**B, "maximum": 5}, {**B, "maximum": 6}, [], ["MAXIMUM_DECREASED"]),
    ("minimum added", B, {**B, "minimum": 0}, ["MINIMUM_ADDED"], []),
    ("exclusive", B, {**B, "exclusiveMinimum": 0}, ["EXCLUSIVE_MINIMUM_ADDED"], []),
    ("multipleOf a divisor", {**B, "multipleOf": 10}, {**B, "multipleOf": 5}, [], ["MULTIPLE_OF_CHANGED"]),
    ("multipleOf added", B, {**B, "multipleOf": 5}, ["MULTIPLE_OF_ADDED"], []),
    # enumerations
    ("enum longer", {"enum": ["a"]}, {"enum": ["a", "b"]}, [], ["ENUM_ARRAY_NARROWED"]),
    ("true is not 1", {"enum": [1]}, {"enum": [True]}, ["ENUM_ARRAY_NARROWED"], ["ENUM_ARRAY_NARROWED"]),
    ("const", {"const": "a"}, {"const": "b"}, ["CONST_CHANGED"], ["CONST_CHANGED"]),
    ("enum on a type", A, {**A, "enum": ["a"]}, ["PRODUCT_TYPE_EXTENDED"], []),
    # objects
    ("to an open model", obj(), obj(properties={"a": A}), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"], []),
    ("to an open model, of any kind", obj(), obj(properties={"a": True}), [], []),
    (
        "optional, to a closed model",
        closed(a=A),
        closed(a=A, b=B),
        [],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    (
        "required, to a closed model",
        closed(a=A),
        {**closed(a=A, b=B), "required": ["b"]},
        ["REQUIRED_ATTRIBUTE_ADDED"],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    (
        "required with a default, to a closed model",
        closed(a=A),
        {**closed(a=A, b={**B, "default": 0}), "required": ["b"]},
        [],
        ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    ("covered by a partly open model", partly(A), partly(A, b=A), [], []),
    (
        "not covered by a partly open model",
        partly(A),
        partly(A, b=B),
        ["PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
        ["PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (
        "covered by a pattern",
        {**closed(), "patternProperties": {"^x": A}},
        {**closed(xa=A), "patternProperties": {"^x": A}},
        [],
        [],
    ),
    (
        "required",
        obj(properties={"a": A}),
        obj(properties={"a": A}, required=["a"]),
        ["REQUIRED_ATTRIBUTE_ADDED"],
        [],
    ),
    (
        "required, with a default",
        obj(properties={"a": {**A, "default": ""}}),
        obj(properties={"a": {**A, "default": ""}}, required=["a"]),
        [],
        [],
    ),
    ("closed", obj(), closed(), ["ADDITIONAL_PROPERTIES_REMOVED"], []),
    ("partly closed", obj(), partly(A), ["ADDITIONAL_PROPERTIES_NARROWED"], []),
    ("another schema for the rest", partly(A), partly(B), ["TYPE_CHANGED"], ["TYPE_CHANGED"]),
    ("maxProperties", obj(), obj(maxProperties=2), ["MAX_PROPERTIES_ADDED"], []),
    (
        "dependency",
        obj(dependencies={"a": ["b"]}),
        obj(dependencies={"a": ["b", "c"]}),
        ["DEPENDENCY_ARRAY_EXTENDED"],
        [],
    ),
    ("dependent schema", obj(), obj(dependentSchemas={"a": obj()}), ["DEPENDENCY_SCHEMA_ADDED"], []),
    # arrays
    (
        "items",
        {"type": "array", "items": A},
        {"type": "array", "items": B},
        ["TYPE_CHANGED"],
        ["TYPE_CHANGED"],
    ),
    ("items named", {"type": "array"}, {"type": "array", "items": A}, ["ADDITIONAL_ITEMS_NARROWED"], []),
    ("uniqueItems", {"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"], []),
    (
        "item of an open tuple",
        {"type": "array", "items": [A]},
        {"type": "array", "items": [A, B]},
        ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"],
        [],
    ),
    (
        "item of a closed tuple",
        {"type": "array", "prefixItems": [A], "items": False},
        {"type": "array", "prefixItems": [A, B], "items": False},
        [],
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    # combinations
    ("a further type", A, {"type": ["string", "null"]}, [], ["SUM_TYPE_NARROWED"]),
    ("a branch of oneOf", A, {"oneOf": [B, A]}, [], ["SUM_TYPE_NARROWED"]),
    ("one branch", A, {"allOf": [A]}, [], []),
    ("a further branch", {"oneOf": [A]}, {"oneOf": [A, B]}, [], ["SUM_TYPE_NARROWED"]),
    (
        "a further condition",
        {"allOf": [obj(), closed()]},
        {"allOf": [obj(), closed(), obj(minProperties=1)]},
        ["PRODUCT_TYPE_EXTENDED"],
        [],
    ),
    (
        "branches that can be matched one way only",
        {"oneOf": [B, {"type": "number"}]},
        {"oneOf": [{"type": "number"}, {"type": "number", "maximum": 1}]},
        ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"],
        ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"],
    ),
    ("oneOf to anyOf", {"oneOf": [A, B]}, {"anyOf": [A, B]}, [], ["COMBINED_TYPE_CHANGED"]),
    ("not", {"not": {"type": "number"}}, {"not": B}, [], ["NOT_TYPE_EXTENDED"]),
]


@pytest.mark.parametrize(
    ("original", "update", "forth", "back"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_change(original: Any, update: Any, forth: list[str], back: list[str]) -> None:
    assert names(original, update) == forth
    assert names(update, original) == back
    nested = ({"properties": {"x": each}} for each in (original, update))
    assert names(*nested) == forth


def test_a_difference_names_its_place() -> None:
    old, new = ({"properties": {"a": {"items": each}}} for each in (A, B))
    found = narrowed(Document(json.dumps(old)), Document(json.dumps(new)))
    assert [str(each) for each in found] == ["TYPE_CHANGED at #/properties/a/items"]


TREE = {
    "definitions": {
        "tree": {"properties": {"value": B, "children": {"items": {"$ref": "#/definitions/tree"}}}}
    }
}


def test_recursive_schemas_are_compared() -> None:
    old = {**TREE, "$ref": "#/definitions/tree"}
    new = json.loads(json.dumps(old).replace('"integer"', '"number"'))
    assert names(old, old) == names(old, new) == []
    assert set(names(new, old)) == {"TYPE_NARROWED"}


def test_references_are_followed_into_other_schemas() -> None:
    text = json.dumps(
        {"$id": "http://example.com/order.json", "properties": {"a": {"$ref": "customer.json"}}}
    )
    old = Document(text, {"customer.json": json.dumps(A)})
    new = Document(text, {"http://example.com/customer.json": json.dumps({"type": ["string", "null"]})})
    assert narrowed(old, new) == []
    assert [each.name for each in narrowed(new, old)] == ["SUM_TYPE_NARROWED"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object or boolean"),
        ('{"properties": {"a": {"$ref": "#/definitions/b"}}}', "cannot be resolved"),
        ('{"items": {"$ref": "other.json"}}', "cannot be resolved"),
        ('{"properties": {"z": {"$ref": "#/properties/z"}}}', "leads back to itself"),
        ('{"$ref": "#/foo", "foo": 5}', "leads to no schema"),
        ('{"$ref": "#/foo", "foo": {"allOf": 5}}', "not of type 'array'"),
        ('{"$schema": 5}', "is not a string"),
        ('{"$schema": "http://json-schema.org/draft-03/schema#"}', "draft 3"),
        ('{"dependentSchemas": {"a": 5}}', "not a schema"),
        ('{"properties": 5}', r"5 is not of type 'object' \(at \$.properties\)"),
        ('{"type": "strin"}', "'strin' is not valid"),
        ('{"items": {"type": 5}}', r"\(at \$.items"),
        ('{"$schema": "https://json-schema.org/draft/2020-12/schema", "items": []}', r"\(at \$.items"),
    ],
)
def test_what_is_not_a_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(JsonSchemaError, match=message):
        Document(text)


BRANCHES = {f"l{at}": {"anyOf": [{"not": {"$ref": f"#/definitions/l{at + 1}"}}] * 8} for at in range(5)}


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ({"allOf": [{"$ref": "#"}]}, {"allOf": [{"$ref": "#"}], "title": "t"}, []),
        (
            {"properties": {"a": {"not": {"$ref": "#"}}}},
            {"properties": {"a": {"not": {"$ref": "#"}}}, "title": "t"},
            [],
        ),
        (
            {"definitions": {**BRANCHES, "l5": A}, "$ref": "#/definitions/l0"},
            {"definitions": {**BRANCHES, "l5": B}, "$ref": "#/definitions/l0"},
            ["TOO_LARGE"],
        ),
        ({"enum": [str(at) for at in range(9000)]}, {"enum": [str(at) for at in range(9001)]}, []),
        ({"const": [1]}, {"const": [True]}, ["CONST_CHANGED"]),
        ({"type": "number", "multipleOf": 1e300}, {"type": "number", "multipleOf": 1e-300}, []),
        ({**A, "connect.type": "bytes"}, {**B, "connect.type": "bytes"}, []),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, True, []),
    ],
)
def test_odd_schemas(old: Any, new: Any, found: list[str]) -> None:
    assert names(old, new) == found


def test_a_comparison_is_bounded() -> None:
    branches = [{"minLength": at} for at in range(150)]
    old, new = (
        Document(json.dumps({"anyOf": [{**one, "title": name} for one in branches]})) for name in "ab"
    )
    assert COMPARED_MAX < 150 * 150
    assert [each.name for each in narrowed(old, new)] == ["TOO_LARGE"]


def test_deeply_nested_schemas_end() -> None:
    with pytest.raises(JsonSchemaError, match="nested too deeply"):
        Document('{"items": ' * 900 + "{}" + "}" * 900)
    old, new = (Document('{"items": ' * 60 + end + "}" * 60) for end in ("{}", '{"type": "string"}'))
    assert [each.name for each in narrowed(old, new)] == ["TYPE_CHANGED"]

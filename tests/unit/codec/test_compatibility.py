"""Which schema may follow which."""

from typing import Any

import pytest
from tests.unit.codec.vectors import field, record, schema

from penstock.codec import check, key_value_schema
from penstock.model.schema import Compatibility, SchemaInfo

ONE = record(field("a", "int"))
WITH_DEFAULT = record(field("a", "int"), field("b", "int", 0))
WITHOUT_DEFAULT = record(field("a", "int"), field("b", "int"))
OTHER = record(field("a", "string"))

BACKWARD, FORWARD, FULL = Compatibility.BACKWARD, Compatibility.FORWARD, Compatibility.FULL


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
@pytest.mark.parametrize(
    ("old", "new", "allowed"),
    [
        (ONE, ONE, {BACKWARD, FORWARD, FULL}),
        (ONE, WITH_DEFAULT, {BACKWARD, FORWARD, FULL}),
        (ONE, WITHOUT_DEFAULT, {FORWARD}),
        (WITHOUT_DEFAULT, ONE, {BACKWARD}),
        (WITH_DEFAULT, ONE, {BACKWARD, FORWARD, FULL}),
        (ONE, record(field("a", "long")), {BACKWARD}),
        (record(field("a", "long")), ONE, {FORWARD}),
        (ONE, OTHER, set()),
        (ONE, record(field("a", ["null", "int"])), {BACKWARD}),
        (
            ONE,
            record(field("a", "int"), name="S"),
            {BACKWARD, FORWARD, FULL},
        ),  # names of records do not decide
        (ONE, record(field("b", "int"), name="S"), set()),
        (ONE, record(field("x", "int", aliases=["a"])), {BACKWARD}),
    ],
)
def test_strategies(kind: str, old: Any, new: Any, allowed: set[Compatibility]) -> None:
    for strategy in (BACKWARD, FORWARD, FULL):
        why = check(schema(kind, new), [schema(kind, old)], strategy)
        assert (why is None) == (strategy in allowed), why
    assert (check(schema(kind, new), [schema(kind, old)], Compatibility.UNDEFINED) is None) == (
        FULL in allowed
    )


def test_always() -> None:
    one, other = schema("AVRO", ONE), schema("STRING")
    assert check(one, [other], Compatibility.ALWAYS_COMPATIBLE) is None
    assert check(one, [one], Compatibility.ALWAYS_INCOMPATIBLE) is not None
    assert check(one, [], Compatibility.ALWAYS_INCOMPATIBLE) is None
    for strategy in set(Compatibility) - {Compatibility.ALWAYS_COMPATIBLE}:
        assert check(one, [other], strategy) is not None


def test_transitive_looks_at_all() -> None:
    first = schema("AVRO", record(field("a", "int"), field("b", "string")))
    second = schema("AVRO", ONE)
    third = schema("AVRO", record(field("a", "int"), field("b", "int", 0)))
    assert check(third, [first, second], BACKWARD) is None
    why = check(third, [first, second], Compatibility.BACKWARD_TRANSITIVE)
    assert why is not None
    assert "field 'b': string was written, which int cannot read" in why


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        (WITHOUT_DEFAULT, ONE, "field 'b': it is not in what was written and has no default"),
        (
            record(field("a", "int"), field("b", "int", "x")),
            ONE,
            "the default of R.b does not fit: 'x' is no int",
        ),
        (OTHER, ONE, "field 'a': int was written, which string cannot read"),
        (
            record(field("e", {"type": "enum", "name": "E", "symbols": ["A"]})),
            record(field("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]})),
            "field 'e': enum E has no symbol B and no default",
        ),
        (
            record(field("f", {"type": "fixed", "name": "F", "size": 3})),
            record(field("f", {"type": "fixed", "name": "F", "size": 2})),
            "field 'f': fixed F was written with 2 bytes, not 3",
        ),
        (
            record(field("l", {"type": "array", "items": record(field("z", "int"), name="Z")})),
            record(field("l", {"type": "array", "items": record(field("z", "string"), name="Z")})),
            "field 'l[].z': string was written, which int cannot read",
        ),
        (
            record(field("u", ["null", "int"])),
            record(field("u", ["null", "string"])),
            "none of union of null, int",
        ),
        (
            record(field("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3})),
            record(field("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})),
            "field 'd': the scale of the decimal was 2, not 3",
        ),
        (
            record(field("t", {"type": "long", "logicalType": "timestamp-micros"})),
            record(field("t", {"type": "long", "logicalType": "timestamp-millis"})),
            "field 't': timestamp-millis was written, which is not timestamp-micros",
        ),
    ],
)
def test_refusals_name_the_field(reader: Any, writer: Any, why: str) -> None:
    said = check(schema("AVRO", reader), [schema("AVRO", writer)], BACKWARD)
    assert said is not None
    assert said.startswith("the new schema cannot read what the old one wrote (BACKWARD): ")
    assert why in said
    said = check(schema("AVRO", writer), [schema("AVRO", reader)], FORWARD)
    assert said is not None
    assert said.startswith("the old schema cannot read what the new one writes (FORWARD): ")
    assert why in said


def test_what_is_allowed() -> None:
    time = {"type": "long", "logicalType": "timestamp-millis"}
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    for reader, writer in [
        ({**enum, "symbols": ["A"], "default": "A"}, enum),
        (time, "long"),
        ("long", time),
        ("bytes", "string"),
        ("string", "bytes"),
        (["null", "double"], ["int", "null"]),
    ]:
        new, old = record(field("x", reader)), record(field("x", writer))
        assert check(schema("AVRO", new), [schema("AVRO", old)], BACKWARD) is None


def test_recursive_records() -> None:
    def chain(value: str) -> SchemaInfo:
        return schema("AVRO", record(field("v", value), field("next", ["null", "R"])))

    assert check(chain("long"), [chain("int")], BACKWARD) is None
    assert check(chain("int"), [chain("string")], BACKWARD) is not None


def test_pairs_check_both() -> None:
    text, number, one = schema("STRING"), schema("INT32"), schema("AVRO", ONE)
    pair = key_value_schema
    assert check(pair(text, one), [pair(text, one)], FULL) is None
    why = check(pair(number, one), [pair(text, one)], FULL)
    assert why is not None
    assert "key: STRING was written, not INT32" in why
    why = check(pair(text, schema("AVRO", OTHER)), [pair(text, one)], FULL)
    assert why is not None
    assert "value: field 'a'" in why


def test_json_without_a_definition_follows_anything() -> None:
    assert check(schema("JSON"), [schema("JSON", ONE)], FULL) is None
    assert check(schema("JSON", ONE), [schema("JSON")], FULL) is None


def test_primitives_pass() -> None:
    assert check(schema("INT32"), [schema("INT32")], FULL) is None

"""Values by JSON Schemas: the verdicts and texts of jsonschema, with patterns in linear time."""

import json
import time
from typing import Any

import pytest

from penstock.codec.json_schema.values import misfit


@pytest.mark.parametrize(
    ("schema", "value", "fits"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 1}, True),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": "x"}, False),
        ({"pattern": "^a+$"}, "aaa", True),
        ({"pattern": "b"}, "abc", True),
        ({"pattern": "^b"}, "abc", False),
        ({"pattern": "^b"}, 5, True),
        ({"pattern": "(?=x)"}, "y", True),  # which cannot be matched in linear time
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": 1, "x": "y"}, True),
        ({"patternProperties": {"^n": {"type": "integer"}}}, {"n1": "x"}, False),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, {"n1": 1}, True),
        ({"patternProperties": {"^n": {}}, "additionalProperties": False}, {"m": 1}, False),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"a": 1, "b": "x"}, True),
        ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, {"b": 1}, False),
        ({"uniqueItems": True}, [{"a": 1}, {"a": 2}], True),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"uniqueItems": False}, [1, 1], True),
        ({"$ref": "other.json"}, 1, True),
        ({"$ref": "other.json"}, "x", False),
    ],
)
def test_values(schema: Any, value: Any, fits: bool) -> None:
    assert (misfit(json.dumps(schema), {"other.json": '{"type": "integer"}'}, value) == "") == fits


def test_the_text_names_the_place() -> None:
    text = misfit('{"properties": {"n": {"type": "integer"}}}', {}, {"n": "x"})
    assert text == (
        "'x' is not of type 'integer'\n\nFailed validating 'type' in schema['properties']['n']:\n"
        "    {'type': 'integer'}\n\nOn instance['n']:\n    'x'"
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(a+)+$"},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
    ],
)
def test_a_pattern_costs_no_time(schema: Any) -> None:
    hostile = "a" * 40 + "b"
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    began = time.monotonic()
    misfit(json.dumps(dialect), {}, hostile)
    misfit(json.dumps(dialect), {}, {hostile: 1})
    assert time.monotonic() - began < 5

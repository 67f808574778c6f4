"""Rules of schema resolution beyond those that compatibility shows."""

import time
from typing import Any

import pytest
from tests.unit.codec.vectors import field, record

from penstock.codec.avro.parse import parse_tree
from penstock.codec.avro.resolve import mismatch

_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
    ("float", "double"), ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


@pytest.mark.parametrize("written", _PRIMITIVES)
@pytest.mark.parametrize("read", _PRIMITIVES)
def test_promotions(written: str, read: str) -> None:
    fits = written == read or (written, read) in _PROMOTED
    assert (mismatch(parse_tree(read), parse_tree(written)) == "") == fits


@pytest.mark.parametrize(
    ("read", "written", "fits"),
    [
        (["null", "int"], "int", True),
        ("int", ["int"], True),
        ("int", ["null", "int"], False),
        (["string", "double"], ["int", "string"], True),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, False),
        (record(name="x.R"), record(name="y.R"), True),  # the unqualified name counts
        (record(name="S", aliases=["y.R"]), record(name="y.R"), True),
        (record(name="S", aliases=["R"]), record(name="y.R"), False),
        (["null", record(field("a", "int"), name="A")], record(field("a", "int"), name="A"), True),
        (["null", record(field("b", "int"), name="A")], record(field("a", "int"), name="A"), False),
    ],
)
def test_pairs(read: Any, written: Any, fits: bool) -> None:
    assert (mismatch(parse_tree(read), parse_tree(written)) == "") == fits


def test_a_recursive_pair_that_fails_does_not_pass_by_its_own_assumption() -> None:
    def tree(leaf: str) -> Any:
        other = record(field("back", ["null", "T"]), name="O")
        return record(field("other", ["null", other]), field("leaf", leaf), name="T")

    def both(leaf: str) -> Any:
        return parse_tree(record(field("u", ["null", tree(leaf)]), field("o", ["null", "O"]), name="Top"))

    assert mismatch(both("int"), both("int")) == ""
    assert mismatch(both("int"), both("string")) != ""


def test_many_fields_take_no_longer_each() -> None:
    fields = [{"name": f"f{n}", "type": "int", "default": 0} for n in range(9_000)]
    kind, other = (parse_tree({"type": "record", "name": "R", "fields": fields}) for _ in range(2))
    began = time.process_time()
    assert mismatch(kind, other) == ""
    assert time.process_time() - began < 2  # some 20 ms; were it quadratic, 5 s

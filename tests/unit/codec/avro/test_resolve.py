"""Rules of schema resolution beyond those that compatibility shows."""

import time
from typing import Any

import pytest
from tests.unit.codec.vectors import field, record

from penstock.codec.avro.parse import parse_tree
from penstock.codec.avro.resolve import Resolution, mismatch

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


def _enum(name: str) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": ["A"]}


@pytest.mark.parametrize(
    ("read", "written", "fits"),
    [
        (["null", "int"], "int", True),
        ("int", ["int"], True),
        ("int", ["null", "int"], False),
        (["string", "double"], ["int", "string"], True),
        ({"type": "map", "values": "long"}, {"type": "map", "values": "int"}, True),
        ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, False),
        (record(name="x.R"), record(name="y.R"), True),
        (
            record(field("a", "int"), name="S"),
            record(field("a", "int"), name="R"),
            True,
        ),  # names do not decide
        (record(field("a", "int"), name="S"), record(field("b", "int"), name="R"), False),
        (record(field("f", record(name="S"))), record(field("f", record(name="T"))), True),
        (["null", record(name="S")], ["null", record(name="R")], True),
        ({"type": "array", "items": record(name="S")}, {"type": "array", "items": record(name="R")}, True),
        (_enum("n1.E"), _enum("n2.E"), True),  # the unqualified name counts
        (_enum("E"), _enum("F"), False),
        ({**_enum("E"), "aliases": ["n.F"]}, _enum("n.F"), True),
        ({"type": "fixed", "name": "E", "size": 2}, {"type": "fixed", "name": "F", "size": 2}, False),
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
    began = time.thread_time()
    assert mismatch(kind, other) == ""
    assert time.thread_time() - began < 2  # some 20 ms; were it quadratic, 5 s


def test_a_branch_of_the_same_name_comes_before_one_with_the_same_fields() -> None:
    def branches(*names: str) -> Any:
        return parse_tree([record(field("a", "int"), name=name) for name in names])

    reader, writer = branches("B", "A"), branches("A").branches[0]
    assert Resolution().branch(reader, writer) is reader.branches[1]
    assert Resolution().branch(branches("C", "D"), writer) is not None


def test_many_records_of_other_names_are_not_all_compared() -> None:
    def many(prefix: str, *names: str) -> Any:
        return parse_tree([record(field(name, "int"), name=f"{prefix}{n}") for n, name in enumerate(names)])

    reader = many("R", *(f"b{n}" for n in range(999)), "a")  # only the last reads what was written
    writer = many("W", *("a" for _ in range(1_000)))
    assert "pairs of records with different names" in mismatch(reader, writer)

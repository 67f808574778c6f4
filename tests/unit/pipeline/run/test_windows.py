"""The parts of a window are read from the expression that Spark computes it with."""

from typing import Any

import pytest

from penstock.pipeline.run.lateness import Window, window_of

Node = tuple[str, dict[str, Any], list[Any]]
PACKAGE = "org.apache.spark.sql.catalyst.expressions."


def listed(node: Node) -> list[dict[str, Any]]:
    """An expression as Spark lists it: each node before its children."""
    name, fields, children = node
    top = {"class": PACKAGE + name, "num-children": len(children), **fields}
    return [top, *(each for child in children for each in listed(child))]


def literal(value: object) -> Node:
    return "Literal", {"value": str(value)}, []


def inside(*names: str, of: Node) -> Node:
    for name in names:
        of = name, {}, [of]
    return of


TIME: Node = ("AttributeReference", {"name": "at"}, [])
AS_LONG = inside("PreciseTimestampConversion", of=TIME)


def spark_window(size: int, slide: int, offset: int) -> Node:
    """The window as Spark 4 has it, with the fields that are read."""
    remainder: Node = ("Remainder", {}, [("Subtract", {}, [AS_LONG, literal(offset)]), literal(slide)])
    shifted: Node = ("Add", {}, [remainder, literal(slide)])
    negative: Node = ("LessThan", {}, [remainder, inside("Cast", of=literal(0))])
    last: Node = ("Subtract", {}, [AS_LONG, ("CaseWhen", {"branches": []}, [negative, shifted, remainder])])
    start: Node = ("Subtract", {}, [last, literal(0)])
    ends = [start, ("Add", {}, [start, literal(size)])]
    made = [inside("PreciseTimestampConversion", "KnownNullable", of=each) for each in ends]
    return "CreateNamedStruct", {}, [literal("start"), made[0], literal("end"), made[1]]


def test_a_window_is_read_from_its_expression() -> None:
    assert window_of(listed(spark_window(600, 180, 60))) == Window(600, 180, 60)


SESSION_END: Node = ("TimestampAddInterval", {}, [TIME, inside("Cast", of=literal("5 minutes"))])
OTHERS: list[Node] = [
    TIME,
    ("CreateNamedStruct", {}, [literal("start"), AS_LONG]),
    ("CreateNamedStruct", {}, [literal("start"), AS_LONG, literal("end"), SESSION_END]),
    ("CreateNamedStruct", {}, [literal("a"), AS_LONG, literal("b"), ("Add", {}, [AS_LONG, literal(1)])]),
]


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_no_window_is_not_taken_for_one(other: Node) -> None:
    assert window_of(listed(other)) is None

"""Hypothesis strategies: Avro definitions, values of them in native form, and readers like a writer."""

import copy
from typing import Any

from hypothesis import strategies as st

_PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
_NAMES = ["a", "b", "c", "d"]


@st.composite
def definitions(draw: st.DrawFn, depth: int = 3) -> Any:
    """A definition; named types get a name that is not used elsewhere in it."""
    return draw(_types(depth, [0], in_union=False))


@st.composite
def records(draw: st.DrawFn, depth: int = 3) -> Any:
    """A record's definition."""
    return draw(_record(depth, [0]))


def _fresh(counter: list[int]) -> str:
    counter[0] += 1
    return f"N{counter[0]}"


@st.composite
def _record(draw: st.DrawFn, depth: int, counter: list[int]) -> Any:
    name = _fresh(counter)
    names = draw(st.lists(st.sampled_from(_NAMES), unique=True, max_size=4))
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": n, "type": draw(_types(depth - 1, counter, in_union=False))} for n in names],
    }


@st.composite
def _types(draw: st.DrawFn, depth: int, counter: list[int], *, in_union: bool) -> Any:
    kinds = ["primitive", "primitive", "primitive", "enum", "fixed"]
    if depth > 0:
        kinds += ["record", "array", "map"] + ([] if in_union else ["union", "nullable"])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        return draw(st.sampled_from(_PRIMITIVES))
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), unique=True, min_size=1))
        return {"type": "enum", "name": _fresh(counter), "symbols": symbols}
    if kind == "fixed":
        return {"type": "fixed", "name": _fresh(counter), "size": draw(st.integers(0, 3))}
    if kind == "record":
        return draw(_record(depth, counter))
    if kind == "array":
        return {"type": "array", "items": draw(_types(depth - 1, counter, in_union=False))}
    if kind == "map":
        return {"type": "map", "values": draw(_types(depth - 1, counter, in_union=False))}
    if kind == "nullable":
        other = draw(_types(depth - 1, counter, in_union=True).filter(lambda t: t != "null"))
        return draw(st.permutations(["null", other]))
    return draw(
        st.lists(_types(depth - 1, counter, in_union=True), min_size=1, max_size=3, unique_by=_branch_key)
    )


def _branch_key(kind: Any) -> str:
    if isinstance(kind, str):
        return kind
    return str(kind.get("name", kind["type"]))


@st.composite
def values(draw: st.DrawFn, kind: Any) -> Any:
    """A native value of a definition made by `definitions`."""
    if isinstance(kind, list):
        return draw(values(draw(st.sampled_from(kind))))
    name = kind if isinstance(kind, str) else kind["type"]
    if name in _SCALARS:
        return draw(_SCALARS[name])
    if name == "enum":
        return draw(st.sampled_from(kind["symbols"]))
    if name == "fixed":
        return draw(st.binary(min_size=kind["size"], max_size=kind["size"]))
    if name == "array":
        return draw(st.lists(values(kind["items"]), max_size=3))
    if name == "map":
        return draw(st.dictionaries(st.text(max_size=3), values(kind["values"]), max_size=3))
    return {field["name"]: draw(values(field["type"])) for field in kind["fields"]}


_SCALARS = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=100),
    "string": st.text(max_size=100),
}

_WIDER = {
    "int": ["long", "float", "double"],
    "long": ["float", "double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}


@st.composite
def readers(draw: st.DrawFn, writer: Any) -> Any:
    """A definition like `writer`'s with some things changed, for better or worse."""
    return draw(_changed(copy.deepcopy(writer)))


@st.composite
def _changed(draw: st.DrawFn, kind: Any) -> Any:
    what = draw(st.sampled_from(["same", "same", "inside", "inside", "wider", "wrapped", "other"]))
    if what == "same":
        return kind
    if what == "wider" and isinstance(kind, str) and kind in _WIDER:
        return draw(st.sampled_from(_WIDER[kind]))
    if what == "wrapped" and not isinstance(kind, list) and kind != "null":
        return draw(st.permutations(["null", kind]))
    if what == "other":
        return draw(st.sampled_from(_PRIMITIVES))
    if isinstance(kind, list):
        changed = [draw(_changed(branch)) for branch in kind]
        flat = [b for branch in changed for b in (branch if isinstance(branch, list) else [branch])]
        return list({_branch_key(branch): branch for branch in flat}.values())
    if isinstance(kind, str):
        return kind
    return draw(_changed_inside(kind))


@st.composite
def _changed_inside(draw: st.DrawFn, kind: Any) -> Any:
    if kind["type"] == "array":
        return {**kind, "items": draw(_changed(kind["items"]))}
    if kind["type"] == "map":
        return {**kind, "values": draw(_changed(kind["values"]))}
    if kind["type"] == "enum":
        symbols = draw(st.lists(st.sampled_from(["A", "B", "C", "D"]), unique=True, min_size=1))
        return {**kind, "symbols": symbols, **({"default": symbols[0]} if draw(st.booleans()) else {})}
    if kind["type"] != "record":
        return kind
    fields = []
    for field in kind["fields"]:
        change = draw(st.sampled_from(["keep", "keep", "inside", "drop", "rename"]))
        if change == "inside":
            field = {**field, "type": draw(_changed(field["type"]))}
        elif change == "rename":
            field = {**field, "name": field["name"] * 2, "aliases": [field["name"]]}
        if change != "drop":
            fields.append(field)
    if draw(st.booleans()):
        added = draw(
            st.sampled_from(
                [
                    {"name": "new", "type": "int", "default": 5},
                    {"name": "new", "type": "int"},
                    {"name": "new", "type": ["null", "string"], "default": None},
                    {"name": "new", "type": {"type": "array", "items": "long"}, "default": [1]},
                ]
            )
        )
        fields.append(added)
    return {**kind, "fields": draw(st.permutations(fields))}

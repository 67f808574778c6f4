"""The tests of a pipeline: given messages, and the rows that its steps and sinks make of them. Imports no Spark.

They are in the pipeline's file as `[[tests]]`, or in a second file: `sales.tests.toml` for `sales.toml`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.parse import read_toml

Row = Mapping[str, Any]

_CLOSE: Final = 1e-9  # of a number: sums of floating-point numbers depend on their order


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test. `given` are messages by source, `tables` rows by table, `expect` rows by source, step or sink, or
    `dead_letters`; `fails` is part of the error with which it ends."""

    name: str
    given: dict[str, list[dict[str, Any]]]
    tables: dict[str, list[dict[str, Any]]] = {}
    schemas: dict[str, str] = {}  # of sources that decode, and of tables
    expect: dict[str, list[dict[str, Any]]] = {}
    fails: str = ""

    def __str__(self) -> str:
        return self.name


class Difference(msgspec.Struct, frozen=True):
    """Rows of a view that are missing, and rows that are not expected, with the columns that are compared."""

    view: str
    missing: list[dict[str, Any]]
    unexpected: list[dict[str, Any]]

    def lines(self) -> list[str]:
        """For people: `-` is expected and missing, `+` is there and not expected, and `?` how the two differ."""
        found = [f"{self.view}:"]
        left = list(self.unexpected)
        for row in self.missing:
            found.append(f"  - {_text(row)}")
            if left:
                like = max(left, key=lambda other: sum(fits(v, other.get(k)) for k, v in row.items()))
                left.remove(like)
                found.append(f"  + {_text(like)}")
                wrong = [k for k, value in row.items() if not fits(value, like.get(k))]
                found += [f"  ? {k}: {_text(like.get(k))}, not {_text(row[k])}" for k in wrong]
        return found + [f"  + {_text(row)}" for row in left]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a test went. `error` is why its rows could not be made, or that they could."""

    test: str
    passed: bool
    seconds: float
    error: str = ""
    differences: list[Difference] = []

    def lines(self) -> list[str]:
        """What went wrong, for people."""
        wrong = [self.error] if self.error else []
        return wrong + [line for each in self.differences for line in each.lines()]


def load_cases(file: Path | str) -> list[Case]:
    """The tests of a pipeline's file and of its test file. Raises PipelineError."""
    beside = Path(file).with_suffix(".tests.toml")
    found: list[Case] = []
    for path in (Path(file), beside):
        if path == beside and not beside.exists():
            continue
        tests = read_toml(path).get("tests", [])
        if not isinstance(tests, list):
            raise PipelineError(f"{path}: [tests]: tests are written [[tests]]")
        for number, raw in enumerate(tests, 1):
            try:
                found.append(msgspec.convert(raw, Case))
            except msgspec.ValidationError as error:
                name = raw.get("name") if isinstance(raw, dict) else None
                raise PipelineError(f"{path}: [[tests]] {name or f'number {number}'}: {error}") from None
    names = [case.name for case in found]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{file}: two of its tests are called {name!r}")
    return found


def difference(view: str, expected: Sequence[Row], found: Sequence[Row]) -> Difference | None:
    """How rows differ from those expected, in any order; None if they do not. Only the columns count that an expected row
    names: with none, all are unexpected."""
    names = list(dict.fromkeys(name for row in expected for name in row))
    left = [{name: row.get(name) for name in names or row} for row in found]
    missing = []
    for row in sorted(expected, key=len, reverse=True):  # the rows that fit the fewest first
        match = next((n for n, other in enumerate(left) if fits(row, other)), None)
        if match is None:
            missing.append(dict(row))
        else:
            del left[match]
    return Difference(view, missing, left) if missing or left else None


def fits(expected: Any, found: Any) -> bool:
    """Whether a value is the one expected; of a struct or map, as far as its fields are named."""
    if isinstance(expected, Mapping):
        return isinstance(found, Mapping) and all(fits(each, found.get(k)) for k, each in expected.items())
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(fits, expected, found))
    if isinstance(expected, float) and isinstance(found, float | int):
        return math.isclose(expected, found, rel_tol=_CLOSE) or (math.isnan(expected) and math.isnan(found))
    return bool(expected == found)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)

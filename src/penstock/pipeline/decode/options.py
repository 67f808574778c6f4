"""The options of typed reading, and columns written down: `id bigint, name string, tags array<string>`.

Spark's own parser of columns lives in its JVM, which the processes that ask for a table's columns do not have.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import types as t

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import DECODE

_LATEST: Final = -1

_SIMPLE: Final = (
    *(
        t.BooleanType(),
        t.ByteType(),
        t.ShortType(),
        t.IntegerType(),
        t.LongType(),
        t.FloatType(),
        t.DoubleType(),
    ),
    *(t.StringType(), t.BinaryType(), t.DateType(), t.TimestampType(), t.TimestampNTZType()),
)
_NAMED: Final[dict[str, t.DataType]] = {
    **{name: kind for kind in _SIMPLE for name in (kind.typeName(), kind.simpleString())},
    **{"real": t.FloatType(), "timestamp_ltz": t.TimestampType()},
}
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+(?:\s*\([\d\s,]*\))?|[<>,:])")
_DECIMAL: Final = re.compile(r"(?:decimal|dec|numeric)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DEPTH_MAX: Final = 50


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """How values are decoded. `version` is the reader's schema, below 0 the newest; `ddl` replaces it."""

    flat: bool
    version: int = _LATEST
    ddl: str = ""
    on_new: str = "ignore"
    mode: str = "failfast"
    keep_bytes: bool = False  # every row's received message, in addition to the decoded columns

    @property
    def keeps_broken(self) -> bool:
        """Whether broken rows are kept, with columns that say why."""
        return self.mode != "failfast"


def parse_typed(given: Mapping[str, Any]) -> Typed | None:
    """The options of typed reading (`DECODE`), None if values stay bytes. Raises PipelineError, which names the option."""
    if given["value.decode"] == "none":
        for one in DECODE[1:]:
            if given[one.name] != one.default:
                raise PipelineError(f"option {one.name} needs value.decode=struct or flat")
        return None
    version, ddl = _reader(given["readerSchema"].strip())
    return Typed(
        flat=given["value.decode"] == "flat",
        version=version,
        ddl=ddl,
        on_new=given["onNewSchema"],
        mode=given["mode"],
        keep_bytes=given["keepBytes"],
    )


def _reader(text: str) -> tuple[int, str]:
    kind, mark, rest = text.partition(":")
    match kind.strip().lower():
        case "latest" if not mark:
            return _LATEST, ""
        case "version" if rest.strip().isascii() and rest.strip().isdigit() and len(rest) < 19:
            return int(rest), ""
        case "ddl" if rest.strip():
            return _LATEST, rest.strip()
    raise PipelineError(f"option readerSchema: {text!r} is none of latest, version:N and ddl:COLUMNS")


def parse_ddl(text: str) -> t.DataType:
    """A struct of the columns in `text`, or the one type that it names. Raises PipelineError."""
    try:
        tokens = _tokens(text.strip())
        alone = len(tokens) == 1 or tokens[1:2] == ["<"]
        left = deque(tokens)
        found = _type(left, 0) if alone else t.StructType(_fields(left, 0))
        if left:
            raise ValueError(f"{left[0]!r} is not expected")
    except ValueError as error:
        raise PipelineError(f"option readerSchema: ddl: {error}") from None
    return found


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at : at + 20]!r} is not understood")
        found.append(match[1])
        at = match.end()
    if not found:
        raise ValueError("no columns are named")
    return found


def _next(left: deque[str], mark: str = "") -> str:
    if not left:
        raise ValueError("it ends too early")
    found = left.popleft()
    if mark and found != mark:
        raise ValueError(f"{found!r} instead of {mark!r}")
    return found


def _fields(left: deque[str], depth: int) -> list[t.StructField]:
    fields: dict[str, t.StructField] = {}
    while left and left[0] != ">":
        if fields:
            _next(left, ",")
        name = _next(left)
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.fullmatch(r"\w+", name):
            raise ValueError(f"{name!r} is no name")
        if name.lower() in fields:
            raise ValueError(f"column {name} is there twice")
        if left and left[0] == ":":
            left.popleft()
        fields[name.lower()] = t.StructField(name, _type(left, depth))
    return list(fields.values())


def _type(left: deque[str], depth: int) -> t.DataType:
    if depth > _DEPTH_MAX:
        raise ValueError("nested too deeply")
    name = _next(left).lower()
    if name in ("array", "map", "struct"):
        _next(left, "<")
        if name == "struct":
            made: t.DataType = t.StructType(_fields(left, depth + 1))
        elif name == "array":
            made = t.ArrayType(_type(left, depth + 1))
        else:
            key = _type(left, depth + 1)
            _next(left, ",")
            made = t.MapType(key, _type(left, depth + 1))
        _next(left, ">")
        return made
    if found := _DECIMAL.fullmatch(name):
        precision, scale = int(found[1] or 10), int(found[2] or 0)
        if not 0 < precision <= 38 or scale > precision:
            raise ValueError(f"no type decimal({precision},{scale})")
        return t.DecimalType(precision, scale)
    if name not in _NAMED:
        raise ValueError(f"no type {name!r}")
    return _NAMED[name]

"""The options of typed reading, and columns written down: `id bigint, name string, tags array<string>`.

Spark's own parser of columns lives in its JVM, which the processes that ask for a table's columns do not have.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import types as t

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import DECODE

_LATEST: Final = -1

_NAMED: Final[dict[str, t.DataType]] = {
    "boolean": t.BooleanType(),
    "tinyint": t.ByteType(),
    "byte": t.ByteType(),
    "smallint": t.ShortType(),
    "short": t.ShortType(),
    "int": t.IntegerType(),
    "integer": t.IntegerType(),
    "bigint": t.LongType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "real": t.FloatType(),
    "double": t.DoubleType(),
    "string": t.StringType(),
    "binary": t.BinaryType(),
    "date": t.DateType(),
    "timestamp": t.TimestampType(),
    "timestamp_ltz": t.TimestampType(),
    "timestamp_ntz": t.TimestampNTZType(),
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][\w]*|\d+)|([<>(),:]))")
_DEPTH_MAX: Final = 50


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """How values are decoded. `version` is the reader's schema, below 0 the newest; `ddl` stands in its place."""

    flat: bool
    version: int = _LATEST
    ddl: str = ""
    on_new: str = "ignore"
    mode: str = "failfast"
    keep_bytes: bool = False  # every row's message as it came, beside what it was decoded to

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
        return _Parser(text).whole()
    except ValueError as error:
        raise PipelineError(f"option readerSchema: ddl: {error}") from None


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, bool]] = []  # and whether it stood in backticks
        at = 0
        text = text.strip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"{text[at : at + 20]!r} is not understood")
            quoted = match[1] is not None
            self._tokens.append((match[1].replace("``", "`") if quoted else match[2] or match[3], quoted))
            at = match.end()
        self._at = 0

    def whole(self) -> t.DataType:
        if not self._tokens:
            raise ValueError("no columns are named")
        if len(self._tokens) == 1 or self._tokens[1][0] in ("<", "("):
            found: t.DataType = self._type(0)
        else:
            found = t.StructType(self._fields("", 0))
        if self._at < len(self._tokens):
            raise ValueError(f"{self._peek()!r} is not expected")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _next(self) -> tuple[str, bool]:
        if self._at == len(self._tokens):
            raise ValueError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        found, _ = self._next()
        if found != mark:
            raise ValueError(f"{found!r} instead of {mark!r}")

    def _fields(self, end: str, depth: int) -> list[t.StructField]:
        fields: list[t.StructField] = []
        while self._peek() != end:
            if fields:
                self._expect(",")
            name, quoted = self._next()
            if not quoted and not re.fullmatch(r"\w+", name):
                raise ValueError(f"{name!r} is no name")
            if name.lower() in (field.name.lower() for field in fields):
                raise ValueError(f"column {name} is there twice")
            if self._peek() == ":":
                self._next()
            fields.append(t.StructField(name, self._type(depth)))
        return fields

    def _type(self, depth: int) -> t.DataType:
        if depth > _DEPTH_MAX:
            raise ValueError("nested too deeply")
        name = self._next()[0].lower()
        if name == "array":
            self._expect("<")
            item = self._type(depth + 1)
            self._expect(">")
            return t.ArrayType(item)
        if name == "map":
            self._expect("<")
            key = self._type(depth + 1)
            self._expect(",")
            value = self._type(depth + 1)
            self._expect(">")
            return t.MapType(key, value)
        if name == "struct":
            self._expect("<")
            fields = self._fields(">", depth + 1)
            self._expect(">")
            return t.StructType(fields)
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name not in _NAMED:
            raise ValueError(f"no type {name!r}")
        return _NAMED[name]

    def _decimal(self) -> t.DataType:
        if self._peek() != "(":
            return t.DecimalType(10, 0)
        self._expect("(")
        precision, scale = self._number(), 0
        if self._peek() == ",":
            self._next()
            scale = self._number()
        self._expect(")")
        if not 0 < precision <= 38 or scale > precision:
            raise ValueError(f"no type decimal({precision},{scale})")
        return t.DecimalType(precision, scale)

    def _number(self) -> int:
        text, _ = self._next()
        if not text.isdigit():
            raise ValueError(f"{text!r} is no number")
        return int(text)

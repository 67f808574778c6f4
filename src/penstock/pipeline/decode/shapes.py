"""Which column an Avro definition makes; JSON schemas are defined the same way.

Everything may be null, in Spark's types as in Arrow's: a broken row has no value anywhere. Unions are what
Spark's own `from_avro` makes of them: null and one type are that type, int and long are long, float and double
are double, all others a struct with a field `member0`, `member1`, … for each type but null.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

from pyspark.sql import types as t

from penstock.codec.avro.types import Array, Fixed, Logical, Map, Primitive, Record, Type, Union
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.versions import arrow_type as arrow_type

DECIMAL_DIGITS: Final = 38  # the most that Spark's decimals have
COLUMNS_MAX: Final = 10_000  # with those inside others; a record used twice counts twice

_PRIMITIVES: Final[dict[str, t.DataType]] = {
    "null": t.NullType(),
    "boolean": t.BooleanType(),
    "int": t.IntegerType(),
    "long": t.LongType(),
    "float": t.FloatType(),
    "double": t.DoubleType(),
    "bytes": t.BinaryType(),
    "string": t.StringType(),
    "fixed": t.BinaryType(),
    "enum": t.StringType(),
}

# Unions that are the wider of their types.
_WIDER: Final = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def spark_type(kind: Type, path: str = "value") -> t.DataType:
    """The column's type. Raises PipelineError for a type that contains itself, which no column can hold."""
    return _spark(kind, path, frozenset(), count(1))


def counted(columns: Iterator[int], path: str) -> None:
    """Count a column. Raises PipelineError if there are too many."""
    if next(columns) > COLUMNS_MAX:
        raise PipelineError(f"{path}: the schema makes more than {COLUMNS_MAX} columns")


def recursive(path: str, what: str) -> PipelineError:
    """The refusal of a type that contains itself."""
    return PipelineError(
        f"{path}: {what} contains itself, which no Spark type can hold; read the bytes with value.decode=none"
    )


def _spark(kind: Type, path: str, inside: frozenset[int], columns: Iterator[int]) -> t.DataType:
    counted(columns, path)
    if isinstance(kind, Record):
        if id(kind) in inside:
            raise recursive(path, f"record {kind.short}")
        inside |= {id(kind)}
        return t.StructType(
            [t.StructField(f.name, _spark(f.type, f"{path}.{f.name}", inside, columns)) for f in kind.fields]
        )
    if isinstance(kind, Array):
        return t.ArrayType(_spark(kind.items, f"{path}[]", inside, columns))
    if isinstance(kind, Map):
        return t.MapType(t.StringType(), _spark(kind.values, f"{path}{{}}", inside, columns))
    if isinstance(kind, Union):
        whole = merged(kind)
        if whole is not None:
            return _spark(whole, path, inside, columns)
        types = [_spark(branch, path, inside, columns) for branch in members(kind)]
        return t.StructType([t.StructField(f"member{n}", one) for n, one in enumerate(types)])
    logical = kind.logical if isinstance(kind, Primitive | Fixed) else None
    return _PRIMITIVES[kind.kind] if logical is None else _logical(logical, kind.kind)


def _logical(logical: Logical, carrier: str) -> t.DataType:
    name = logical.name
    if name == "decimal":
        # Decimal text where Spark has no decimal so wide.
        wide = logical.precision > DECIMAL_DIGITS
        return t.StringType() if wide else t.DecimalType(logical.precision, logical.scale)
    if name == "uuid":
        return t.StringType()
    if name == "date":
        return t.DateType()
    if name.startswith("timestamp-"):
        return t.TimestampType()
    if name.startswith("local-timestamp-"):
        return t.TimestampNTZType()
    return _PRIMITIVES[carrier]  # times of day stay the count that they are: ms as int, us as bigint


def members(union: Union) -> list[Type]:
    """A union's types without null."""
    return [branch for branch in union.branches if branch.kind != "null"]


def merged(union: Union) -> Type | None:
    """The one type that a union's values have in a column, None if it takes a struct of members."""
    rest = members(union)
    if not rest:
        return Primitive("null")
    if len(rest) == 1:
        return rest[0]
    if any(isinstance(b, Primitive) and b.logical is not None for b in rest):
        return None
    wider = _WIDER.get(frozenset(branch.kind for branch in rest))
    return Primitive(wider) if wider is not None and len(rest) == 2 else None

"""How a table's columns may grow."""

import pyarrow as pa
import pytest
from pyspark.sql import types

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake import schema

TABLE = pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int32())])), ("l", pa.list_(pa.string()))])


def test_new_columns_come_last_and_missing_ones_stay() -> None:
    grown = schema.grow(TABLE, pa.schema([("new", pa.string()), ("a", pa.int64())]))
    assert grown.names == ["a", "s", "l", "new"]


def test_fields_of_structs_grow_too() -> None:
    incoming = pa.schema([("s", pa.struct([("y", pa.string()), ("x", pa.int32())]))])
    assert schema.grow(TABLE, incoming).field("s").type == pa.struct([("x", pa.int32()), ("y", pa.string())])


def test_narrower_numbers_are_widened() -> None:
    assert schema.grow(TABLE, pa.schema([("a", pa.int32())])) == TABLE


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        ("a", pa.string(), "column a is int64 in the table and string here"),
        ("s", pa.struct([("x", pa.int64())]), "column x is int32"),
        ("l", pa.list_(pa.int64()), "column l"),
        ("A", pa.int64(), "case alone"),
    ],
)
def test_changed_types_are_refused(column: str, kind: pa.DataType, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        schema.grow(TABLE, pa.schema([(column, kind)]))


def test_old_rows_take_the_new_shape() -> None:
    old = pa.RecordBatch.from_pylist([{"a": 1, "s": {"x": 2}}, {"a": 2, "s": None}])
    wanted = pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
            ("d", pa.string()),
            ("new", pa.int32()),
        ]
    )
    got = schema.conform(old, wanted, {"d": "fixed"})
    assert got.schema == wanted
    assert got.to_pylist() == [
        {"a": 1, "s": {"x": 2, "y": None}, "d": "fixed", "new": None},
        {"a": 2, "s": None, "d": "fixed", "new": None},
    ]


def struct(**kinds: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


def test_sparks_types_come_back() -> None:
    spark = struct(
        a=types.LongType(),
        b=types.BinaryType(),
        s=types.StringType(),
        t=types.TimestampType(),
        n=types.TimestampNTZType(),
        d=types.DateType(),
        m=types.MapType(types.StringType(), types.StringType()),
        l=types.ArrayType(struct(x=types.IntegerType())),
        f=types.FloatType(),
        dec=types.DecimalType(12, 3),
        bo=types.BooleanType(),
    )
    assert schema.spark_of(schema.arrow_of(spark)).simpleString() == spark.simpleString()


@pytest.mark.parametrize(
    "kind", [types.NullType(), types.DayTimeIntervalType(), struct(v=types.NullType())], ids=str
)
def test_types_that_no_table_keeps(kind: types.DataType) -> None:
    with pytest.raises(PipelineError, match=r"column|columns"):
        schema.arrow_of(struct(v=kind))

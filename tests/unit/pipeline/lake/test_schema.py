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


def test_narrower_numbers_are_widened_and_wider_ones_are_kept_as_the_tables() -> None:
    assert schema.grow(TABLE, pa.schema([("a", pa.int32())])) == TABLE
    assert schema.grow(TABLE, pa.schema([("s", pa.struct([("x", pa.int64())]))])) == TABLE
    table = pa.schema([("n", pa.int32())])
    assert schema.conform(pa.RecordBatch.from_pydict({"n": [2**31 - 1, None]}), table).schema == table
    with pytest.raises(
        PipelineError, match=r"column n: .*2147483648.*the table keeps it as int32, and this is int64\."
    ):
        schema.conform(pa.RecordBatch.from_pydict({"n": [2**31]}), table)


def test_fields_within_lists_and_maps_grow_and_rows_take_their_shape() -> None:
    one = pa.struct([("x", pa.int32())])
    two = pa.struct([("y", pa.string()), ("x", pa.int64())])
    both = pa.struct([("x", pa.int32()), ("y", pa.string())])

    def nested(kind: pa.DataType) -> pa.Schema:
        deep = pa.list_(pa.map_(pa.string(), pa.list_(kind)))
        return pa.schema(
            [("l", pa.list_(kind)), ("m", pa.map_(pa.string(), kind)), ("d", pa.struct([("e", deep)]))]
        )

    grown = schema.grow(nested(one), nested(two))
    assert grown == nested(both)

    def rows(value: object) -> list[dict[str, object]]:
        return [
            {"l": [value, None], "m": [("k", value)], "d": {"e": [[("k", [value])], None, []]}},
            {"l": None, "m": None, "d": None},
            {"l": [], "m": [], "d": {"e": None}},
            {"l": [value], "m": [("k", None), ("j", value)], "d": {"e": [[("k", None)]]}},
        ]

    for kind, value, wanted in (
        (one, {"x": 1}, {"x": 1, "y": None}),
        (two, {"y": "q", "x": 1}, {"x": 1, "y": "q"}),
    ):
        batch = pa.RecordBatch.from_pylist(rows(value), nested(kind))
        for start in range(4):
            part = schema.conform(batch.slice(start), grown)
            assert part.schema == grown
            assert part.to_pylist() == rows(wanted)[start:]
            part.validate(full=True)


@pytest.mark.parametrize(
    ("column", "kind", "words"),
    [
        ("a", pa.string(), "column a is int64 in the table and string here"),
        ("s", pa.struct([("x", pa.float64())]), "column x is int32"),
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

from pyspark.sql.pandas.types import to_arrow_schema

from penstock.pipeline.rows import columns


def test_spark_makes_of_its_types_what_the_batches_have() -> None:
    include = tuple(columns.INCLUDABLE)
    assert to_arrow_schema(columns.spark_schema(include), timezone="UTC") == columns.arrow_schema(include)


def test_order() -> None:
    assert columns.names(("deliver_at", "message_id"))[-3:] == ["timestampType", "deliver_at", "message_id"]

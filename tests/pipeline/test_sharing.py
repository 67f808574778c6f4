"""Rows that two branches read are computed once; with Spark 4.0 too, which has no `repartitionById`."""

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.run.views import read_twice

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("spark_4_0", [False, True])
def test_rows_are_computed_once_and_keep_their_order(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, spark_4_0: bool
) -> None:
    if spark_4_0:
        for kind in (DataFrame, type(spark.range(1))):
            monkeypatch.delattr(kind, "repartitionById", raising=False)
        assert not hasattr(spark.range(1), "repartitionById")
    rows = read_twice(spark.range(0, 40, 1, 4).withColumn("half", f.col("id") % 2))
    both = rows.where("half = 0").unionAll(rows.where("half = 1")).withColumn("p", f.spark_partition_id())
    found = both.collect()
    assert sorted(row.id for row in found) == list(range(40))
    assert "ReusedExchange" in both._jdf.queryExecution().executedPlan().toString()
    for half in (0, 1):
        for source in range(4):
            one = [row for row in found if row.half == half and row.id // 10 == source]
            assert len({row.p for row in one}) == 1, "a task's rows go to one task"
            assert [row.id for row in one] == sorted(row.id for row in one)

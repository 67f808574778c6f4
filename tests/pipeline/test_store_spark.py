"""Spark and tables in an object store: saved, streamed, and written by a declared pipeline."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.declared import Bench
from tests.support.object_store import ObjectStore

from penstock.pipeline.options import storage_options
from penstock.pipeline.run.reset import forget
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running


def load(spark: SparkSession, store: ObjectStore, url: str) -> DataFrame:
    return spark.read.format("penstock_lake").options(**storage_options(store.options)).load(url)


def test_rows_are_saved_streamed_and_read(spark: SparkSession, store: ObjectStore, tmp_path: Path) -> None:
    url, options = store.folder(), storage_options(store.options)
    frame = spark.range(10).selectExpr("id", "id % 2 AS half")
    frame.write.format("penstock_lake").mode("append").options(partitionBy="half", **options).save(url)
    spark.range(10, 20).selectExpr("id", "id % 2 AS half").write.parquet(str(tmp_path / "fed"))
    source = spark.readStream.schema("id bigint, half bigint").parquet(str(tmp_path / "fed"))
    writer = source.writeStream.format("penstock_lake").options(path=url, **options)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(row.id for row in load(spark, store, url).collect()) == list(range(20))
    listed = ", ".join(f"'{name}' '{text}'" for name, text in ({"path": url} | options).items())
    spark.sql(f"CREATE TABLE stored USING penstock_lake OPTIONS ({listed})")
    try:
        assert spark.sql("SELECT count(*), max(id) FROM stored WHERE half = 1").collect()[0] == (10, 19)
    finally:
        spark.sql("DROP TABLE stored")
    wrong = options | {"storage.aws_endpoint_url": "http://127.0.0.1:1", "storage.max_retries": "0"}
    wrong["storage.retry_timeout"] = "1s"
    with pytest.raises(PySparkException, match="the store cannot be used") as refused:
        spark.read.format("penstock_lake").options(**wrong).load(url)
    assert store.secret not in str(refused.value)


SALES = """
name = "sales"
[storage]
{options}
[sources.orders]
topics = ["orders"]
[tables.prices]
path = "{prices}"
[[steps]]
name = "priced"
sql = '''
SELECT o.n, o.k, p.price FROM
  (SELECT from_json(CAST(value AS STRING), 'k STRING, n INT') AS o FROM orders) JOIN prices p ON o.k = p.k
'''
[sinks.table]
input = "priced"
path = "{table}"
[sinks.results]
input = "priced"
topic = "results"
"""


def test_a_declared_pipeline(spark: SparkSession, store: ObjectStore, tmp_path: Path) -> None:
    prices, table = store.folder(), store.folder()
    spark.createDataFrame([("a", 2), ("b", 3)], "k string, price int").write.format("penstock_lake").mode(
        "append"
    ).options(**storage_options(store.options)).save(prices)
    options = "\n".join(f'{name} = "{text}"' for name, text in store.options.items())
    text = SALES.format(options=options, prices=prices, table=table)
    with running() as server:
        bench = Bench(tmp_path, server.url, spark)
        for topic in ("orders", "results"):
            bench.create(topic)
        bench.publish("orders", [{"k": "a", "n": 1}, {"k": "b", "n": 2}])
        bench.run_once(text)
        bench.publish("orders", [{"k": "a", "n": 3}])
        bench.run_once(text)
        assert sorted(load(spark, store, table).collect()) == [(1, "a", 2), (2, "b", 3), (3, "a", 2)]
        assert len(bench.messages("results")) == 3
        for written in (path for path in (tmp_path / "state").rglob("*") if path.is_file()):
            assert store.secret.encode() not in written.read_bytes(), written
        spec = load_spec(bench.file(text), url=server.url, state=tmp_path / "state")
        assert f"emptied the table {table}" in forget(spec)
        assert load(spark, store, table).count() == 0

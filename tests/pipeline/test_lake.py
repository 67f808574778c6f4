"""Tables written and read by a real Spark session, and by delta-rs alone."""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.pipeline.topics import TopicServer
from tests.support.waiting import until as wait_for

from penstock.pipeline.lake.delta import Table
from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.maintenance import maintain
from penstock.pipeline.lake.options import snapshot_of
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.store import Location


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def save(frame: DataFrame, path: str, mode: str = "append", **options: object) -> None:
    frame.write.format("penstock_lake").mode(mode).options(**options).save(path)  # type: ignore[arg-type]


def load(spark: SparkSession, path: str, **options: object) -> DataFrame:
    return spark.read.format("penstock_lake").options(**options).load(path)  # type: ignore[arg-type]


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def everything(spark: SparkSession, rows: int) -> DataFrame:
    """One column of every type that a table keeps."""
    return spark.range(rows).selectExpr(
        "id",
        "IF(id % 5 = 0, NULL, CAST(id AS STRING)) AS text",
        "CAST(CAST(id AS STRING) AS BINARY) AS raw",
        "timestamp_seconds(1700000000 + id * 3600) AS t",
        "DATE'2024-01-01' + CAST(id AS INT) AS d",
        "map('k', CAST(id AS STRING)) AS m",
        "array(id, NULL) AS l",
        "named_struct('x', CAST(id AS INT), 'y', array('z')) AS s",
        "CAST(id AS DECIMAL(20, 4)) / 8 AS n",
        "id % 2 = 0 AS even",
        "CAST(id AS DOUBLE) / 3 AS f",
    )


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: row.id)


def test_what_is_written_is_read(spark: SparkSession, path: str) -> None:
    frame = everything(spark, 500)
    save(frame, path)
    back = load(spark, path)
    assert back.schema.simpleString() == frame.schema.simpleString()
    assert rows(back) == rows(frame)


def test_others_read_it_too(spark: SparkSession, path: str) -> None:
    frame = everything(spark, 300)
    save(frame, path, partitionBy="day(t),even")
    table = DeltaTable(path)
    assert table.metadata().partition_columns == ["t_day", "even"]
    got = table.to_pyarrow_table().select(frame.columns).sort_by("id").to_pylist()
    assert [row["id"] for row in got] == list(range(300))
    assert [row["s"]["x"] for row in got] == list(range(300))
    found = table.to_pyarrow_dataset()
    assert found.count_rows(filter=pc.field("even")) == 150
    assert found.count_rows(filter=pc.field("id") >= 290) == 10, "statistics hide no rows"


def test_partitions_come_back_as_columns(spark: SparkSession, path: str) -> None:
    frame = spark.createDataFrame(
        [(1, "a/b c", True, 7), (2, None, False, 7), (3, "ä=%", None, None)],
        "id int, name string, flag boolean, n bigint",
    )
    save(frame, path, partitionBy="name,flag,n")
    save(frame.selectExpr("id + 3 AS id", "name", "flag", "n"), path)
    back = load(spark, path)
    assert rows(back.where("id <= 3")) == rows(frame)
    assert ids(back) == [1, 2, 3, 4, 5, 6]
    assert [row.name for row in rows(load(spark, path, columns="name,id"))][:3] == ["a/b c", None, "ä=%"]


def test_a_batch_of_a_writer_counts_once(spark: SparkSession, path: str) -> None:
    save(spark.range(10), path, writer="w", batch=0)
    save(spark.range(10), path, writer="w", batch=0)
    save(spark.range(10, 15), path, writer="w", batch=1)
    save(spark.range(10, 15), path, writer="w", batch=1)
    assert ids(load(spark, path)) == list(range(15))
    files = [str(file) for file in Path(path).rglob("*.parquet")]
    now = snapshot_of(Location.of(path))
    assert len(files) == len(now.files()), "what a repeat wrote is gone"


def test_columns_grow_and_old_rows_are_null(spark: SparkSession, path: str) -> None:
    save(spark.range(3).selectExpr("id", "struct(id AS x) AS s"), path)
    later = spark.range(3, 5).selectExpr(
        "CAST(id AS INT) AS id", "struct(id AS x, 'y' AS y) AS s", "'n' AS new"
    )
    save(later, path)
    got = rows(load(spark, path))
    assert [(row.id, row.s.x, row.s.y, row.new) for row in got] == [
        *((n, n, None, None) for n in range(3)),
        *((n, n, "y", "n") for n in (3, 4)),
    ]


def test_a_short_vacuum_leaves_what_another_writer_is_about_to_commit(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"

    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        until = time.monotonic() + 300
        while TaskContext.get().partitionId() == 1 and not go.exists() and time.monotonic() < until:  # type: ignore[union-attr]
            time.sleep(0.05)

    save(spark.range(1), path)
    before = set(Path(path).glob("*.parquet"))
    slow = spark.range(100, 200, 1, 2).mapInArrow(held, "id bigint")
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(save, slow, path)
        try:
            wait_for(lambda: any(file.stat().st_size for file in set(Path(path).glob("*.parquet")) - before))
            for number in range(1, 17):
                save(spark.range(number, number + 1, 1, 1), path)
            done = maintain(Table(Location.of(path)), vacuum_hours=0)
            assert done.compacted == done.deleted == 17
        finally:
            go.touch()
        writing.result()
    assert ids(load(spark, path)) == [*range(17), *range(100, 200)]


def test_a_second_thread_finds_the_formats(spark: SparkSession, server: TopicServer, path: str) -> None:
    server.create("t")

    def write(number: int) -> None:
        rows = spark.range(number, number + 1)
        save(rows, path)
        values = rows.selectExpr("CAST(id AS STRING) AS value")
        values.write.format("penstock").mode("append").options(url=server.url, topic="t").save()
        assert number in ids(load(spark, path))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, range(2)))
    assert ids(load(spark, path)) == [0, 1]
    assert server.latest("t") == 2


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["CAST(id AS STRING) AS id"], {}, "column id is int64 in the table and string here"),
        (["id AS ID"], {}, "case alone"),
        (["id"], {"partitionBy": "id"}, "the table is parted by nothing"),
        (["id"], {"compress": "no"}, "unknown option compress"),
        (["id"], {"batch": "1"}, "option batch needs option writer"),
        (["id"], {"targetFileBytes": "tiny"}, "option targetFileBytes"),
        (["id"], {"archive": "true"}, "column offset, partition, topic is missing"),
        (["id"], {"table": "orc"}, "option table: 'orc'"),
        (["id"], {"vacuumHours": "1"}, "(?i)unknown option vacuumHours: .*penstock pipeline maintain"),
        (["id"], {"table": "parquet"}, "option table: tables are Delta only: see"),
    ],
)
def test_what_cannot_be_written_changes_nothing(
    spark: SparkSession, path: str, columns: list[str], options: dict[str, str], words: str
) -> None:
    save(spark.range(3), path)
    before = sorted(str(each) for each in Path(path).rglob("*"))
    with pytest.raises(PySparkException, match=words):
        save(spark.range(3).selectExpr(*columns), path, **options)
    assert sorted(str(each) for each in Path(path).rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": "7"}, "no version 7"),
        ({"columns": "id,nope"}, "no column 'nope'"),
        ({"offsets": '{"t": {"0": [0, 1]}}'}, "unknown option offsets: filter by topic"),
        ({"where": "x"}, "unknown option where"),
    ],
)
def test_what_cannot_be_read(spark: SparkSession, path: str, options: dict[str, str], words: str) -> None:
    save(spark.range(3), path)
    with pytest.raises(PySparkException, match=words):
        load(spark, path, **options).collect()
    with pytest.raises(PySparkException, match="there is no table"):
        load(spark, path + "-nowhere")


def test_a_table_in_sql_and_as_it_was(spark: SparkSession, path: str) -> None:
    save(spark.range(4), path)
    before = snapshot_of(Location.of(path)).version
    save(spark.range(4, 9), path)
    spark.sql(f"CREATE TABLE kept USING penstock_lake OPTIONS (path '{path}')")
    spark.sql(f"CREATE TABLE old USING penstock_lake OPTIONS (path '{path}', version '{before}')")
    try:
        assert spark.sql("SELECT count(*), max(id) FROM kept").collect() == [(9, 8)]
        assert spark.sql("SELECT count(*) FROM old").collect() == [(4,)]
    finally:
        spark.sql("DROP TABLE kept")
        spark.sql("DROP TABLE old")
    save(spark.range(1), path, mode="overwrite")
    assert ids(load(spark, path)) == [0]
    assert ids(load(spark, path, version=before)) == [0, 1, 2, 3]


def test_an_empty_frame_makes_an_empty_table(spark: SparkSession, path: str) -> None:
    save(spark.range(0), path)
    assert load(spark, path).columns == ["id"]
    assert load(spark, path).count() == 0


def test_a_failed_job_leaves_nothing_to_be_read(spark: SparkSession, path: str) -> None:
    save(spark.range(3), path)

    def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if 1999 in batch.column(0).to_pylist():
                raise ValueError("user code")

    with pytest.raises(PySparkException, match="user code"):
        save(spark.range(2000).repartition(2).mapInArrow(broken, "id bigint"), path)
    assert ids(load(spark, path)) == [0, 1, 2]
    save(spark.range(3, 5), path)
    assert ids(load(spark, path)) == [0, 1, 2, 3, 4]


Stream = Callable[[], None]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, path: str) -> Stream:
    """Runs a query over a folder of files, one file a batch, into the table."""
    fed = str(tmp_path / "fed")

    def run(**options: object) -> None:
        source = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(fed)
        query = (
            source.writeStream.format("penstock_lake")
            .options(path=path, checkpointLocation=str(tmp_path / "checkpoint"), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    return run


def feed(spark: SparkSession, tmp_path: Path, first: int, count: int) -> None:
    spark.range(first, first + count).coalesce(1).write.mode("append").parquet(str(tmp_path / "fed"))


def test_a_driver_that_dies_after_the_tables_commit(
    spark: SparkSession, tmp_path: Path, path: str, stream: Stream
) -> None:
    for n in range(3):
        feed(spark, tmp_path, 10 * n, 10)
    stream()
    assert ids(load(spark, path)) == list(range(30))
    # What Spark would find if its driver had died between the table's commit and its own.
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    feed(spark, tmp_path, 30, 10)
    stream()
    assert ids(load(spark, path)) == list(range(40))


def test_a_driver_that_dies_before_the_tables_commit(
    spark: SparkSession, tmp_path: Path, path: str, stream: Stream
) -> None:
    feed(spark, tmp_path, 0, 10)
    stream()
    feed(spark, tmp_path, 10, 10)
    stream()
    version = snapshot_of(Location.of(path)).version
    (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    assert ids(load(spark, path)) == list(range(10)), "files without a commit are not of the table"
    stream()
    assert ids(load(spark, path)) == list(range(20))


def test_a_query_goes_on_over_the_maintenance_of_its_table(
    spark: SparkSession, tmp_path: Path, path: str, stream: Stream
) -> None:
    for n in range(18):
        feed(spark, tmp_path, 10 * n, 10)
    stream()
    assert len(snapshot_of(Location.of(path)).files()) == 18, "a batch compacts nothing"
    assert maintain(Table(Location.of(path))).compacted == 18
    assert ids(load(spark, path)) == list(range(180))
    assert sorted(DeltaTable(path).to_pyarrow_table()["id"].to_pylist()) == list(range(180))
    stream()
    feed(spark, tmp_path, 180, 10)
    stream()
    assert ids(load(spark, path)) == list(range(190))


def test_filters_choose_files(spark: SparkSession, path: str) -> None:
    columns = ["id", "CAST(id / 10 AS INT) AS ten", "timestamp_seconds(id * 86400) AS t"]
    for n in range(3):
        save(spark.range(10 * n, 10 * n + 10, 1, 1).selectExpr(*columns), path, partitionBy="ten")
    for file in snapshot_of(Location.of(path)).files():
        if file.values["ten"] != "1":
            (Path(path) / file.path).unlink()
    for where, expected in (
        ("ten = 1", range(10, 20)),
        ("ten IN (1, 7) AND id > 15", range(16, 20)),
        ("id BETWEEN 12 AND 13", (12, 13)),
        ("t >= '1970-01-12T00:00:00Z' AND t < '1970-01-20T00:00:00Z'", range(11, 19)),
        ("ten IS NULL", ()),
        ("id = 55", ()),
    ):
        assert ids(load(spark, path, pruneFiles=True).where(where)) == list(expected), where
    with pytest.raises(PySparkException, match="has lost the file"):
        load(spark, path).where("id % 10 = 3").collect()


def test_foreach_batch_is_once_too(spark: SparkSession, tmp_path: Path, path: str) -> None:
    feed(spark, tmp_path, 0, 10)
    seen: list[int] = []

    def write(frame: DataFrame, number: int) -> None:
        save(frame, path, writer="each", batch=number)
        seen.append(number)
        if len(seen) == 1:
            raise RuntimeError("after the table's commit")

    def run() -> None:
        source = spark.readStream.schema("id bigint").parquet(str(tmp_path / "fed"))
        query = (
            source.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(PySparkException, match="after the table's commit"):
        run()
    run()
    assert seen == [0, 0]
    assert ids(load(spark, path)) == list(range(10))


def test_a_stream_joins_a_table(spark: SparkSession, tmp_path: Path, path: str) -> None:
    save(spark.range(5).selectExpr("id", "concat('n', id) AS name"), path)
    feed(spark, tmp_path, 0, 8)
    source = spark.readStream.schema("id bigint").parquet(str(tmp_path / "fed"))
    joined = source.join(load(spark, path), "id")
    target = str(tmp_path / "joined")
    joined.writeStream.format("penstock_lake").options(
        path=target, checkpointLocation=str(tmp_path / "checkpoint")
    ).trigger(availableNow=True).start().awaitTermination()
    assert [(row.id, row.name) for row in rows(load(spark, target))] == [(n, f"n{n}") for n in range(5)]


def test_deletion_vectors_are_refused(spark: SparkSession, path: str) -> None:
    save(spark.range(3), path)
    log = Path(path) / "_delta_log" / f"{1:020d}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    features = {"minReaderVersion": 3, "minWriterVersion": 7}
    features |= {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines.append({"protocol": features})
    log.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(PySparkException, match="uses deletionVectors, which is not read here"):
        load(spark, path)


def old_commit(folder: Path, name: str, numbers: list[int], **more: object) -> list[str]:
    """A commit in the log of a Parquet table of an earlier version; returns the paths of its files."""
    columns = pa.schema([("id", pa.int64()), ("day", pa.date32())])
    days = [date(2024, 1, 1 + n % 2) for n in numbers]
    writer = FileWriter(Location.of(folder), columns, [PartitionColumn("day")])
    writer.write(pa.RecordBatch.from_pydict({"id": numbers, "day": days}, schema=columns))
    files = writer.finish()
    grown = columns.append(pa.field("more", pa.string()))
    commit = {"version": int(name[:20]), "at": 1, "schema": bytes(grown.serialize()).hex(), "add": files}
    (folder / "_penstock").mkdir(exist_ok=True)
    (folder / "_penstock" / name).write_bytes(msgspec.json.encode(commit | {"partition_by": ["day"]} | more))
    return [file.path for file in files]


def test_a_parquet_table_of_an_earlier_version_becomes_delta_as_the_docs_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = tmp_path / "old", str(tmp_path / "new")
    old_commit(old, f"{0:020d}.json", [90])
    old_commit(old, f"{1:020d}.json", [0, 1], overwrite=True)
    old_commit(old, f"{1:020d}.all.json", [0, 1])
    gone = old_commit(old, f"{2:020d}.json", [2, 3])
    old_commit(old, f"{3:020d}.json", [4, 5], remove=gone)
    docs = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
    code = re.search(r"```python\n(import json\nfrom pathlib.*?)\nfrom_parquet\(", docs, re.DOTALL)
    assert code is not None
    names: dict[str, Callable[..., None]] = {}
    exec(code[1], names)
    names["from_parquet"](spark, str(old), new)
    back = load(spark, new)
    assert back.columns == ["id", "day", "more"]
    assert rows(back) == [(n, date(2024, 1, 1 + n % 2), None) for n in (0, 1, 4, 5)]
    assert snapshot_of(Location.of(new)).partition_by == ("day",)
    with pytest.raises(PySparkException, match="is a Parquet table, and tables are Delta only: see"):
        load(spark, str(old))

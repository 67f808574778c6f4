"""Tables in an object store: what a table promises holds there too, with writers at once and writers that are killed."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter

import pyarrow as pa
import pytest
from tests.support.object_store import ObjectStore
from tests.support.waiting import until

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.options import is_table, snapshot_of, table_at
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.reader import parts, read_chunk
from penstock.pipeline.lake.store import Location, StoreError
from penstock.pipeline.lake.values import Batch

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def folder(store: ObjectStore) -> Location:
    return Location.of(store.folder(), store.options)


def add(folder: Location, numbers: list[int], writer: str = "", number: int = 0) -> bool:
    by = PartitionColumn("text")
    files = FileWriter(folder, SCHEMA, [by])
    files.write(
        pa.RecordBatch.from_arrays(
            [pa.array(numbers), pa.array([str(n % 2) for n in numbers])], schema=SCHEMA
        )
    )
    made = files.finish()
    return table_at(folder).commit(
        Batch(files=made, schema=SCHEMA, partition_by=("text",), writer=writer, number=number)
    )


def rows(folder: Location) -> list[int]:
    now = snapshot_of(folder)
    return sorted(
        n
        for part in parts(now.files())
        for chunk in part.chunks
        for batch in read_chunk(folder, chunk, now.schema)
        for n in batch.column("n").to_pylist()
    )


def parquet(store: ObjectStore, folder: Location) -> set[str]:
    """The files of rows that are there, whether a version has them or not."""
    return {path for path in store.paths(folder.url) if path.endswith(".parquet")}


def test_a_table_is_made_grows_and_is_put_together(store: ObjectStore, folder: Location) -> None:
    assert not is_table(folder)
    with pytest.raises(PipelineError, match="there is no table at s3://"):
        snapshot_of(folder)
    for number in range(4):
        assert add(folder, [2 * number, 2 * number + 1], "w", number)
    assert not add(folder, [0, 0], "w", 3)
    with pytest.raises(BatchConflict):
        add(folder, [0], "w", 3)
    assert rows(folder) == list(range(8))
    uncommitted = parquet(store, folder) - {file.path for file in snapshot_of(folder).files()}
    assert len(uncommitted) == 2, "of the repeat and of the conflict"
    table = table_at(folder)
    assert [table.compact({"text": text}, 1 << 20) for text in ("0", "1")] == [4, 4]
    assert len(snapshot_of(folder).files()) == 2
    assert rows(folder) == list(range(8))
    assert table.vacuum(0) >= 8
    assert parquet(store, folder) == {file.path for file in snapshot_of(folder).files()} | uncommitted
    assert snapshot_of(folder).last("w") == (3, 2)


def test_rows_with_keys_replace_others(folder: Location) -> None:
    def put(texts: dict[int, str], number: int) -> bool:
        files = FileWriter(folder, SCHEMA, [])
        columns = [pa.array(texts), pa.array(texts.values())]
        files.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        made = files.finish()
        batch = Batch(files=made, schema=SCHEMA, partition_by=(), writer="w", number=number, keys=("n",))
        return table_at(folder).commit(batch)

    assert put({1: "a", 2: "b"}, 0)
    assert put({2: "c", 3: "d"}, 1)
    assert not put({2: "c", 3: "d"}, 1)
    now = snapshot_of(folder)
    found = [
        batch
        for part in parts(now.files())
        for chunk in part.chunks
        for batch in read_chunk(folder, chunk, now.schema)
    ]
    assert sorted(map(tuple, (row.values() for row in pa.Table.from_batches(found).to_pylist()))) == [
        (1, "a"),
        (2, "c"),
        (3, "d"),
    ]
    assert now.last("w") == (1, 2)


def test_a_folder_with_something_else_is_no_table(folder: Location) -> None:
    folder.write("letter.txt", b"mine")
    assert folder.files() == ["letter.txt"]
    with pytest.raises(PipelineError, match="something else"):
        table_at(folder)


def test_writers_at_once_lose_nothing(folder: Location) -> None:
    failed: list[BaseException] = []

    def write(name: int) -> None:
        try:
            for number in range(3):
                add(folder, [100 * name + number], f"w{name}", number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert rows(folder) == [100 * name + number for name in range(3) for number in range(3)]


KILLED = """
import json, sys
from penstock.pipeline.lake.store import Location
from tests.pipeline.test_store_tables import add
url, options, first = json.loads(sys.argv[1])
for number in range(first, 1000):
    add(Location.of(url, options), [number, number], "w", number)
"""


def test_a_writer_that_is_killed_has_written_each_batch_once(store: ObjectStore, folder: Location) -> None:
    begin = 0
    for life in (2, 4):  # batches that are there when it is killed, somewhere in a later one
        told = json.dumps([folder.url, store.options, begin])
        running = subprocess.Popen([sys.executable, "-W", "ignore", "-c", KILLED, told])

        def has(running: subprocess.Popen[bytes] = running, wanted: int = life) -> bool:
            assert running.poll() is None, "the writer ended by itself"
            return is_table(folder) and (snapshot_of(folder).last("w") or (-1,))[0] >= wanted

        try:
            until(has, 150, said=lambda: "no batch came")
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait(60)
        last = snapshot_of(folder).last("w")
        assert last is not None
        begin = last.batch  # as a driver does that died before it noted its commit
    assert not add(folder, [begin, begin], "w", begin)
    assert Counter(rows(folder)) == dict.fromkeys(range(begin + 1), 2)


def test_a_commit_asks_for_what_is_new_only(store: ObjectStore, folder: Location) -> None:
    """However many commits and files a table has."""
    table = table_at(folder)
    asked = []
    for number in range(30):
        files = FileWriter(folder, SCHEMA, [])
        files.write(pa.RecordBatch.from_arrays([pa.array([number]), pa.array(["x"])], schema=SCHEMA))
        batch = Batch(files=files.finish(), schema=SCHEMA, partition_by=(), writer="w", number=number)
        before = len(store.served())
        assert table.commit(batch)
        asked.append(len(store.served()) - before)
    assert max(asked[2:]) <= 14, asked
    assert rows(folder) == list(range(30))


def test_what_cannot_be_reached_is_said_in_one_sentence(store: ObjectStore, folder: Location) -> None:
    quick = {"max_retries": "0", "retry_timeout": "1s"}
    away = Location.of(folder.url, store.options | quick | {"aws_endpoint_url": "http://127.0.0.1:1"})
    for use in (is_table, table_at):
        with pytest.raises(
            StoreError, match=r"the table s3://bucket/\w+: the store cannot be used: "
        ) as raised:
            use(away)
        assert raised.value.kind is ErrorKind.UNAVAILABLE
        assert store.secret not in raised.value.message
        assert "\n" not in raised.value.message
    with pytest.raises(PipelineError, match="there is no bucket nobucket"):
        is_table(Location.of("s3://nobucket/t", store.options))

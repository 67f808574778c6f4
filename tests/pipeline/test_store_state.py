"""The state of a declared pipeline in an object store: one run at a time, which goes on from any machine."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import Bench
from tests.pipeline.test_declared import COUNTS, STATEFUL, flight
from tests.support.object_store import ObjectStore
from tests.support.s3a import need_s3a
from tests.support.waiting import until

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.lake.epochs import Epochs, Overtaken
from penstock.pipeline.lake.epochs import State as Remembered
from penstock.pipeline.lake.options import table_at
from penstock.pipeline.lake.store import Location, StoreError
from penstock.pipeline.lake.values import Batch
from penstock.pipeline.run import remote
from penstock.pipeline.run.backfill import check_backfill, plan_backfill
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.redrive import State, write_down, written
from penstock.pipeline.run.remote import Lease, StoreFolder, dead, this_process
from penstock.pipeline.run.reset import forget, reset
from penstock.pipeline.run.state import folder_of
from penstock.pipeline.run.supervise import Job, Supervisor
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import running

PLAIN = 'name = "p"\n[sources.s]\ntopics = ["in"]\n[sinks.k]\ninput = "s"\ntopic = "out"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark's files of a checkpoint are on this machine."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def folder(store: ObjectStore) -> StoreFolder:
    return StoreFolder(f"{store.folder()}/p", store.options)


def again(folder: StoreFolder) -> StoreFolder:
    """The same state, as another process sees it."""
    return StoreFolder(str(folder.home), folder.store.options)


def test_one_of_two_claims_holds_and_an_old_epoch_is_never_confirmed(store: ObjectStore) -> None:
    place = Location.of(store.folder(), store.options)
    first, second = Epochs(place), Epochs(place)
    assert first.look() == second.look() == Remembered()
    assert first.claim(Remembered()) == 1
    with pytest.raises(Overtaken):
        second.claim(Remembered())
    assert first.next_generation(1) == 1
    first.confirm_batch(1, 7, "v1\n{}\n{}")
    seen = second.look()
    assert seen == Remembered(1, 1, 7, "v1\n{}\n{}")
    first.confirm(1)
    with pytest.raises(Overtaken):
        second.claim(seen)  # the other has gone on since
    assert second.claim(second.look()) == 2
    for _ in range(2):
        with pytest.raises(Overtaken):
            first.confirm(1)
    second.confirm(2)
    assert Epochs(place).look() == seen._replace(epoch=2)
    assert second.next_generation(2) == 2
    assert Epochs(place).look() == Remembered(2, 2)


def test_a_lease_that_is_written_is_held(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lease(folder, beat_s=0.05) as lease:
        assert folder.epoch == 1
        assert len(lease.files) == 1
        until(again(folder).in_use)
        for where in ("here", "there"):
            said = rf"is in use by process {os.getpid()}{': ' if where == 'here' else ' on '}"
            with pytest.raises(PipelineError, match=said), Lease(again(folder), lease_s=300):
                pass
            (tmp_path / "other").mkdir(exist_ok=True)
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))  # another machine
        assert not folder.asked_to_stop()
        again(folder).ask_to_stop()
        until(folder.asked_to_stop)
        folder.clear_control()
        assert not folder.asked_to_stop()
        folder.confirm()
    assert not again(folder).in_use()
    assert folder.holder() is None


def test_a_store_whose_clock_is_slow_tells_who_runs(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lease(folder, beat_s=0.05):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))  # another machine
        monkeypatch.setattr(Location, "age_s", lambda place, path: 3600.0)
        assert again(folder).in_use()
    assert not again(folder).in_use()


def test_a_pid_counts_where_it_was_given() -> None:
    gone = msgspec.structs.replace(this_process(), pid=2**22 + 1)
    assert dead(gone)
    assert not dead(msgspec.structs.replace(gone, boot=gone.boot.replace("pid:[", "pid:[1")))


def test_a_lease_that_nobody_writes_is_taken_over(
    folder: StoreFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Lease(folder, beat_s=1000):  # as of a process that is paused
        (tmp_path / "other").mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "other"))  # another machine
        late = again(folder)
        with Lease(late, beat_s=0.05, lease_s=0.2):
            late.confirm()
            with pytest.raises(PipelineError, match="another run of this pipeline has taken over"):
                folder.confirm()
    assert late.holder() is None


def test_a_process_of_this_machine_that_is_gone_holds_nothing(folder: StoreFolder) -> None:
    gone = msgspec.structs.replace(this_process(), pid=2**22 + 1)  # above what Linux gives
    folder.replace("lease", msgspec.json.encode(gone))
    assert not folder.in_use()
    with Lease(folder, lease_s=1000):
        until(folder.in_use)


def test_a_worker_holds_the_state_longer_than_its_supervisor(folder: StoreFolder) -> None:
    with Lease(folder) as lease:
        worker = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=lease.files)
    try:
        gone = msgspec.structs.replace(this_process(), pid=2**22 + 1)
        folder.replace("lease", msgspec.json.encode(gone))  # the supervisor was killed
        assert folder.in_use()
        with pytest.raises(PipelineError, match="is in use"), Lease(again(folder)):
            pass
    finally:
        worker.communicate()
    assert not folder.in_use()
    with Lease(again(folder), lease_s=1000):
        assert folder.in_use()


def test_the_end_of_a_run_leaves_a_later_ones_files(folder: StoreFolder) -> None:
    late = again(folder)
    for run in (folder, late):
        run.taken(run.epochs.claim(run.epochs.look()))
        run.scratch.mkdir(parents=True)
    folder.clean_scratch()
    assert not folder.scratch.exists()
    assert late.scratch.exists()
    folder.scratch.mkdir(parents=True)
    late.clean_scratch()
    assert not folder.scratch.exists()
    assert not late.scratch.exists()


def test_a_redrive_that_was_overtaken_keeps_the_later_ones_list(folder: StoreFolder) -> None:
    write_down(State(number=1), folder, 9)
    write_down(State(number=2), folder, 10)
    assert written(folder) == State(number=2)
    assert [name for name in folder.names() if "redriven" in name] == ["redriven.10.json"]
    write_down(State(number=1), folder, 9)
    assert written(folder) == State(number=2)


def test_a_checkpoint_of_other_topics_is_refused(folder: StoreFolder, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(PLAIN)
    with folder.locked():
        folder.own(load_spec(file, state=tmp_path))
        folder.replace("checkpoint/metadata", b'{"id": "a"}')
    file.write_text(PLAIN.replace('["in"]', '["other"]'))
    with pytest.raises(PipelineError, match=r"but .* now reads"):
        again(folder).check_owner(load_spec(file, state=tmp_path))


def test_a_backfill_asks_the_store_what_the_pipeline_has_read(store: ObjectStore, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    topic, now = "persistent://public/default/in", time.time_ns() // 1_000_000
    with running() as server:
        with HttpClient(server.url) as client:
            client.produce(TopicName.parse(topic), [{"value": "a"}])
            ledger = client.offsets(TopicName.parse(topic), 0).ledger
        file.write_text(PLAIN.replace('topic = "out"', 'path = "out"\npartition_by = ["day(timestamp)"]'))
        declared = load_spec(file, url=server.url, state=store.folder())
        declared = msgspec.structs.replace(declared, storage=store.options)
        spec, plan = plan_backfill(declared, now - 60_000, now + 60_000)
        with pytest.raises(PipelineError, match="the pipeline is still to read messages of the range"):
            check_backfill(spec, plan)
        folder = folder_of(spec)
        with folder.locked():
            folder.own(spec)
            marks = {"offsets": {topic: {"0": 1}}, "ledgers": {topic: ledger}}
            folder.replace("checkpoint/offsets/0", f"v1\n{{}}\n{json.dumps(marks)}".encode())
            folder.replace("checkpoint/commits/0", b"v1\n{}")
        check_backfill(spec, plan)


def test_a_batch_of_a_forgotten_checkpoint_comes_into_no_emptied_table(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(PLAIN.replace('topic = "out"', 'path = "out"'))
    spec = load_spec(file, state=tmp_path / "state")
    here = folder_of(spec)
    with here.locked():
        here.own(spec)
        here.checkpoint.mkdir()
        (here.checkpoint / "metadata").write_text('{"id":"old"}')
    (path,) = (sink.path for sink in spec.sinks.values())
    table = table_at(Location.of(path))
    batch = Batch(files=(), schema=pa.schema([("n", pa.int64())]), partition_by=(), writer="old", number=3)
    table.commit(batch)
    forget(spec)
    with pytest.raises(BatchConflict):
        table.commit(msgspec.structs.replace(batch, number=4))
    table.commit(msgspec.structs.replace(batch, writer="new", number=0))
    forget(spec)


def test_a_batch_runs_with_the_offsets_that_were_confirmed_for_it(
    folder: StoreFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = ['{"a":1}', '{"b":2}']
    monkeypatch.setattr(remote, "running_offsets", lambda spark, url: running)
    mine, late = (f'v1\n{{"batchWatermarkMs":{ms}}}\n{{"b":2}}\n-\n{{"a":1}}'.encode() for ms in (0, 9))
    with folder.locked():
        folder.replace("checkpoint/offsets/0", mine)
        folder.begin_batch(0)
        folder.begin_batch(0)
        assert again(folder).epochs.look() == Remembered(folder.epoch, 0, 0, mine.decode())
        folder.replace("checkpoint/offsets/0", late)
        with pytest.raises(StoreError, match="another run has written offsets/0"):
            folder.begin_batch(0)
        folder.replace("checkpoint/offsets/1", mine)
        folder.begin_batch(1)
        running.append('{"c":3}')
        folder.replace("checkpoint/offsets/2", mine)
        with pytest.raises(StoreError, match="another run has written offsets/2"):
            folder.begin_batch(2)
    assert again(folder).epochs.look().batch == 1


def test_the_copies_of_an_older_version_are_refused_until_a_reset(
    store: ObjectStore, folder: StoreFolder, tmp_path: Path
) -> None:
    options = "\n".join(f'{name} = "{text}"' for name, text in store.options.items())
    file = tmp_path / "p.toml"
    file.write_text(f"{PLAIN}[storage]\n{options}\n")
    spec = load_spec(file, state=str(folder.home).removesuffix("/p"))
    with folder.locked():
        folder.version = 2
        folder.own(spec)
        assert again(folder).check_owner(spec) is not None, "nothing was copied yet"
        folder.replace("checkpoint/metadata.1", b"{}")
    with pytest.raises(PipelineError, match=r"an older Penstock made.* docs/upgrades\.md"):
        again(folder).check_owner(spec)
    reset(spec, 1)
    owner = again(folder).check_owner(spec)
    assert owner is not None
    assert owner.start == 1


def test_a_folder_that_others_may_use_is_refused(folder: StoreFolder, tmp_path: Path) -> None:
    (tmp_path / f"penstock-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(PipelineError, match="is not this user's alone"), folder.locked():
        pass


# A worker up to its session, which writes into the scratch folder before there is a checkpoint.
WORKER = """
import sys
import penstock.pipeline.session as module
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.run.worker import main

def session(name, master, *, scratch, **conf):
    module._within({}, scratch, conf)
    raise PipelineError(f"a session in {scratch}")

module.session = session
sys.exit(main())
"""


def test_the_folder_on_this_machine_is_private_before_a_session_starts(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = os.umask(0o022)
    try:
        with running() as server, HttpClient(server.url) as client:
            client.create_topic(TopicName.parse("in"))
            options = "\n".join(f'{name} = "{text}"' for name, text in store.options.items())
            (tmp_path / "p.toml").write_text(f"{PLAIN}[storage]\n{options}\n")
            file, state = tmp_path / "p.toml", store.folder()
            spec = load_spec(file, url=server.url, state=state)
            job = Job(file=str(file), url=server.url, state=state)
            with pytest.raises(PipelineError, match="a session in"):
                Supervisor(spec, job, lambda event: None, command=(sys.executable, "-c", WORKER)).run()
    finally:
        os.umask(before)
    with StoreFolder(str(spec.home), store.options).locked():
        pass


@pytest.mark.parametrize("url", ["hdfs://host/state", "s3://bucket?x=1", "s3://me:secret@bucket/s"])
def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(PipelineError, match=r"^state: ") as refused:
        StoreFolder(url, {})
    assert "secret" not in str(refused.value)


def of(bench: Bench, store: ObjectStore, state: str) -> Spec:
    options = "\n".join(f'{name} = "{text}"' for name, text in store.options.items())
    file = bench.file(f"{STATEFUL}[storage]\n{options}\n")
    return load_spec(file, url=bench.url, state=state)


def test_a_pipeline_goes_on_elsewhere_and_one_that_was_overtaken_ends(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    need_s3a()
    state = store.folder()
    with running() as server:
        bench = Bench(tmp_path, server.url, spark)
        (tmp_path / "counts.py").write_text(COUNTS)
        for topic in ("in", "out", "dead"):
            bench.create(topic)
        spec = of(bench, store, state)
        bench.publish("in", [flight("a", 1, 0), flight("b", 2, 0)])
        assert Pipeline(spec, spark).start(once=True).await_termination(500)
        here = StoreFolder(str(spec.home), store.options)
        assert not here.scratch.parents[1].exists(), "another machine has all that this one has"
        # What the first run had on its way comes late.
        confirmed = here.content("checkpoint/offsets/0")
        here.replace("checkpoint/offsets/0", b"v1\n{}\n{}")
        bench.publish("in", [flight("a", 3, 0)])
        pipeline = Pipeline(spec, spark).start()
        until(lambda: len(bench.messages("out")) == 3, 500)
        totals = [(m["value"]["k"], m["value"]["total"]) for m in bench.messages("out")]
        assert sorted(totals[:2]) == [("a", 1), ("b", 2)]
        assert totals[2] == ("a", 4), "the state is what it was"
        assert here.content("checkpoint/offsets/0") == confirmed

        until(here.in_use, 500)
        late = StoreFolder(str(spec.home), store.options)
        late.epochs.claim(late.epochs.look())  # as a run that finds the lease silent
        bench.publish("in", [flight("a", 5, 0)])
        with pytest.raises(PipelineError, match="another run of this pipeline has taken over") as ended:
            pipeline.await_termination(500)
        assert "no sink has batch" in str(ended.value)
        assert len(bench.messages("out")) == 3
        here.remove("lease")
        assert Pipeline(spec, spark).start(once=True).await_termination(500)
        assert len(bench.messages("out")) == 4
        assert bench.messages("out")[3]["value"]["total"] == 9
        forget(spec)
        assert Pipeline(spec, spark).start(once=True).await_termination(500)
        assert sorted(message["value"]["total"] for message in bench.messages("out")[4:]) == [2, 9]
        there = [path for path in store.paths(str(spec.home)) if path.startswith("0/")]
        # Hadoop's markers of folders are left: empty objects, which have no content under the folder's name.
        assert not [path for path in there if here.content(path) is not None]

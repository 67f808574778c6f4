"""What is a repeat of a staged batch, and what is a conflict."""

import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.support.stages import latest, refused, stage, topic

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.engines.sqlite.connection import open_writer
from penstock.engines.sqlite.schema import MIGRATIONS, prepare
from penstock.engines.sqlite.store import FILE_NAME
from penstock.model.errors import ErrorKind
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.testing.server import Address, launch, running
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[Stages]:
    with Stages(Access(url=server.url), retry_s=0) as made:
        yield made


def test_one_writer_and_batch_for_two_topics(server: Address, client: Stages) -> None:
    """As `foreachBatch` does that writes to two topics."""
    for name, count in (("each_a", 3), ("each_b", 4)):
        local = name.replace("_", "-")
        held = stage(client, "each", 5, f"s-{name}", **{name: count})
        done = client.commit("each", 5, [held], [topic(local)])
        assert (done["repeated"], done["batch"]) == (False, 5)
        assert done["topics"] == [str(topic(local))]
        assert [(s["offset"], s["end_offset"]) for s in done["spans"]] == [(0, count)]
        assert latest(server, local) == count


def test_a_copied_checkpoint_with_another_topic(server: Address, client: Stages) -> None:
    for number in range(3):
        client.commit("copied", number, [stage(client, "copied", number, "s", copy_a=2)], [topic("copy-a")])
    held = stage(client, "copied", 0, "s", copy_b=2)
    assert not client.commit("copied", 0, [held], [topic("copy-b")])["repeated"]
    assert latest(server, "copy-b") == 2


def test_batches_below_the_last_are_a_conflict(server: Address, client: Stages) -> None:
    """A checkpoint that lost its last two batches, and a backfill under an earlier number."""
    client.commit("nightly", 20261122, [stage(client, "nightly", 20261122, "s", night=7)], [topic("night")])
    held = stage(client, "nightly", 20261121, "s", night=5)
    error = refused(client.commit, "nightly", 20261121, [held], [topic("night")])
    assert error.kind is ErrorKind.BATCH_CONFLICT
    for name in ("nightly", "20261122", "20261121", "persistent://public/default/night"):
        assert name in error.message
    assert latest(server, "night") == 7
    # Nothing changed: what was staged is there, and comes with another number.
    assert client.status("nightly")["staged"][0]["stages"][0]["messages"] == 5
    assert client.abort("nightly", 20261121) == 1
    held = stage(client, "nightly", 20261123, "s", night=5)
    assert not client.commit("nightly", 20261123, [held], [topic("night")])["repeated"]
    client.forget("nightly", [topic("night")])
    held = stage(client, "nightly", 20261121, "s", night=5)
    assert not client.commit("nightly", 20261121, [held], [topic("night")])["repeated"]
    assert latest(server, "night") == 17


def test_the_last_batch_again(server: Address, client: Stages) -> None:
    targets = [topic("again")]
    done = client.commit("again", 4, [stage(client, "again", 4, "one", again=6, again_dead=1)], targets)
    assert {s["topic"].rsplit("/")[-1]: s["end_offset"] for s in done["spans"]} == {
        "again": 6,
        "again-dead": 1,
    }
    for counts in ({"again": 5, "again_dead": 1}, {"again": 6, "again_dead": 2}, {"again": 7}, {}):
        held = [stage(client, "again", 4, "other", **counts)] if counts else []
        error = refused(client.commit, "again", 4, held, targets)
        assert error.kind is ErrorKind.BATCH_CONFLICT
        assert "7 messages (6 to persistent://public/default/again" in error.message
        if counts:
            assert client.status("again")["staged"][0]["stages"][0]["stage"] == "other"
            client.drop("again", 4, "other")
    halves = [stage(client, "again", 4, "b", again=2, again_dead=1), stage(client, "again", 4, "a", again=4)]
    repeat = client.commit("again", 4, halves, targets)
    assert repeat == {**done, "repeated": True}
    assert client.status("again")["staged"] == []
    assert (latest(server, "again"), latest(server, "again-dead")) == (6, 1)
    # Of what is committed, nothing is undone.
    assert refused(client.abort, "again", 4).kind is ErrorKind.STAGE_CONFLICT


def test_a_request_whose_answer_was_lost(server: Address, client: Stages) -> None:
    held = [stage(client, "lost", 1, "s", lost=3)]
    done = client.commit("lost", 1, held, [topic("lost")])
    for _ in range(2):
        assert client.commit("lost", 1, held, [topic("lost")]) == {**done, "repeated": True}
    unknown = [StageCount("never", 1, 3, held[0].size_bytes)]
    assert refused(client.commit, "lost", 1, unknown, [topic("lost")]).kind is ErrorKind.STAGE_NOT_FOUND


def delete(server: Address, name: str) -> None:
    with HttpClient(server.url) as http:
        http.call("DELETE", f"/admin/v2/persistent/public/default/{name}")


def test_a_topic_that_was_deleted_and_created_again(server: Address, client: Stages) -> None:
    """The topic is dropped and the job runs again: nothing may be taken for a repeat, as nothing is there."""
    targets = [topic("orders")]
    first = stage(client, "rerun", 5, "s", orders=10)
    client.commit("rerun", 5, [first], targets)
    delete(server, "orders")
    again = stage(client, "rerun", 5, "again", orders=10)
    for held in (again, first):  # the second is a request whose answer was lost
        error = refused(client.commit, "rerun", 5, [held], targets)
        assert error.kind is ErrorKind.BATCH_CONFLICT
        assert "persistent://public/default/orders was deleted and created again" in error.message
        assert "penstock writers forget" in error.message
    assert latest(server, "orders") == 0
    assert client.status("rerun")["staged"][0]["stages"][0]["messages"] == 10
    client.forget("rerun", targets)
    assert not client.commit("rerun", 5, [again], targets)["repeated"]
    assert client.commit("rerun", 5, [again], targets)["repeated"]
    assert latest(server, "orders") == 10


def test_a_request_again_after_its_topic_was_deleted(server: Address, client: Stages) -> None:
    held = [stage(client, "dropped", 1, "s", dropped=3, dropped_dead=1)]
    client.commit("dropped", 1, held, [topic("dropped")])
    delete(server, "dropped-dead")
    error = refused(client.commit, "dropped", 1, held, [topic("dropped")])
    assert error.kind is ErrorKind.BATCH_CONFLICT
    assert "persistent://public/default/dropped-dead was deleted, and the messages" in error.message
    assert refused(latest, server, "dropped-dead").kind is ErrorKind.TOPIC_NOT_FOUND, "it was not created"
    other = stage(client, "dropped-2", 1, "s", dropped=3, dropped_dead=1)
    assert not client.commit("dropped-2", 1, [other], [topic("dropped")])["repeated"]
    assert (latest(server, "dropped"), latest(server, "dropped-dead")) == (6, 1)


@pytest.mark.parametrize("partitions", [2, 1, 0])
def test_a_partitioned_topic_that_was_created_again(server: Address, client: Stages, partitions: int) -> None:
    name = f"wide-{partitions}"
    with HttpClient(server.url) as http:
        http.create_topic(topic(name), 2)
        held = [stage(client, name, 1, "s", **{f"{name}-partition-{number}": 2 for number in (0, 1)})]
        done = client.commit(name, 1, held, [topic(name)])
        assert client.commit(name, 1, held, [topic(name)]) == {**done, "repeated": True}
        http.call("DELETE", f"/admin/v2/persistent/public/default/{name}/partitions")
        http.create_topic(topic(name), partitions)
    error = refused(client.commit, name, 1, held, [topic(name)])
    assert error.kind is ErrorKind.BATCH_CONFLICT
    assert f"persistent://public/default/{name} was deleted and created again" in error.message


def test_a_topic_of_a_commit_without_messages_can_be_deleted(server: Address, client: Stages) -> None:
    client.commit("hollow", 1, [stage(client, "hollow", 1, "s", hollow_dead=1)], [topic("hollow")])
    with HttpClient(server.url) as http:
        http.create_topic(topic("hollow"), 0)
    client.commit("hollow", 2, [], [topic("hollow")])
    delete(server, "hollow")
    assert client.commit("hollow", 2, [], [topic("hollow")])["repeated"]


def test_a_batch_of_nothing(client: Stages) -> None:
    targets = [topic("nothing")]
    assert not client.commit("nothing", 1, [], targets)["repeated"]
    assert client.commit("nothing", 1, [], targets)["repeated"]
    assert client.commit("nothing", 1, [StageCount("empty", 0, 0, 0)], targets)["repeated"]
    held = [stage(client, "nothing", 1, "s", nothing=1)]
    error = refused(client.commit, "nothing", 1, held, targets)
    assert error.kind is ErrorKind.BATCH_CONFLICT
    assert "0 messages; what is staged under the same number has 1 messages" in error.message


def test_topics_are_a_set_of_base_topics(server: Address, client: Stages) -> None:
    with HttpClient(server.url) as http:
        http.create_topic(topic("parts"), 2)
    names = [
        [topic("parts"), topic("set-b")],
        [topic("persistent://public/default/set-b"), topic("parts-partition-1"), topic("parts-partition-0")],
        [topic("public/default/set-b")] * 3 + [topic("parts-partition-7")],
    ]
    done = [client.commit("set", 3, [], each) for each in names]
    assert [each["repeated"] for each in done] == [False, True, True]
    assert done[0]["topics"] == [f"persistent://public/default/{name}" for name in ("parts", "set-b")]
    # What was staged for one partition and then another counts for the topic.
    for number, partition in enumerate((0, 1)):
        body = batch_entry(pack_plain([b"x"]), 1, producer="p", sequence_id=0, publish_time=1)
        log = f"persistent://public/default/parts-partition-{partition}"
        client.stage("set", 4, f"s-{partition}", 0, b"".join(pack_sections([(log, [body])])))
        held = [StageCount(f"s-{partition}", 1, 1, len(body))]
        assert client.commit("set", 4, held, [topic("parts")])["repeated"] is bool(number)


@pytest.mark.parametrize(
    ("topics", "status"),
    [
        (["a//b//c"], 412),
        (["non-persistent://public/default/x"], 400),
        (["x" * 500 + str(n) for n in range(20)], 400),
    ],
    ids=("name", "domain", "size"),
)
def test_topics_that_cannot_be_declared(server: Address, topics: list[str], status: int) -> None:
    path = f"{server.url}/stages/undeclared/1/commit"
    answer = httpx.post(path, json={"topics": topics, "stages": []})
    assert answer.status_code == status, answer.text
    assert httpx.get(f"{server.url}/stages/undeclared").json()["targets"] == []


def test_stages_of_another_set_of_topics_stay(server: Address, client: Stages) -> None:
    """Two writes of one batch at the same time: the commit of one leaves the other's stages alone."""
    one = stage(client, "both", 1, "one", both_a=1, both_dead=1)
    two = stage(client, "both", 1, "two", both_b=2, both_dead=1)
    stage(client, "both", 1, "an attempt that lost", both_a=9)
    client.commit("both", 1, [one], [topic("both-a")])
    assert [each["stage"] for each in client.status("both")["staged"][0]["stages"]] == ["two"]
    client.commit("both", 1, [two], [topic("both-b")])
    assert [latest(server, f"both-{name}") for name in ("a", "b", "dead")] == [1, 2, 2]


def test_a_repeat_is_logged_with_its_numbers(client: Stages, caplog: pytest.LogCaptureFixture) -> None:
    held = [stage(client, "counted", 8, "s", counted=11)]
    with caplog.at_level(logging.INFO, "penstock.engines.staging.commits"):
        client.commit("counted", 8, held, [topic("counted")])
        assert not caplog.records
        client.commit("counted", 8, held, [topic("counted")])
    (line,) = [vars(record) for record in caplog.records]
    assert (line["msg"], line["writer"], line["batch"]) == ("skipped a repeated batch", "counted", 8)
    assert line["topics"] == "persistent://public/default/counted"
    assert line["committed"] == "11 messages (11 to persistent://public/default/counted)"


def test_a_server_that_is_killed_around_a_repeat(tmp_path: Path) -> None:
    targets = [topic("staged")]
    with launch(tmp_path) as server:
        with Stages(Access(url=server.url)) as client:
            held = [stage(client, "w", 3, "first", staged=4)]
            done = client.commit("w", 3, held, targets)
            again = [stage(client, "w", 3, "second", staged=4)]
            other = [stage(client, "w", 3, "third", staged=5)]
        server.kill()
    for number in range(3):
        with launch(tmp_path) as server:
            with Stages(Access(url=server.url)) as client:
                assert refused(client.commit, "w", 3, other, targets).kind is ErrorKind.BATCH_CONFLICT
                for _ in range(2):  # the answer to a repeat may be lost as well
                    assert client.commit("w", 3, again, targets) == {**done, "repeated": True}
                assert latest(server, "staged") == 4
                again = [stage(client, "w", 3, f"again-{number}", staged=4)]
            server.kill()


def test_commits_of_a_version_that_knew_no_topics(tmp_path: Path) -> None:
    """They count for every set of topics until that has a commit of its own: nothing is lost, and nothing comes twice."""
    connection = open_writer(tmp_path / FILE_NAME)
    prepare(connection, MIGRATIONS[:2])
    connection.execute("INSERT INTO commits VALUES ('old', 7, 1000, '', 1, '[]')")
    connection.close()
    with running(tmp_path) as server, Stages(Access(url=server.url), retry_s=0) as client:
        assert client.status("old")["targets"] == [
            {"topics": None, "batch": 7, "at": 1000, "messages": 0, "keep": True}
        ]
        for names in ([], [topic("a")], [topic("b")]):
            assert refused(client.commit, "old", 6, [], names).kind is ErrorKind.BATCH_CONFLICT
            assert client.commit("old", 7, [], names)["repeated"]
            held = [stage(client, "old", 7, "s", a=1)]
            assert refused(client.commit, "old", 7, held, names).kind is ErrorKind.BATCH_CONFLICT
            client.abort("old", 7)
        assert not client.commit("old", 8, [stage(client, "old", 8, "s", a=1)], [topic("a")])["repeated"]
        assert refused(client.commit, "old", 7, [], [topic("a")]).kind is ErrorKind.BATCH_CONFLICT
        assert client.commit("old", 7, [], [topic("b")])["repeated"]
        client.forget("old", [topic("b")])
        assert not client.commit("old", 7, [], [topic("b")])["repeated"]

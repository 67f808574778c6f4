"""Staged publishing before a real Kafka: batches are there once and whole, whatever ends when.

Run as a program, this file is a process that is killed within a commit.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import msgspec
import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.stages import refused, stage, topic

from penstock.broker.broker import Broker
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.staging import Caller, Expected
from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.driver.transactions import Transaction
from penstock.engines.kafka.staging import parts
from penstock.engines.kafka.staging.space import PARTITIONS
from penstock.engines.opening import open_kafka
from penstock.engines.staging.staging import Staging
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.stage import StageKey
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.testing.server import Address, running
from penstock.wire import entry as wire
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

ANYBODY = Caller()
STAGES = ("first", "second")
ENTRIES = 3  # of each stage for each topic


def settings_of(url: str) -> ClusterSettings:
    return ClusterSettings(url=url, learned_ms=200)


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    with running(engine=settings_of(kafka_cluster.service_url)) as address:
        yield address


@pytest.fixture(scope="module")
def other(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    """Another process before the same cluster."""
    with running(engine=settings_of(kafka_cluster.service_url)) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[Stages]:
    with Stages(Access(url=server.url), retry_s=0) as made:
        yield made


@pytest.fixture
def elsewhere(other: Address) -> Iterator[Stages]:
    with Stages(Access(url=other.url), retry_s=0) as made:
        yield made


@pytest.fixture
def name(server: Address) -> str:
    """A new topic, and a writer of the same name."""
    made = f"kf-{uuid4().hex[:12]}"
    with HttpClient(server.url) as http:
        http.create_topic(topic(made))
    return made


def values(server: Address, name: str, partition: int = 0) -> list[str]:
    with HttpClient(server.url) as http:
        found = http.read(topic(name), partition, encoding="text", max_messages=1000)
        return [one["value"] for one in found["messages"]]


def test_the_whole_way(server: Address, client: Stages, elsewhere: Stages) -> None:
    """Two partitions, parts that come to two processes, and offsets around Kafka's markers."""
    made = topic(f"kf-{uuid4().hex[:12]}")
    with HttpClient(server.url) as http:
        http.create_topic(made, 2)
    writer = f"way/{made.local}-partition-3"
    opened = client.open_topics([made])
    assert opened.staged
    entry = batch_entry(pack_plain([b"a", b"b"]), 2, producer="p", sequence_id=0, publish_time=1)
    both = pack_sections([(str(made.of_partition(0)), [entry, entry]), (str(made.of_partition(1)), [entry])])
    counts = []
    for number, at in enumerate((client, elsewhere)):
        at.stage(writer, 1, f"s{number}", 0, b"".join(both))
        at.stage(writer, 1, f"s{number}", 0, b"".join(both))  # again
        counts.append(StageCount(f"s{number}", 1, 6, 3 * len(entry)))
    elsewhere.stage(writer, 1, "lost", 0, b"".join(both))
    other_content = b"".join(pack_sections([(str(made.of_partition(0)), [entry])]))
    error = refused(client.stage, writer, 1, "s0", 0, other_content)
    assert error.kind is ErrorKind.STAGE_CONFLICT
    assert values(server, made.local) == []
    (staged,) = client.status(writer)["staged"]
    assert {one["stage"]: (one["parts"], one["messages"], one["size_bytes"]) for one in staged["stages"]} == {
        one: (1, 6, 3 * len(entry)) for one in ("s0", "s1", "lost")
    }
    with HttpClient(server.url) as http:
        http.produce(made.of_partition(0), [{"value": "plain"}])

    done = client.commit(writer, 1, counts, [made])

    assert not done["repeated"]
    assert [(s["topic"], s["messages"], s["offset"]) for s in done["spans"]] == [
        (str(made.of_partition(0)), 8, 1),
        (str(made.of_partition(1)), 4, 0),
    ]
    with HttpClient(server.url) as http:
        http.produce(made.of_partition(0), [{"value": "after"}])
        found = http.read(made, 0, encoding="text")["messages"]
    assert [m["value"] for m in found] == ["plain", *("ab" * 4), "after"]
    assert found[1]["messageId"] == done["spans"][0]["first_message_id"]
    assert [m["offset"] for m in found] == [*range(9), 10], "Kafka's own marker has an offset"
    with HttpClient(server.url) as http:
        assert http.read(made, 0, offset=9, end_offset=10)["messages"] == [], "it is no message"
    for at in (client, elsewhere):
        assert at.commit(writer, 1, counts, [made]) == {**done, "repeated": True}
        assert at.status(writer)["staged"] == []
        assert [(t["topics"], t["batch"], t["messages"]) for t in at.status(writer)["targets"]] == [
            ([str(made)], 1, 12)
        ]


def test_repeats_and_conflicts(server: Address, client: Stages, elsewhere: Stages, name: str) -> None:
    targets = [topic(name)]
    done = client.commit(name, 4, [stage(client, name, 4, "one", **{name: 6})], targets)
    for counts in ({name: 5}, {}):
        held = [stage(elsewhere, name, 4, "other", **counts)] if counts else []
        error = refused(client.commit, name, 4, held, targets)
        assert error.kind is ErrorKind.BATCH_CONFLICT
        assert "6 messages" in error.message
        if counts:
            client.drop(name, 4, "other")
    halves = [stage(client, name, 4, "b", **{name: 2}), stage(elsewhere, name, 4, "a", **{name: 4})]
    assert elsewhere.commit(name, 4, halves, targets) == {**done, "repeated": True}
    assert client.status(name)["staged"] == []
    assert refused(client.abort, name, 4).kind is ErrorKind.STAGE_CONFLICT
    held = stage(client, name, 3, "s", **{name: 1})
    assert refused(client.commit, name, 3, [held], targets).kind is ErrorKind.BATCH_CONFLICT
    assert client.abort(name, 3) == 1
    unknown = [StageCount("never", 1, 3, 10)]
    assert refused(client.commit, name, 5, unknown, targets).kind is ErrorKind.STAGE_NOT_FOUND
    held = stage(client, name, 5, "s", **{name: 2})
    assert (
        refused(client.commit, name, 5, [held._replace(messages=3)], targets).kind is ErrorKind.STAGE_CONFLICT
    )
    assert not client.commit(name, 5, [held], targets)["repeated"]
    assert len(values(server, name)) == 8
    elsewhere.forget(name, targets)
    assert not client.commit(name, 4, [stage(client, name, 4, "s", **{name: 1})], targets)["repeated"]
    assert len(values(server, name)) == 9


def test_one_writer_and_batch_for_two_topics(server: Address, client: Stages, name: str) -> None:
    """As `foreachBatch` does that writes to two topics at once."""
    with HttpClient(server.url) as http:
        http.create_topic(topic(f"{name}-b"))
    one = stage(client, name, 7, "a", **{name: 3})
    two = stage(client, name, 7, "b", **{f"{name.replace('-', '_')}_b": 4})
    assert not client.commit(name, 7, [one], [topic(name)])["repeated"]
    (staged,) = client.status(name)["staged"]
    assert [held["stage"] for held in staged["stages"]] == ["b"]
    assert not client.commit(name, 7, [two], [topic(f"{name}-b")])["repeated"]
    assert client.status(name)["staged"] == []
    assert (len(values(server, name)), len(values(server, f"{name}-b"))) == (3, 4)
    assert client.commit(name, 8, [], [topic(name)])["spans"] == []
    assert client.commit(name, 8, [], [topic(name)])["repeated"]


def test_what_is_staged_is_aborted_listed_and_forgotten(client: Stages, server: Address, name: str) -> None:
    for batch, part in ((1, "a"), (1, "b"), (2, "a")):
        stage(client, name, batch, part, **{name: 3})
    listed = httpx.get(
        f"{server.url}/stages", timeout=60, params={"after": name[:-1], "max_writers": 1}
    ).json()
    assert listed["writers"][0]["writer"] == name
    assert listed["writers"][0]["staged_batches"] == 2
    assert listed["writers"][0]["staged_bytes"] > 0
    client.drop(name, 1, "a")
    assert client.abort(name, 1) == 1
    assert client.abort(name, 1) == 0
    assert refused(client.forget, name).kind is ErrorKind.STAGE_CONFLICT
    client.abort(name, 2)
    client.forget(name)
    assert refused(client.forget, name).kind is ErrorKind.NOT_FOUND
    assert client.status(name)["targets"] == []


def test_a_large_batch(server: Address, client: Stages, name: str) -> None:
    """More than is on its way at once."""
    payload = os.urandom(4 << 20)
    entry = batch_entry(pack_plain([payload]), 1, producer="p", sequence_id=0, publish_time=1)
    small = batch_entry(pack_plain([payload[:500_000]]), 1, producer="p", sequence_id=0, publish_time=1)
    for part in range(8):
        client.stage(name, 0, "s", part, b"".join(pack_sections([(str(topic(name)), [small] * 8)])))
    client.commit(name, 0, [StageCount("s", 8, 64, 64 * len(small))], [topic(name)])
    with HttpClient(server.url) as http:
        assert http.offsets(topic(name), 0).latest == 65
    client.stage(name, 1, "s", 0, b"".join(pack_sections([(str(topic(name)), [entry])])))
    error = refused(client.commit, name, 1, [StageCount("s", 1, 1, len(entry))], [topic(name)])
    assert error.kind is ErrorKind.TOO_LARGE, "the topic takes 1 MiB"
    with HttpClient(server.url) as http:
        http.produce(topic(name), [{"value": "next"}])
    assert client.abort(name, 1) == 1


# -- within one process, and across those that are killed


def entry(text: str) -> NewEntry:
    return wire.encode(
        [OutMessage(payload=text.encode())], producer="p", sequence_id=0, publish_time=1, schema_version=None
    )


async def staged(broker: Broker, writer: str, batch: int, topics: list[TopicName]) -> list[Expected]:
    """Two stages for each of the topics."""
    counted = []
    for name in STAGES:
        runs = [
            (await broker.topics.get(topic), [entry(f"{batch}:{name}:{n}") for n in range(ENTRIES)])
            for topic in topics
        ]
        await broker.staging.stage(StageKey(writer, batch, name), 0, 0, runs, ANYBODY)
        held = [one for _, run in runs for one in run]
        counted.append(Expected(name, 1, len(held), sum(len(one.data) for one in held)))
    return counted


def expected(batch: int) -> list[str]:
    return [f"{batch}:{name}:{n}" for name in STAGES for n in range(ENTRIES)]


@asynccontextmanager
async def engine(url: str, documents_topic: str = "__penstock") -> AsyncIterator[Broker]:
    settings = msgspec.structs.replace(settings_of(url), documents_topic=documents_topic)
    made = open_kafka(settings, BrokerSettings())
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def commits_topic(broker: Broker) -> str:
    assert isinstance(broker.staging, Staging)
    return broker.staging._writers._space.commits  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("place", ["before its record", "before the end of the transaction"])
async def test_a_process_that_lost_the_writer_commits_nothing(
    kafka_cluster: KafkaCluster, server: Address, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands still within its commit, another commits the batch, and the first goes on."""
    url = kafka_cluster.service_url
    async with engine(url) as frozen, engine(url) as quick:
        stages = await staged(frozen, name, 0, [topic(name)])
        there, go_on = asyncio.Event(), asyncio.Event()
        method = "flush" if place == "before its record" else "commit"
        whole = getattr(Transaction, method)

        async def stand_still(self: Transaction) -> None:
            if not there.is_set():
                there.set()
                await go_on.wait()
            await whole(self)

        monkeypatch.setattr(Transaction, method, stand_still)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(
                frozen.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
            )
            await there.wait()
            try:
                found = await quick.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
            finally:
                go_on.set()
        assert found[1]
        assert first.result() == (found[0], False)
    assert await asyncio.to_thread(values, server, name) == expected(0)


async def test_an_answer_that_is_lost(
    kafka_cluster: KafkaCluster, server: Address, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is committed, and nobody hears of it."""
    commit = Transaction.commit
    lost: list[bool] = []

    async def lose(self: Transaction) -> None:
        await commit(self)
        if any(at[0] == name for at in self.stored) and not lost:
            lost.append(True)
            raise PenstockError(ErrorKind.UNAVAILABLE, "the cluster does not answer")

    async with engine(kafka_cluster.service_url) as broker:
        stages = await staged(broker, name, 0, [topic(name)])
        monkeypatch.setattr(Transaction, "commit", lose)

        async def again() -> tuple[int, bool]:
            done, new = await broker.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
            return done.messages, new

        with pytest.raises(PenstockError, match="does not answer"):
            await again()
        assert await again() == (2 * ENTRIES, False)
    assert await asyncio.to_thread(values, server, name) == expected(0)


async def test_two_processes_commit_the_same_batches_at_once(
    kafka_cluster: KafkaCluster, server: Address, name: str
) -> None:
    """Each takes the writer from the other, in the middle of whatever it does: one wins, once."""
    targets = [topic(name)]

    async def commit(broker: Broker, batch: int, stages: list[Expected]) -> bool | None:
        try:
            return (await broker.staging.commit(name, batch, stages, ANYBODY, topics=targets, keep=True))[1]
        except PenstockError as error:
            if error.kind is not ErrorKind.UNAVAILABLE:
                raise
            return None

    async with engine(kafka_cluster.service_url) as one, engine(kafka_cluster.service_url) as two:
        for batch in range(4):
            stages = await staged(one, name, batch, targets)
            found = await asyncio.gather(commit(one, batch, stages), commit(two, batch, stages))
            assert found.count(True) <= 1
            for broker in (one, two):
                again = await commit(broker, batch, stages)
                assert not again or True not in found
                found.append(again)
            assert True in found
    written = await asyncio.to_thread(values, server, name)
    assert written == [value for batch in range(4) for value in expected(batch)]


async def test_a_writer_belongs_to_the_role_that_used_it_first(
    kafka_cluster: KafkaCluster, name: str
) -> None:
    alice, bob = Caller(role="alice", origin="alice"), Caller(role="bob", origin="bob")
    targets = [topic(name)]

    async def refused_to_bob(call: Awaitable[object]) -> None:
        with pytest.raises(PenstockError) as caught:
            await call
        assert caught.value.kind is ErrorKind.FORBIDDEN

    async with engine(kafka_cluster.service_url) as one, engine(kafka_cluster.service_url) as two:
        data = entry("a")
        runs = [(await one.topics.get(topic(name)), [data])]
        await one.staging.stage(StageKey(name, 0, "s"), 0, 0, runs, alice)
        stages = [Expected("s", 1, 1, len(data.data))]
        for broker in (two, one):
            staging = broker.staging
            await refused_to_bob(staging.stage(StageKey(name, 0, "t"), 0, 0, runs, bob))
            await refused_to_bob(staging.commit(name, 0, stages, bob, topics=targets, keep=True))
            await refused_to_bob(staging.abort(name, 0, bob))
            await refused_to_bob(staging.forget(name, bob, None, force=True))
            await refused_to_bob(staging.writer(name, bob))
            listed, _ = await staging.writers(bob, "", 1000)
            assert name not in [one.writer.name for one in listed]
        done, new = await two.staging.commit(name, 0, stages, alice, topics=targets, keep=True)
        assert (done.messages, new) == (1, True)
        found = await one.staging.writer(name, Caller(role="admin", superuser=True))
        assert found is not None
        assert (found.writer.owner, found.writer.keep) == ("alice", True)


async def test_what_was_staged_is_deleted(
    kafka_cluster: KafkaCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SETTLED_MS", 0)
    targets = [topic(name)]
    async with engine(kafka_cluster.service_url, f"__kf-{uuid4().hex[:12]}") as broker:
        assert isinstance(broker, KafkaBroker)
        assert isinstance(broker.staging, Staging)
        admin, own = broker.cluster.admin, broker.staging._parts
        space = own._space
        places = [(space.entries, number) for number in range(PARTITIONS)]

        async def left() -> int:
            await own.sweep()
            ends, begins = await admin.ends(places), await admin.begins(places)
            return sum(ends[at] - begins[at] for at in places)

        first = await staged(broker, name, 0, targets)
        assert await left() == 2 * ENTRIES
        await broker.staging.commit(name, 0, first, ANYBODY, topics=targets, keep=True)
        assert await left() == 0
        await staged(broker, name, 1, targets)
        await broker.staging.expire(broker.clock.now_ms() + 1000)
        assert await own.batches(name) == {}
        assert await left() == 0


STEPS = ("opened", "copied", "recorded", "committed")


def die_at(step: str, commits: str) -> None:
    """Have the process killed right after a step of a commit."""
    method = {"opened": "__aenter__", "copied": "flush", "recorded": "send", "committed": "commit"}[step]
    whole = getattr(Transaction, method)

    async def and_die(self: Transaction, *given: At) -> object:
        found = await whole(self, *given)
        if step == "recorded":
            if given[0][0] != commits:
                return found
            await asyncio.to_thread(self._flush)
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(Transaction, method, and_die)


async def live_and_die(url: str, writer: str, step: str) -> None:
    names = [topic(writer), topic(f"{writer}-b")]
    async with engine(url) as broker:
        stages = await staged(broker, writer, 0, names)
        await broker.staging.commit(writer, 0, stages, ANYBODY, topics=names, keep=True)
        stages = await staged(broker, writer, 1, names)
        die_at(step, commits_topic(broker))
        await broker.staging.commit(writer, 1, stages, ANYBODY, topics=names, keep=True)


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_is_killed_within_a_commit(
    kafka_cluster: KafkaCluster, server: Address, name: str, step: str
) -> None:
    """The batch is committed by another process, and is there once in both topics; nothing waits for a dead transaction."""
    with HttpClient(server.url) as http:
        http.create_topic(topic(f"{name}-b"))
    names = [topic(name), topic(f"{name}-b")]
    command = [sys.executable, __file__, kafka_cluster.service_url, name, step]
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    child = await asyncio.to_thread(
        subprocess.run, command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=200
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    async with engine(kafka_cluster.service_url) as broker:
        stages = [
            Expected(s, 1, 2 * ENTRIES, 2 * sum(len(entry(f"1:{s}:{n}").data) for n in range(ENTRIES)))
            for s in STAGES
        ]
        done, new = await broker.staging.commit(name, 1, stages, ANYBODY, topics=names, keep=True)
        assert new == (step != "committed")
        assert done.messages == 4 * ENTRIES
        again, new = await broker.staging.commit(name, 1, stages, ANYBODY, topics=names, keep=True)
        assert (again, new) == (done, False)
        with pytest.raises(PenstockError) as caught:
            await broker.staging.commit(name, 0, stages, ANYBODY, topics=names, keep=True)
        assert caught.value.kind is ErrorKind.BATCH_CONFLICT
    for one in names:
        assert await asyncio.to_thread(values, server, one.local) == expected(0) + expected(1)


if __name__ == "__main__":
    asyncio.run(live_and_die(*sys.argv[1:]))

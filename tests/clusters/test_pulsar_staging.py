"""Staged publishing before a real broker with transactions: batches are there once and whole, whatever ends when.

The broker is this file's own. Run as a program, this file is a process that is killed within a commit.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from tests.conformance.engines.capabilities import CapabilityTests
from tests.pipeline.conftest import spark  # noqa: F401 - the one session of a run
from tests.support.cluster_vectors import VERSIONS, messages
from tests.support.entry_producers import client_context, entry_producer, outgoing, payloads_of
from tests.support.pulsar_broker import NUMBERED, PulsarCluster, given, standalone
from tests.support.stages import refused, stage, topic

import penstock
from penstock.broker.broker import Broker
from penstock.broker.capability import Capability
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.staging import Caller, Expected
from penstock.client.access import Access
from penstock.client.entries.transactions import TransactionId, Transactions
from penstock.client.errors import ReadError, TransactionNotFound
from penstock.client.http import HttpClient
from penstock.engines.opening import open_pulsar
from penstock.engines.pulsar.broker import PulsarBroker
from penstock.engines.pulsar.staging import log
from penstock.engines.pulsar.staging.log import Committed, WriterLog
from penstock.engines.pulsar.staging.writers import PulsarWriters
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import VERSION
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey
from penstock.pipeline.http.stages import OpenedTopic, StageCount, Stages
from penstock.testing.server import Address, running
from penstock.wire import entry as wire
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections
from penstock.wire.contents import in_transaction

ANYBODY = Caller()
STAGES = ("first", "second")
ENTRIES = 3  # of each stage for each topic


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    there = given()
    if there is not None:
        runtime = there.admin("GET", "brokers/configuration/runtime").json()
        if runtime.get("transactionCoordinatorEnabled") == "true":
            yield there
            return
    settings = {**NUMBERED, "transactionCoordinatorEnabled": "true"}
    with standalone(tmp_path_factory.mktemp("transactions"), settings) as started:
        yield started


def settings_of(cluster: PulsarCluster) -> ClusterSettings:
    return ClusterSettings(
        url=cluster.service_url,
        admin_url=cluster.admin_url,
        learned_ms=200,
        staging_namespace="public/staged",
    )


@pytest.fixture(scope="module")
def server(cluster: PulsarCluster) -> Iterator[Address]:
    with running(engine=settings_of(cluster)) as address:
        yield address


@pytest.fixture(scope="module")
def other(cluster: PulsarCluster) -> Iterator[Address]:
    """Another process before the same cluster."""
    with running(engine=settings_of(cluster)) as address:
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
    made = f"t{uuid4().hex[:12]}"
    with HttpClient(server.url) as http:
        http.create_topic(topic(made))
    return made


def values(server: Address, name: str, partition: int = 0) -> list[str]:
    with HttpClient(server.url) as http:
        found = http.read(topic(name), partition, encoding="text", max_messages=1000)
        return [one["value"] for one in found["messages"]]


def test_the_whole_way(server: Address, client: Stages, elsewhere: Stages) -> None:
    """Two partitions, parts that come to two processes, a consumer that waits, and offsets around the cluster's markers."""
    made = topic(f"t{uuid4().hex[:12]}")
    with HttpClient(server.url) as http:
        http.create_topic(made, 2)
    writer = f"way/{made.local}-partition-3"  # a name that would be another topic's
    opened = client.open_topics([made])
    assert opened.staged
    assert opened.topics == {made: OpenedTopic(2)}
    path = f"{server.url}/topics/public/default/{made.local}/subscription/s"
    consumer = httpx.post(path, json={"initial_position": "earliest"}, timeout=60).json()
    entry = batch_entry(pack_plain([b"a", b"b"]), 2, producer="p", sequence_id=0, publish_time=1)
    both = pack_sections([(str(made.of_partition(0)), [entry, entry]), (str(made.of_partition(1)), [entry])])
    counts = []
    for number, at in enumerate((client, elsewhere)):
        at.stage(writer, 1, f"s{number}", 0, b"".join(both))
        at.stage(writer, 1, f"s{number}", 0, b"".join(both))  # again
        counts.append(StageCount(f"s{number}", 1, 6, 3 * len(entry)))
    elsewhere.stage(writer, 1, "lost", 0, b"".join(both))
    error = refused(client.stage, writer, 1, "s0", 0, b"".join(pack_sections([(str(made), [entry])])))
    assert error.kind is ErrorKind.BAD_PARAMETER, "it is partitioned"
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
        (str(made.of_partition(0)), 8, None),
        (str(made.of_partition(1)), 4, None),
    ]
    with HttpClient(server.url) as http:
        http.produce(made.of_partition(0), [{"value": "after"}])
        found = http.read(made, 0, encoding="text")["messages"]
        assert [m["value"] for m in found] == ["plain", *("ab" * 4), "after"]
        assert found[1]["messageId"][:5] == done["spans"][0]["first_message_id"][:5]
        offsets = [m["offset"] for m in found]
        assert offsets[:-1] == list(range(9))
        assert offsets[-1] > 9, "the cluster's own marker has a number"
        assert http.offsets(made, 0).latest == offsets[-1] + 1
        assert http.read(made, 0, offset=9, encoding="text")["messages"] == found[-1:]
    came: list[str] = []
    with httpx.Client(timeout=60) as web:
        while len(came) < 14:
            url = f"{path}/consumer/{consumer['id']}/messages"
            got = web.get(url, params={"timeout": 20_000, "encoding": "text"}).json()["messages"]
            assert got
            came += [one["value"] for one in got]
    assert sorted(came) == sorted(["plain", "after", *("ab" * 6)])
    for at in (client, elsewhere):
        assert at.commit(writer, 1, counts, [made]) == {**done, "repeated": True}
        assert at.status(writer)["staged"] == []
        assert [(t["topics"], t["batch"], t["messages"]) for t in at.status(writer)["targets"]] == [
            ([str(made)], 1, 12)
        ]


def test_repeats_and_conflicts(server: Address, client: Stages, elsewhere: Stages, name: str) -> None:
    targets = [topic(name)]
    done = client.commit(name, 4, [stage(client, name, 4, "one", **{name: 6})], targets)
    for counts in ({name: 5}, {name: 7}, {}):
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
    wrong = held._replace(messages=3)
    assert refused(client.commit, name, 5, [wrong], targets).kind is ErrorKind.STAGE_CONFLICT
    assert not client.commit(name, 5, [held], targets)["repeated"]
    assert len(values(server, name)) == 8
    client.forget(name, targets)
    assert not client.commit(name, 4, [stage(client, name, 4, "s", **{name: 1})], targets)["repeated"]
    assert len(values(server, name)) == 9


def test_one_writer_and_batch_for_two_topics(server: Address, client: Stages, name: str) -> None:
    """As `foreachBatch` does that writes to two topics at once."""
    with HttpClient(server.url) as http:
        http.create_topic(topic(f"{name}-b"))
    one = stage(client, name, 7, "a", **{name: 3})
    two = stage(client, name, 7, "b", **{f"{name}_b": 4})
    assert not client.commit(name, 7, [one], [topic(name)])["repeated"]
    (staged,) = client.status(name)["staged"]
    assert [held["stage"] for held in staged["stages"]] == ["b"]
    assert not client.commit(name, 7, [two], [topic(f"{name}-b")])["repeated"]
    assert client.status(name)["staged"] == []
    assert (len(values(server, name)), len(values(server, f"{name}-b"))) == (3, 4)
    assert client.commit(name, 8, [], [topic(name)])["spans"] == []
    assert client.commit(name, 8, [], [topic(name)])["repeated"]


def test_what_is_staged_is_aborted_listed_and_forgotten(client: Stages, server: Address, name: str) -> None:
    stage(client, name, 1, "a", **{name: 3})
    stage(client, name, 1, "b", **{name: 3})
    stage(client, name, 2, "a", **{name: 3})
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


def test_a_commit_that_a_topic_refuses_changes_nothing(
    server: Address, client: Stages, name: str, cluster: PulsarCluster
) -> None:
    other = f"{name}-z"
    with HttpClient(server.url) as http:
        http.create_topic(topic(other))
    held = stage(client, name, 0, "s", **{name: 2, f"{name}_z": 2})
    cluster.admin("POST", f"persistent/public/default/{other}/terminate")
    assert refused(client.commit, name, 0, [held], [topic(name)]).kind is ErrorKind.TOPIC_TERMINATED
    with HttpClient(server.url) as http:
        http.produce(topic(name), [{"value": "next"}])
    assert values(server, name) == ["next"]
    assert client.status(name)["targets"] == []


def test_a_large_batch(server: Address, client: Stages, name: str) -> None:
    """Entries as large as they may be, more than is in flight at once."""
    whole = 5 * 1024 * 1024
    head = len(batch_entry(b"", 1, producer="p", sequence_id=0, publish_time=1))
    entry = batch_entry(pack_plain([bytes(whole - head - 9)]), 1, producer="p", sequence_id=0, publish_time=1)
    assert len(entry) == whole
    for part in range(4):
        client.stage(name, 0, "s", part, b"".join(pack_sections([(str(topic(name)), [entry])])))
    client.commit(name, 0, [StageCount("s", 4, 4, 4 * len(entry))], [topic(name)])
    with HttpClient(server.url) as http:
        assert http.offsets(topic(name), 0).latest == 4


async def test_readers_pass_over_what_was_aborted(cluster: PulsarCluster, server: Address, name: str) -> None:
    """Before it is known, nothing behind it is seen; then all but it."""
    async with client_context(cluster.service_url) as context:
        transactions = Transactions(context)
        full = str(topic(name))
        producer = await entry_producer(context, full, transactions=True)
        open_one = await transactions.begin(60_000)
        await transactions.add(open_one, [full])

        async def send(number: int, transaction: TransactionId | None) -> None:
            entry = outgoing(producer, number, b"%d" % number)
            if transaction is not None:
                data = in_transaction(entry.data, transaction, 1)
                entry = msgspec.structs.replace(entry, data=data, transaction=transaction)
            await producer.send(entry)

        await send(0, None)
        await send(1, open_one)
        await send(2, None)
        assert await asyncio.to_thread(values, server, name) == ["0"]
        await transactions.end(open_one, commit=False)
        with pytest.raises(TransactionNotFound):
            await transactions.end(open_one, commit=True)
        await send(3, open_one)  # it is late
        await send(4, None)
        await producer.close()

    def after() -> tuple[list[str], list[int], int]:
        with HttpClient(server.url) as http:
            found = http.read(topic(name), 0, encoding="text")["messages"]
            end = http.offsets(topic(name), 0).latest
        return [one["value"] for one in found], [one["offset"] for one in found], end

    assert await asyncio.to_thread(after) == (["0", "2", "4"], [0, 2, 5], 6)


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
async def engine(settings: ClusterSettings) -> AsyncIterator[Broker]:
    made = open_pulsar(settings, BrokerSettings())
    await made.start()
    try:
        yield made
    finally:
        await made.close()


def writers(broker: Broker) -> PulsarWriters:
    return broker.staging._writers  # type: ignore[attr-defined, no-any-return]


async def test_an_answer_that_is_lost(
    cluster: PulsarCluster, server: Address, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is committed, and the connection breaks before the coordinator's answer comes."""
    async with engine(settings_of(cluster)) as broker:
        assert Capability.STAGED_PUBLISH in broker.capabilities
        transactions = writers(broker).transactions
        end = transactions.end
        ended: list[bool] = []

        async def lose(transaction: tuple[int, int], *, commit: bool) -> None:
            await end(transaction, commit=commit)
            ended.append(commit)
            if ended == [True]:
                raise ReadError("the connection broke")

        monkeypatch.setattr(transactions, "end", lose)
        stages = await staged(broker, name, 0, [topic(name)])
        done, new = await broker.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
        assert new
        assert (await broker.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)) == (
            done,
            False,
        )
    assert ended == [True]
    assert values(server, name) == expected(0)


@pytest.mark.parametrize("place", ["before its record", "before the end of the transaction"])
async def test_a_process_that_lost_the_writer_commits_nothing(
    cluster: PulsarCluster, server: Address, name: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One stands still within its commit, another commits the batch, and the first goes on."""
    settings = settings_of(cluster)
    async with engine(settings) as frozen, engine(settings) as quick:
        stages = await staged(frozen, name, 0, [topic(name)])
        there, go_on = asyncio.Event(), asyncio.Event()
        copy, end = writers(frozen).copy, writers(frozen).transactions.end

        async def stand_still() -> None:
            there.set()
            await go_on.wait()

        async def copied(*given: object) -> object:
            spans = await copy(*given)  # type: ignore[arg-type]
            await stand_still()
            return spans

        async def ending(transaction: TransactionId, *, commit: bool) -> None:
            if commit and not there.is_set():
                await stand_still()
            await end(transaction, commit=commit)

        if place == "before its record":
            monkeypatch.setattr(writers(frozen), "copy", copied)
        else:
            monkeypatch.setattr(writers(frozen).transactions, "end", ending)
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


async def test_a_record_that_comes_behind_that_of_the_next_owner(
    cluster: PulsarCluster, server: Address, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was on its way when its process was fenced off, which commits before it learns of that."""
    settings = settings_of(cluster)
    async with engine(settings) as one, engine(settings) as two:
        stages = await staged(one, name, 0, [topic(name)])
        copied, go_on = asyncio.Event(), asyncio.Event()
        made: list[tuple[Commit, TransactionId]] = []
        copy, read = writers(one).copy, WriterLog._read

        async def stand_still(wanted: Commit, *given: Any) -> Any:
            spans = await copy(wanted, *given)
            made.append((msgspec.structs.replace(wanted, spans=spans), given[-1]))
            copied.set()
            await go_on.wait()
            return spans

        async def commit_before(self: WriterLog, until: tuple[int, int]) -> None:
            monkeypatch.setattr(WriterLog, "_read", read)
            done, transaction = made[0]
            await self.append(Committed(done), transaction)
            await writers(one).transactions.end(transaction, commit=True)
            await self._read(until)

        monkeypatch.setattr(writers(one), "copy", stand_still)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(
                one.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
            )
            await copied.wait()
            monkeypatch.setattr(WriterLog, "_read", commit_before)
            try:
                found = await two.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=True)
            finally:
                go_on.set()
        assert found == (made[0][0], False)
        assert first.result()[0] == found[0]
    assert await asyncio.to_thread(values, server, name) == expected(0)


async def test_a_process_that_knows_of_no_other_forgets_what_another_forgot(
    cluster: PulsarCluster, server: Address, name: str
) -> None:
    targets = [topic(name)]
    async with engine(settings_of(cluster)) as one, engine(settings_of(cluster)) as two:
        stages = await staged(one, name, 0, targets)
        assert (await one.staging.commit(name, 0, stages, ANYBODY, topics=targets, keep=True))[1]
        await two.staging.forget(name, ANYBODY, targets, force=False)
        with pytest.raises(PenstockError) as caught:
            await one.staging.commit(name, 0, stages, ANYBODY, topics=targets, keep=True)
        assert caught.value.kind is ErrorKind.STAGE_NOT_FOUND, "it is no repeat"
        stages = await staged(one, name, 0, targets)
        assert (await one.staging.commit(name, 0, stages, ANYBODY, topics=targets, keep=True))[1]
    assert await asyncio.to_thread(values, server, name) == expected(0) * 2


async def test_two_processes_commit_the_same_batches_at_once(
    cluster: PulsarCluster, server: Address, name: str
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

    settings = settings_of(cluster)
    async with engine(settings) as one, engine(settings) as two:
        for batch in range(5):
            stages = await staged(one, name, batch, targets)
            found = await asyncio.gather(commit(one, batch, stages), commit(two, batch, stages))
            assert found.count(True) <= 1
            for broker in (one, two):
                again = await commit(broker, batch, stages)
                assert not again or True not in found
                found.append(again)
            assert True in found
    written = await asyncio.to_thread(values, server, name)
    assert written == [value for batch in range(5) for value in expected(batch)]


async def test_batches_stay_whole_where_entries_have_no_numbers(cluster: PulsarCluster, name: str) -> None:
    async with engine(settings_of(cluster)) as broker:
        assert isinstance(broker, PulsarBroker)
        broker.cluster.runtime["exposingBrokerEntryMetadataToClientEnabled"] = "false"
        batch = batch_entry(pack_plain([b"a", b"b", b"c"]), 3, producer="p", sequence_id=0, publish_time=1)
        runs = [(await broker.topics.get(topic(name)), [NewEntry(batch, 3, 1)])]
        await broker.staging.stage(StageKey(name, 0, "s"), 0, 0, runs, ANYBODY)
        stages = [Expected("s", 1, 3, len(batch))]
        done, _ = await broker.staging.commit(name, 0, stages, ANYBODY, topics=[topic(name)], keep=False)
    assert [(span.entries, span.messages) for span in done.spans] == [(1, 3)]
    assert await payloads_of(cluster.service_url, str(topic(name)), 3) == [b"a", b"b", b"c"]


async def test_a_writer_belongs_to_the_role_that_used_it_first(cluster: PulsarCluster, name: str) -> None:
    alice, bob = Caller(role="alice", origin="alice"), Caller(role="bob", origin="bob")
    settings, targets = settings_of(cluster), [topic(name)]

    async def refused_to_bob(call: Awaitable[object]) -> None:
        with pytest.raises(PenstockError) as caught:
            await call
        assert caught.value.kind is ErrorKind.FORBIDDEN

    async with engine(settings) as one, engine(settings) as two:
        data = entry("a")
        runs = [(await one.topics.get(topic(name)), [data])]
        await one.staging.stage(StageKey(name, 0, "s"), 0, 0, runs, alice)
        stages = [Expected("s", 1, 1, len(data.data))]
        for broker in (one, two):
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

        nobodys = f"{name}-nobodys"
        await one.staging.stage(StageKey(nobodys, 0, "s"), 0, 0, runs, ANYBODY)
        await two.staging.stage(StageKey(nobodys, 0, "t"), 0, 0, runs, alice)
        await refused_to_bob(two.staging.stage(StageKey(nobodys, 0, "u"), 0, 0, runs, bob))


async def test_a_log_is_begun_anew_and_keeps_what_counts(
    cluster: PulsarCluster, server: Address, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "TRIM_RECORDS", 6)
    other = topic(f"{name}-other")
    async with engine(settings_of(cluster)) as broker:
        first, _ = await broker.staging.commit(name, 3, [], ANYBODY, topics=[other], keep=True)
        for batch in range(8):
            await broker.staging.commit(name, batch, [], ANYBODY, topics=[topic(name)], keep=True)
    path = f"persistent/public/staged/{name}.log/stats"
    subscriptions = cluster.admin("GET", path).json()["subscriptions"]
    assert subscriptions["penstock"]["msgBacklog"] < 10, "of 18 records and more"
    async with engine(settings_of(cluster)) as broker:
        found = await broker.staging.writer(name, ANYBODY)
        assert found is not None
        assert {target.topics: target.batch for target in found.targets} == {
            (str(topic(name)),): 7,
            (str(other),): 3,
        }
        again = await broker.staging.commit(name, 3, [], ANYBODY, topics=[other], keep=True)
        assert again == (first, False)


STEPS = ("began", "added", "copied", "recorded", "committed")


async def die_at(broker: Broker, step: str) -> None:
    """Have the process killed right after a step of a commit."""
    found = writers(broker)
    transactions = found.transactions
    places: dict[str, tuple[object, str]] = {
        "added": (transactions, "add"),
        "copied": (found, "copy"),
        "committed": (transactions, "end"),
    }
    if step in places:
        owner, method = places[step]
        whole = getattr(owner, method)

        async def and_die(*given: object, **more: object) -> None:
            await whole(*given, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(owner, method, and_die)
        return
    append = WriterLog.append

    async def append_and_die(self: WriterLog, record: object, transaction: object = None) -> object:
        placed = await append(self, record, transaction)  # type: ignore[arg-type]
        if type(record).__name__ == {"began": "Began", "recorded": "Committed"}[step]:
            os.kill(os.getpid(), signal.SIGKILL)
        return placed

    WriterLog.append = append_and_die  # type: ignore[method-assign, assignment]


async def live_and_die(url: str, admin_url: str, writer: str, step: str) -> None:
    names = [topic(writer), topic(f"{writer}-b")]
    async with engine(settings_of(PulsarCluster(url, admin_url))) as broker:
        stages = await staged(broker, writer, 0, names)
        await broker.staging.commit(writer, 0, stages, ANYBODY, topics=names, keep=True)
        stages = await staged(broker, writer, 1, names)
        await die_at(broker, step)
        await broker.staging.commit(writer, 1, stages, ANYBODY, topics=names, keep=True)


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_is_killed_within_a_commit(
    cluster: PulsarCluster, server: Address, name: str, step: str
) -> None:
    """The batch is committed by another process, and is there once in both topics; nothing waits for a dead transaction."""
    with HttpClient(server.url) as http:
        http.create_topic(topic(f"{name}-b"))
    names = [topic(name), topic(f"{name}-b")]
    command = [sys.executable, __file__, cluster.service_url, cluster.admin_url, name, step]
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    child = await asyncio.to_thread(
        subprocess.run, command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, timeout=200
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    async with engine(settings_of(cluster)) as broker:
        stages = [Expected(s, 1, 2 * ENTRIES, 0) for s in STAGES]
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


# -- the suite of engines, and Spark


class TestCapabilities(CapabilityTests):
    @pytest.fixture(autouse=True)
    def found(self, cluster: PulsarCluster) -> None:
        self.namespace = f"public/t{uuid4().hex[:12]}"
        cluster.admin("PUT", f"namespaces/{self.namespace}")
        self.settings = settings_of(cluster)

    def make(self, folder: Path) -> Broker:
        return open_pulsar(self.settings, BrokerSettings())


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_stream_is_written_exactly_once(
    server: Address,
    name: str,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Each task fails once after it staged, and a batch is run again that was committed: no row is there twice."""
    source, target = topic(name), topic(f"{name}-copy")
    with HttpClient(server.url) as http:
        http.create_topic(target, 2)
        http.produce(source, [{"key": f"k{n}", "value": str(n)} for n in range(300)])

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails after its last row")

    def copy() -> None:
        frame = spark.readStream.format("penstock").option("url", server.url)
        frame = frame.option("subscribe", str(source)).option("startingOffsets", "earliest").load()
        rows = frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        rows = rows.mapInArrow(fail_once, "key string, value string")
        writer = rows.writeStream.format("penstock").option("url", server.url).option("topic", str(target))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)

    def there() -> DataFrame:
        frame = spark.read.format("penstock").option("url", server.url)
        return frame.option("subscribe", str(target)).load()

    copy()
    assert there().count() == 300
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()  # the driver was killed after the commit, and before it wrote that down
    copy()
    rows = there().collect()
    assert sorted(int(row.value) for row in rows) == list(range(300))
    assert len({(row.partition, row.offset) for row in rows}) == 300


# -- what servers of other versions stored


def put(cluster: PulsarCluster, name: str, stored: Sequence[OutMessage]) -> None:
    """Publish messages to a topic that may not be there yet."""
    with contextlib.suppress(httpx.HTTPStatusError):  # it is there
        cluster.admin("PUT", f"persistent/{name}")
    with penstock.Client(cluster.service_url) as pulsar:
        producer = pulsar.create_producer(f"persistent://{name}")
        for one in stored:
            producer.send(one.payload, properties=one.properties)


def renamed(one: OutMessage, writer: str, target: str) -> OutMessage:
    """The same of another writer, and about another topic."""

    def changed(text: str) -> str:
        return text.replace('"job"', f'"{writer}"').replace("default/staged", f"default/{target}")

    properties = {key: changed(value) for key, value in (one.properties or {}).items()}
    payload = changed(one.payload.decode()).encode() if one.payload[:1] == b"{" else one.payload
    return OutMessage(payload=payload, properties=properties)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_server_of_each_version_staged_is_committed(
    cluster: PulsarCluster, server: Address, client: Stages, name: str, version: int
) -> None:
    stage(client, "makes-the-namespace", 1, "s", **{name: 1})
    for what, place in (("4", "batch"), ("log", "writer")):
        stored = [renamed(one, name, name) for one in messages(version, place)]
        put(cluster, f"public/staged/{name}.{what}", stored)
    status = client.status(name)
    assert [(one["batch"], one["messages"]) for one in status["targets"]] == [(3, 3)], status
    (staged,) = status["staged"]
    (held,) = staged["stages"]
    count = StageCount("s", held["parts"], held["messages"], held["size_bytes"])
    assert (staged["batch"], count.messages) == (4, 3)
    client.commit(name, 4, [count])
    assert values(server, name) == ["a", "b", "c"]


def test_a_part_that_a_newer_server_staged_is_left_alone(
    cluster: PulsarCluster, client: Stages, name: str
) -> None:
    count = stage(client, name, 1, "s", **{name: 2})
    piece = OutMessage(payload=b"?", properties={VERSION: "2", "piece": "?"})
    put(cluster, f"public/staged/{name}.1", [piece])
    for call in (
        lambda: client.commit(name, 1, [count]),
        lambda: client.abort(name, 1),
        lambda: client.status(name),
        lambda: client.forget(name),
    ):
        error = refused(call)
        assert error.kind is ErrorKind.NEWER_FORMAT, error.message
        assert "has version 2" in error.message
    count = stage(client, name, 2, "s", **{name: 2})
    (span,) = client.commit(name, 2, [count])["spans"]
    assert span["messages"] == 2, "other batches are committed"


def test_a_writer_of_which_a_newer_server_stored_something_is_left_alone(
    cluster: PulsarCluster, client: Stages, name: str
) -> None:
    other = stage(client, f"{name}-other", 1, "s", **{name: 2})
    put(cluster, f"public/staged/{name}.log", [OutMessage(payload=b"?", properties={VERSION: "2"})])
    for call in (
        lambda: stage(client, name, 1, "s", **{name: 2}),
        lambda: client.commit(name, 1, [other]),
        lambda: client.abort(name, 1),
        lambda: client.status(name),
        lambda: client.forget(name),
    ):
        error = refused(call)
        assert error.kind is ErrorKind.NEWER_FORMAT, error.message
        assert "has version 2" in error.message
    (span,) = client.commit(f"{name}-other", 1, [other])["spans"]
    assert span["messages"] == 2, "other writers go on"


def test_no_position_is_given_behind_a_newer_record(
    cluster: PulsarCluster, server: Address, name: str
) -> None:
    ranges = {"accept": "application/x-kafka", "range": "bytes=0-"}
    with HttpClient(server.url) as http:
        http.produce(topic(name), [{"value": "a"}])
    url = f"/kafka/topics/{name}/0"
    assert httpx.get(f"{server.url}{url}", headers=ranges, timeout=60).status_code == 206
    put(cluster, f"public/penstock/default~{name}.positions", [OutMessage(payload=b'{"version":2,"a":[]}')])
    with running(engine=settings_of(cluster)) as again:
        for _ in range(2):
            answer = httpx.get(f"{again.url}{url}", headers=ranges, timeout=60)
            assert (answer.status_code, answer.json()["error_code"]) == (503, 50307), answer.text


if __name__ == "__main__":
    asyncio.run(live_and_die(*sys.argv[1:5]))

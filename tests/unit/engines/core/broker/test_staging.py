"""Staged publishing in a broker: what is refused, what others see, and what goes by itself."""

from collections.abc import Sequence

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench
from tests.unit.engines.core.brokers import bench as bench_of

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Caller, Expected
from penstock.engines.core.topic import Topic
from penstock.engines.memory import MemoryStore
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import AccessMode, ProducerOptions
from penstock.model.stage import Commit, StageKey
from penstock.testing.clock import settle
from penstock.wire import entry as wire

pytestmark = pytest.mark.anyio
HOUR_MS = 3_600_000
ANYBODY = Caller()  # without authentication


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def entry(bench: Bench, *payloads: bytes) -> NewEntry:
    messages = [OutMessage(payload=payload) for payload in payloads]
    return wire.encode(messages, producer="p", sequence_id=0, publish_time=1, schema_version=None)


async def stage(
    bench: Bench,
    stage: str,
    *payloads: bytes,
    batch: int = 0,
    part: int = 0,
    topic: TopicName = TOPIC,
    writer: str = "w",
    caller: Caller = ANYBODY,
) -> Expected:
    """Stage one entry; how a commit is to name it."""
    log = await bench.broker.topics.get(topic)
    new = entry(bench, *payloads)
    key = StageKey(writer, batch, stage)
    await bench.broker.staging.stage(key, part, hash(payloads), [(log, [new])], caller)
    return Expected(stage, 1, len(payloads), len(new.data))


async def commit(
    bench: Bench,
    *stages: Expected,
    batch: int = 0,
    topics: Sequence[TopicName] = (),
    writer: str = "w",
    caller: Caller = ANYBODY,
    keep: bool = True,
) -> tuple[Commit, bool]:
    staging = bench.broker.staging
    return await staging.commit(writer, batch, stages, caller, topics=topics, keep=keep)


def role(name: str) -> Caller:
    return Caller(role=name, origin=name)


async def refused(call: object) -> ErrorKind:
    with pytest.raises(PenstockError) as caught:
        await call  # type: ignore[misc]
    return caught.value.kind


async def test_a_commit_wakes_who_waits_and_counts_as_an_append() -> None:
    async with bench_of() as bench:
        await bench.publish(b"before")
        consumer = await bench.consumer()
        assert await bench.payloads(consumer) == [b"before"]
        one = await stage(bench, "one", b"a", b"b")
        two = await stage(bench, "two", b"c")
        assert await bench.payloads(consumer) == []

        made, new = await commit(bench, one, two)

        assert new
        assert [(span.offset, span.messages) for span in made.spans] == [(1, 3)]
        assert await bench.payloads(consumer) == [b"a", b"b", b"c"]
        await bench.publish(b"after")
        assert await bench.payloads(consumer) == [b"after"]
        topic = await bench.broker.topics.get(TOPIC)
        assert (topic.next_entry, topic.next_offset) == (4, 5)
        assert topic.rate_in.messages == 5
        assert [e.offset for e in await read(topic)] == [0, 1, 3, 4]
        for offset in range(5):
            (found, *_) = await topic.read_at(offset, 1)
            assert found.offset <= offset < found.end


async def read(topic: Topic) -> list[object]:
    found: list[object] = []
    while more := await topic.read(len(found), 100):
        found += more
    return found


async def test_a_batch_is_committed_once_and_stays() -> None:
    async with bench_of() as bench:
        staging = bench.broker.staging
        one = await stage(bench, "one", b"a", batch=4)
        first, _ = await commit(bench, one, batch=4)
        assert await commit(bench, one, batch=4) == (first, False)
        for batch in (4, 3):
            assert await refused(staging.abort("w", batch, ANYBODY)) is ErrorKind.STAGE_CONFLICT
        assert await refused(commit(bench, batch=3)) is ErrorKind.BATCH_CONFLICT
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1


async def test_a_part_that_comes_twice_is_staged_once() -> None:
    async with bench_of() as bench:
        one = await stage(bench, "one", b"a")
        assert await stage(bench, "one", b"a") == one
        assert await refused(stage(bench, "one", b"other")) is ErrorKind.STAGE_CONFLICT
        made, _ = await commit(bench, one)
        assert made.spans[0].messages == 1


async def test_a_commit_takes_stages_as_they_were_meant_or_not_at_all() -> None:
    async with bench_of() as bench:
        one = await stage(bench, "one", b"a")
        missing = Expected("missing", 1, 1, 1)
        short = Expected("one", 2, 2, one.size_bytes)
        assert await refused(commit(bench, one, missing)) is ErrorKind.STAGE_NOT_FOUND
        assert await refused(commit(bench, short)) is ErrorKind.STAGE_CONFLICT
        assert await refused(commit(bench, one, one)) is ErrorKind.STAGE_CONFLICT
        assert await bench.store.find_commit("w", ()) is None
        made, _ = await commit(bench, Expected("empty", 0, 0, 0), one)
        assert made.spans[0].messages == 1


async def test_topics_that_take_nothing() -> None:
    async with bench_of() as bench:
        transient = TopicName.parse("non-persistent://public/default/x")
        assert await refused(stage(bench, "s", b"a", topic=transient)) is ErrorKind.BAD_PARAMETER
        one = await stage(bench, "one", b"a")
        ended = await stage(bench, "two", b"b", topic=TopicName.parse("ended"))
        await bench.broker.topics.terminate(TopicName.parse("ended"))
        assert await refused(commit(bench, one, ended)) is ErrorKind.TOPIC_TERMINATED
        gone = await stage(bench, "three", b"c", topic=TopicName.parse("gone"))
        await bench.broker.administration.delete_topic(TopicName.parse("gone"))
        assert await refused(commit(bench, one, gone)) is ErrorKind.TOPIC_NOT_FOUND
        await bench.broker.topics.get(TopicName.parse("gone"), create=True)
        assert await refused(commit(bench, one, gone)) is ErrorKind.TOPIC_NOT_FOUND
        alone = await bench.broker.producer(TOPIC, ProducerOptions(access_mode=AccessMode.EXCLUSIVE))
        assert await refused(commit(bench, one)) is ErrorKind.EXCLUSIVE_PRODUCER
        alone.close()
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 0
        await commit(bench, one)
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1


async def test_rights_are_asked_for_at_the_commit() -> None:
    def deny(topic: TopicName) -> None:
        raise PenstockError(ErrorKind.FORBIDDEN, str(topic))

    async with bench_of() as bench:
        staging = bench.broker.staging
        one = await stage(bench, "one", b"a")
        denied = Caller(may_produce=deny)
        assert await refused(commit(bench, one, caller=denied)) is ErrorKind.FORBIDDEN
        assert await refused(staging.abort("w", 0, denied)) is ErrorKind.FORBIDDEN
        assert await refused(commit(bench, caller=denied, topics=[TOPIC])) is ErrorKind.FORBIDDEN, (
            "empty, too"
        )
        await commit(bench, one)


async def test_what_is_staged_is_bounded() -> None:
    settings = BrokerSettings(max_staged_bytes_per_writer=500)
    async with bench_of(settings) as bench:
        await stage(bench, "one", bytes(300))
        assert await refused(stage(bench, "two", bytes(300))) is ErrorKind.TOO_LARGE
        await bench.broker.staging.abort("w", 0, ANYBODY)
        await stage(bench, "two", bytes(300))
    async with bench_of(BrokerSettings(max_staged_bytes=500)) as bench:
        await stage(bench, "one", bytes(300))
        assert await refused(stage(bench, "two", bytes(300))) is ErrorKind.STORAGE_FULL


async def test_what_was_left_behind_goes_after_a_time() -> None:
    settings = BrokerSettings(stage_timeout_ms=HOUR_MS)
    async with bench_of(settings) as bench:
        staging = bench.broker.staging
        await stage(bench, "one", b"a")
        await bench.clock.advance(HOUR_MS // 2)
        await stage(bench, "two", b"b", batch=1)
        await commit(bench, writer="once", keep=False)
        await bench.clock.advance(HOUR_MS // 2 + 1)
        await settle()
        assert list(staging._parts.known("w")) == [1]
        assert await bench.store.find_commit("once", ()) is not None
        await bench.clock.advance(HOUR_MS)
        await settle()
        assert list(staging._parts.known("w")) == []
        assert await bench.store.find_commit("once", ()) is None
        assert await bench.store.load_stages() == ([], [])


async def test_a_broker_that_comes_back_knows_what_was_staged() -> None:
    store = MemoryStore()
    async with bench_of(store=store) as bench:
        zero = await stage(bench, "zero", b"z")
        await commit(bench, zero)
        two = await stage(bench, "one", b"a", batch=1)
    async with bench_of(store=store) as bench:
        assert await stage(bench, "one", b"a", batch=1) == two
        again, new = await commit(bench, zero)
        assert (again.batch, new) == (0, False)
        _, new = await commit(bench, two, batch=1)
        assert new
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 2


async def test_one_stage_of_a_batch_can_be_dropped() -> None:
    async with bench_of() as bench:
        one, two = await stage(bench, "one", b"a"), await stage(bench, "two", b"b")
        staging = bench.broker.staging
        assert await staging.abort("w", 0, ANYBODY, "one") == 1
        assert await staging.abort("w", 0, ANYBODY, "one") == 0
        assert await refused(commit(bench, one, two)) is ErrorKind.STAGE_NOT_FOUND
        await commit(bench, two)
        assert staging._parts.size_bytes == 0

"""Writers of staged batches: how long they are known, and how many there may be."""

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench
from tests.unit.engines.core.brokers import bench as bench_of

from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Caller, Expected
from penstock.engines.core.broker import staging as staged
from penstock.engines.memory import MemoryStore
from penstock.engines.staging import commits, staging
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey
from penstock.testing.clock import settle
from penstock.wire import entry as wire

pytestmark = pytest.mark.anyio
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
ANYBODY = Caller()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def stage(bench: Bench, writer: str, batch: int = 0, caller: Caller = ANYBODY) -> Expected:
    log = await bench.broker.topics.get(TOPIC)
    entry = wire.encode(
        [OutMessage(payload=b"x")], producer="p", sequence_id=0, publish_time=1, schema_version=None
    )
    await bench.broker.staging.stage(StageKey(writer, batch, "s"), 0, 1, [(log, [entry])], caller)
    return Expected("s", 1, 1, len(entry.data))


async def commit(
    bench: Bench, writer: str, batch: int = 0, *stages: Expected, caller: Caller = ANYBODY, **more: object
) -> tuple[Commit, bool]:
    return await bench.broker.staging.commit(writer, batch, stages, caller, **more)  # type: ignore[arg-type]


async def refused(call: object) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def known(bench: Bench) -> list[str]:
    return [writer.name for writer in await bench.store.list_writers("", None, 100)]


def role(name: str) -> Caller:
    return Caller(role=name, origin=name)


async def test_a_writer_expires_after_its_last_use() -> None:
    settings = BrokerSettings(writer_expiry_minutes=10 * 24 * 60)
    async with bench_of(settings) as bench:
        await commit(bench, "committed", 5, topics=[TOPIC])
        await commit(bench, "staged", 5, topics=[TOPIC])
        await bench.clock.advance(6 * DAY_MS)
        await stage(bench, "staged", 6)
        await bench.broker.staging.abort("staged", 6, ANYBODY)
        await bench.clock.advance(4 * DAY_MS + HOUR_MS)
        await settle()
        assert await known(bench) == ["staged"]
        assert (await refused(commit(bench, "staged", 4, topics=[TOPIC]))).kind is ErrorKind.BATCH_CONFLICT
        _, new = await commit(bench, "committed", 5, topics=[TOPIC])
        assert new, "a repeat after the expiry is new"
        await bench.clock.advance(11 * DAY_MS)
        await settle()
        assert await known(bench) == []


async def test_writers_stay_for_good_where_they_do_not_expire() -> None:
    async with bench_of(BrokerSettings(writer_expiry_minutes=0)) as bench:
        await commit(bench, "w", 5)
        await bench.clock.advance(100 * DAY_MS)
        await settle()
        assert await known(bench) == ["w"]


async def test_a_writer_with_something_staged_does_not_expire() -> None:
    settings = BrokerSettings(writer_expiry_minutes=24 * 60, stage_timeout_ms=3 * DAY_MS)
    async with bench_of(settings) as bench:
        await commit(bench, "w", 5)
        await stage(bench, "w", 6)
        await bench.clock.advance(2 * DAY_MS)
        await settle()
        assert await known(bench) == ["w"]
        await bench.clock.advance(2 * DAY_MS)
        await settle()
        assert await known(bench) == []


async def test_commits_that_are_not_to_be_kept_go_after_an_hour() -> None:
    async with bench_of() as bench:
        for number in range(20):
            held = await stage(bench, f"once-{number}")
            await commit(bench, f"once-{number}", 0, held, keep=False)
        await commit(bench, "kept")
        await stage(bench, "staged")
        assert len(await known(bench)) == 22
        assert not (await commit(bench, "once-7", 0, held, keep=False))[1], "known while a client may repeat"
        await bench.clock.advance(HOUR_MS + MINUTE_MS)
        await settle()
        await bench.clock.advance(HOUR_MS)
        await settle()
        assert await known(bench) == ["kept", "staged"]


async def test_a_writer_that_never_committed_goes_with_what_it_staged() -> None:
    async with bench_of(BrokerSettings(stage_timeout_ms=DAY_MS)) as bench:
        await stage(bench, "w", caller=role("alice"))
        await bench.clock.advance(DAY_MS - MINUTE_MS)
        await settle()
        assert (await refused(stage(bench, "w", caller=role("bob")))).kind is ErrorKind.FORBIDDEN
        await bench.clock.advance(3 * HOUR_MS)
        await settle()
        assert await known(bench) == []
        await stage(bench, "w", caller=role("bob"))


async def test_a_broker_that_comes_back_sweeps_what_was_left() -> None:
    store = MemoryStore()
    async with bench_of(store=store) as bench:
        await commit(bench, "once", keep=False)
    async with bench_of(store=store) as bench:
        await bench.clock.advance(3 * HOUR_MS)
        await settle()
        assert await known(bench) == []


async def test_each_role_has_writers_and_commits_of_its_own() -> None:
    async with bench_of(BrokerSettings(max_writers_per_role=2)) as bench:
        for name in ("one", "two"):
            await commit(bench, name, caller=role("many"))
        for call in (commit(bench, "three", caller=role("many")), stage(bench, "three", 1, role("many"))):
            error = await refused(call)
            assert error.kind is ErrorKind.TOO_MANY_REQUESTS
            assert "broker.max_writers_per_role" in error.message
        refusal = await refused(commit(bench, "one", 1, caller=role("many"), topics=[TOPIC]))
        assert refusal.kind is ErrorKind.TOO_MANY_REQUESTS
        await commit(bench, "one", 1, caller=role("many"))
        await commit(bench, "first", 0, await stage(bench, "first", 0, role("honest")), caller=role("honest"))
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1


async def test_batches_that_are_staged_are_counted_for_each_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "BATCHES_MAX", 2)
    async with bench_of() as bench:
        for batch in range(2):
            await stage(bench, "w", batch, role("many"))
        assert (await refused(stage(bench, "v", 0, role("many")))).kind is ErrorKind.TOO_MANY_REQUESTS
        await stage(bench, "honest", 0, role("honest"))
        await bench.broker.staging.abort("w", 0, role("many"))
        await stage(bench, "v", 0, role("many"))


async def test_parts_that_are_staged_are_counted_for_each_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged, "PIECES_MAX", 4)
    async with bench_of() as bench:
        for batch in range(2):
            await stage(bench, "w", batch, role("many"))
        assert (await refused(stage(bench, "w", 2, role("many")))).kind is ErrorKind.TOO_MANY_REQUESTS
        await stage(bench, "honest", 0, role("honest"))
        await bench.broker.staging.abort("w", 0, role("many"))
        await stage(bench, "w", 2, role("many"))


async def test_a_writer_commits_to_a_bounded_number_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "TARGETS_MAX", 2)
    async with bench_of() as bench:
        for name in ("a", "b"):
            await commit(bench, "w", topics=[TopicName.parse(name)])
        assert (await refused(commit(bench, "w"))).kind is ErrorKind.TOO_MANY_REQUESTS
        await commit(bench, "w", 1, topics=[TopicName.parse("a")])
        await commit(bench, "v")


async def test_a_page_of_writers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "LISTED_BYTES_MAX", 400)
    async with bench_of() as bench:
        for number in range(6):
            await commit(bench, f"w-{number}", topics=[TOPIC])
        seen, after, more, pages = [], "", True, 0
        while more:
            found, more = await bench.broker.staging.writers(ANYBODY, after, 5)
            seen += [one.writer.name for one in found]
            after, pages = seen[-1], pages + 1
        assert seen == [f"w-{number}" for number in range(6)]
        assert pages == 2


async def test_memory_does_not_grow_with_commits() -> None:
    """What was committed is in the store; numbers of what is staged go with the commit."""
    async with bench_of() as bench:
        for number in range(50):
            await commit(bench, f"w-{number}", 0, await stage(bench, f"w-{number}"), topics=[TOPIC])
        held = {**vars(bench.broker.staging), **vars(bench.broker.staging._parts)}
        assert held["size_bytes"] == 0
        sizes = {name: len(value) for name, value in held.items() if hasattr(value, "__len__")}
        del sizes["_tasks"]
        assert {"_by_writer", "_sizes", "_counts", "_pieces", "_locks", "_arriving"} <= set(sizes)
        assert set(sizes.values()) <= {0}, sizes


async def test_a_commit_of_a_version_without_topics_counts_for_every_set() -> None:
    store = MemoryStore()
    async with bench_of(store=store) as bench:
        held = await stage(bench, "w", 5)
        made = await store.commit_stages(Commit("w", 5, 9, None), ["s"])
    async with bench_of(store=store) as bench:
        for topics in ([], [TOPIC], [TopicName.parse("other")]):
            error = await refused(commit(bench, "w", 4, topics=topics))
            assert error.kind is ErrorKind.BATCH_CONFLICT
            assert (await refused(commit(bench, "w", 5, topics=topics))).kind is ErrorKind.BATCH_CONFLICT
            again, new = await commit(bench, "w", 5, await stage(bench, "w", 5), topics=topics)
            assert not new
            assert again.spans == made.spans
            assert again.topics == tuple(str(topic) for topic in topics)
        _, new = await commit(bench, "w", 6, await stage(bench, "w", 6), topics=[TOPIC])
        assert new
        assert (await refused(commit(bench, "w", 5, held, topics=[TOPIC]))).kind is ErrorKind.BATCH_CONFLICT
        assert not (await commit(bench, "w", 5, await stage(bench, "w", 5)))[1], "of others it still counts"
        await bench.broker.staging.forget("w", ANYBODY, [])
        _, new = await commit(bench, "w", 5, await stage(bench, "w", 5))
        assert new

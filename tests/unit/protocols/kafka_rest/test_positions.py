"""The index of positions: what it keeps, what it costs, and what it survives."""

import asyncio
from typing import Any

import pytest
from tests.support.kafka_rest import FOO, KafkaRestServer, consumed, framed

from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.kafka_rest import positions
from penstock.protocols.kafka_rest.positions import LogPositions

SMALL_TAIL = BrokerSettings(tail_bytes=1)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "BLOCK_ENTRIES", 4)
    monkeypatch.setattr(positions, "POINTS_PER_DOCUMENT", 4)


async def index(server: KafkaRestServer) -> LogPositions:
    return await server.endpoint._logs.get(FOO, 0)


def counted(server: KafkaRestServer, name: str) -> list[Any]:
    """Record the calls of one of the store's methods."""
    calls: list[Any] = []
    inner = getattr(server.broker.store, name)

    def call(*given: Any) -> Any:
        calls.append(given)
        return inner(*given)

    setattr(server.broker.store, name, call)
    return calls


def documents(store: MemoryStore) -> dict[str, bytes]:
    return {
        key: value
        for kind, found in store._meta.items()
        if kind.startswith("positions-")
        for key, value in found.items()
    }


@pytest.mark.usefixtures("_small")
async def test_a_position_is_found_by_reading_one_block() -> None:
    async with KafkaRestServer.open(SMALL_TAIL) as server:
        await server.publish(*(b"%04d" % n for n in range(999)), batch=False)
        await server.publish(b"0999")  # what was published together leaves the tail together
        log = await index(server)
        assert await log.extend() == 14_000
        reads = counted(server, "read")
        assert await log.boundary(7001) == 7014
        assert len(reads) == 1
        assert reads[0][2] <= 4
        assert await log.frames(7000, 7014) == framed(b"0500")
        assert len(reads) == 1  # from the same block
        assert await log.extend() == 14_000
        assert len(reads) == 1


@pytest.mark.usefixtures("_small")
async def test_a_restart_reads_only_what_is_after_the_last_document() -> None:
    store = MemoryStore()
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)
        await (await index(server)).extend()
        assert len(documents(store)) == 6  # of 16 entries each
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        log = await index(server)
        reads = counted(server, "read")
        assert await log.extend() == 1400
        assert [given[1] for given in reads] == [96]
        assert await log.frames(14 * 50, 14 * 51) == framed(b"0050")


@pytest.mark.usefixtures("_small")
async def test_a_trim_reads_what_goes_and_drops_documents() -> None:
    store = MemoryStore()
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)
        topic = await server.log()
        await topic.trim(50)  # nobody has read it here yet
        await topic.trim(90)
        assert sorted(documents(store))[-1] == "floor"
        assert len(documents(store)) == 4  # those of before the first trim went with the second
        response = await server.get("0-")
        assert consumed(response) == (1260, 1399, 1400)
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        assert consumed(await server.get("0-")) == (1260, 1399, 1400)
        await (await server.log()).trim(100)
        assert (await server.get("0-", status=416)).headers["content-range"] == "bytes */1400"
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        assert (await server.get("0-", status=416)).headers["content-range"] == "bytes */1400"
        await server.publish(b"more")
        assert (await server.get("0-")).content == framed(b"more")


async def test_a_trim_that_did_not_happen_takes_nothing() -> None:
    store = MemoryStore()
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)
        topic = await server.log()
        await topic.trim(10)

        def full(*_: object) -> Any:
            raise PenstockError(ErrorKind.STORAGE_FULL, "full")

        trim, server.broker.store.trim = server.broker.store.trim, full  # type: ignore[method-assign]
        with pytest.raises(PenstockError):
            await topic.trim(60)
        server.broker.store.trim = trim  # type: ignore[method-assign]
        assert consumed(await server.get("0-")) == (140, 1399, 1400)
    async with KafkaRestServer.open(
        SMALL_TAIL, store=store
    ) as server:  # the floor kept is beyond the log's first entry
        response = await server.get("0-")
        assert consumed(response) == (140, 1399, 1400)
        assert response.content == framed(*(b"%04d" % n for n in range(10, 100)))


async def test_trims_at_once_end_at_the_furthest() -> None:
    async with KafkaRestServer.open(SMALL_TAIL) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)
        topic = await server.log()
        await asyncio.gather(*(topic.trim(n) for n in (30, 90, 60)), server.get("0-", status=[206]))
        assert (topic.first_entry, topic.first_offset) == (90, 90)
        assert consumed(await server.get("0-")) == (1260, 1399, 1400)


async def test_a_log_that_something_else_trimmed_goes_on() -> None:
    store = MemoryStore()
    async with KafkaRestServer.open(store=store) as server:
        await server.publish(b"a", b"b", batch=False)
        await server.get("0-")
    await store.trim(next(iter(store._logs)), 1)
    async with KafkaRestServer.open(store=store) as server:
        assert (await server.get("0-")).content == framed(b"b")
        await server.publish(b"c")
        assert (await server.get("0-")).content == framed(b"b", b"c")


@pytest.mark.usefixtures("_small")
async def test_a_store_that_is_full_does_not_keep_readers_out(caplog: pytest.LogCaptureFixture) -> None:
    async with KafkaRestServer.open(SMALL_TAIL) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)

        async def full(*_: object) -> None:
            raise PenstockError(ErrorKind.STORAGE_FULL, "full")

        server.broker.store.save_meta = full  # type: ignore[method-assign]
        assert consumed(await server.get("0-")) == (0, 1399, 1400)
        assert "positions not kept" in caplog.text


@pytest.mark.usefixtures("_small")
async def test_a_deleted_topic_leaves_nothing() -> None:
    store = MemoryStore()
    async with KafkaRestServer.open(SMALL_TAIL, store=store) as server:
        await server.publish(*(b"%04d" % n for n in range(100)), batch=False)
        await server.get("0-")
        assert documents(store)
        await server.broker.administration.delete_topic(FOO)
        assert not documents(store)
        assert not server.endpoint._logs._logs


async def test_topics_of_other_places_are_left_alone() -> None:
    async with KafkaRestServer.open(BrokerSettings(auto_create_namespaces=True)) as server:
        for name in ("other/space/t", "non-persistent://public/default/t"):
            await server.publish(b"a", topic=TopicName.parse(name))
        assert not server.endpoint._logs._logs
        await server.publish(b"a")
        assert len(server.endpoint._logs._logs) == 1


async def test_the_loop_gets_its_turn_while_a_long_log_is_read() -> None:
    async with KafkaRestServer.open(SMALL_TAIL) as server:
        for _ in range(40):
            await server.publish(*(bytes(100) for _ in range(1000)))
        turns = 0
        done = asyncio.Event()

        async def other() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            group.create_task(other())
            assert await (await index(server)).extend() == 40 * 1000 * 110
            done.set()
        assert turns >= 20

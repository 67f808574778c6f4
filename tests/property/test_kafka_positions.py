"""Any way of cutting a log into ranges gives the same bytes, whatever was written, trimmed or restarted."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.kafka_rest import FOO, LOG, KafkaRestServer, consumed, framed

from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.model.entry import NewEntry
from penstock.model.message import OutMessage
from penstock.protocols.kafka_rest import positions
from penstock.wire import entry as wire
from penstock.wire.contents import compressed, parse, seal
from penstock.wire.payloads import LazyEntry
from penstock.wire.pulsar_pb2 import LZ4, SNAPPY, ZLIB, ZSTD

PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short logs have many points and documents."""
    monkeypatch.setattr(positions, "BLOCK_BYTES", 100)
    monkeypatch.setattr(positions, "BLOCK_ENTRIES", 5)
    monkeypatch.setattr(positions, "POINTS_PER_DOCUMENT", 3)
    monkeypatch.setattr(positions, "_UNFOLDS_INLINE", 120)


# -- the endpoints messages come through; each returns the payloads that readers see


async def _batch(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    await server.publish(*payloads)
    return payloads


async def _singles(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    await server.publish(*payloads, batch=False)
    return payloads


async def _with_keys(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    producer = await server.broker.producer(FOO)
    await producer.publish(
        [OutMessage(payload=p, key="k" * len(p), properties={"a": "b"}, null_value=not p) for p in payloads]
    )
    producer.close()
    return payloads


async def _posted(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    await server.post(framed(*payloads), "application/x-kafka")
    return payloads


async def _appended(server: KafkaRestServer, *entries: NewEntry) -> None:
    await (await server.broker.topics.get(FOO)).append(entries)


def _entry(payloads: list[bytes]) -> NewEntry:
    return wire.encode_plain(payloads, producer="p", sequence_id=0, publish_time=1, schema_version=None)


async def _binary(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    """As the binary endpoint stores what official clients send: batches in every compression."""
    entries = []
    for kind in (LZ4, ZLIB, ZSTD, SNAPPY):
        entry = _entry(payloads)
        entry.data = compressed(entry.data, kind)
        entries.append(entry)
    await _appended(server, *entries)
    return payloads * 4


async def _sealed(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    """An encrypted batch: only its receiver can open it."""
    entry = _entry(payloads)
    metadata, payload = parse(entry.data)
    metadata.encryption_keys.add(key="k", value=b"v")
    packed = metadata.SerializeToString()
    entry.data = seal(len(packed).to_bytes(4, "big") + packed + payload)
    await _appended(server, entry)
    return [payload]


async def _broken(server: KafkaRestServer, payloads: list[bytes]) -> list[bytes]:
    """Entries that nobody can read must not keep others from being read."""
    data = payloads[0] + b"\xff"
    await _appended(server, NewEntry(data=data, count=1, publish_time=1))
    return [data]


ENDPOINTS: list[Callable[[KafkaRestServer, list[bytes]], Awaitable[list[bytes]]]] = [
    _batch, _singles, _with_keys, _posted, _binary, _sealed, _broken,
]  # fmt: skip


class Model:
    """Every message since the first, and where each begins."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.floor = 0  # the first message that was not trimmed

    @property
    def bytes(self) -> bytes:
        return framed(*self.payloads)

    @property
    def starts(self) -> list[int]:
        return [0, *accumulate(len(p) + 10 for p in self.payloads)]


async def _check(server: KafkaRestServer, model: Model, cuts: list[int]) -> None:
    log, starts = model.bytes, model.starts
    size, first = len(log), starts[model.floor]
    if first == size:
        await server.get("0-", status=416)
        return
    whole = await server.get("0-")
    assert consumed(whole) == (first, size - 1, size)
    assert whole.content == log[first:]
    # Each range for itself: what begins in it, and at least one message.
    for one, other in pairwise(cuts):
        a, b = min(one, other) % (size + 5), max(one, other) % (size + 5)
        a, b = min(a, b), max(a, b)
        start = next((s for s in starts if s >= max(a, first)), size)
        if start == size:
            await server.get(f"{a}-{b}", status=416)
            continue
        end = next((s for s in starts if s > max(b, start)), size)
        response = await server.get(f"{a}-{b}")
        assert consumed(response) == (start, end - 1, size), (a, b)
        assert response.content == log[start:end]
    # Following Content-Range, with steps of any length.
    at, found, steps = first, b"", 0
    while at < size:
        response = await server.get(f"{at}-{at + cuts[steps % len(cuts)] % 300}")
        start, last, _ = consumed(response)
        assert start == at
        at, found, steps = last + 1, found + response.content, steps + 1
    assert found == log[first:]
    lines = await server.get("0-", accept="text/plain")
    assert lines.content.count(b"\n") == sum(p.count(b"\n") + 1 for p in model.payloads[model.floor :])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ENDPOINTS), PAYLOADS),
        st.tuples(st.just("trim"), st.integers(0, 100)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("look"), st.none()),
    ),
    min_size=1,
    max_size=12,
)


@example(steps=[(_singles, [b"a"] * 8), ("trim", 50), ("restart", None), (_batch, [b"b"])], cuts=[0, 50])
@example(
    steps=[(_batch, [b"a"]), ("trim", 100), ("restart", None), ("restart", None), (_batch, [b"b"])],
    cuts=[0, 50],
)
@settings(max_examples=60)
@given(steps=STEPS, cuts=st.lists(st.integers(0, 3000), min_size=2, max_size=8))
def test_any_cut_gives_the_same_bytes(steps: list[tuple[object, object]], cuts: list[int]) -> None:
    asyncio.run(_story(steps, cuts))


async def _story(steps: list[tuple[object, object]], cuts: list[int]) -> None:
    model = Model()
    store = MemoryStore()
    at = 0
    while True:
        async with KafkaRestServer.open(BrokerSettings(tail_bytes=500), store=store) as server:
            while at < len(steps) and steps[at][0] != "restart":
                await _step(server, model, *steps[at], cuts)
                at += 1
            if model.payloads:
                await _check(server, model, cuts)
        at += 1
        if at > len(steps):
            return


async def _step(server: KafkaRestServer, model: Model, what: object, given: object, cuts: list[int]) -> None:
    if callable(what):
        model.payloads += await what(server, given)
    elif model.payloads and what == "look":
        await _check(server, model, cuts)
    elif model.payloads and what == "trim":
        topic = await server.log()
        assert isinstance(given, int)
        entry_id = topic.first_entry + (topic.next_entry - topic.first_entry) * given // 100
        gone = [e for e in await topic.read(topic.first_entry, 10_000) if e.entry_id < entry_id]
        await topic.trim(entry_id)
        model.floor += sum(len(LazyEntry(entry.data).payloads()) for entry in gone)


@given(batches=st.lists(PAYLOADS, min_size=1, max_size=6), later=st.lists(PAYLOADS, min_size=1, max_size=4))
def test_partitions_that_are_added_move_nothing(batches: list[list[bytes]], later: list[list[bytes]]) -> None:
    async def story() -> None:
        async with KafkaRestServer.open() as server:
            await server.broker.topics.create(FOO, 2)
            path = "/kafka/topics/foo/1"
            for payloads in batches:
                await server.post(framed(*payloads), "application/x-kafka", path=path)
            before = (await server.get("0-", path=path)).content
            await server.broker.topics.set_partitions(FOO, 5)
            for payloads in later:
                await server.post(framed(*payloads), "application/x-kafka", path=path)
                await server.post(framed(*payloads), "application/x-kafka", path="/kafka/topics/foo/4")
            after = (await server.get("0-", path=path)).content
            assert after == before + b"".join(framed(*payloads) for payloads in later)

    asyncio.run(story())


@given(payloads=st.lists(st.binary(max_size=60), min_size=1, max_size=40))
def test_readers_beside_writers_see_a_log_that_only_grows(payloads: list[bytes]) -> None:
    async def story() -> None:
        async with KafkaRestServer.open() as server:
            await server.broker.topics.create(FOO, 0)

            async def write() -> None:
                for payload in payloads:
                    await server.publish(payload)

            async def follow() -> bytes:
                found, size = b"", len(framed(*payloads))
                while len(found) < size:
                    response = await server.get(f"{len(found)}-", prefer="wait=60")
                    assert consumed(response)[0] == len(found)
                    found += response.content
                return found

            async with asyncio.TaskGroup() as group:
                readers = [group.create_task(follow()) for _ in range(3)]
                group.create_task(write())
            assert {reader.result() for reader in readers} == {framed(*payloads)}
            assert (
                (await server.client.head(LOG))
                .headers["content-range"]
                .endswith(f"/{len(framed(*payloads))}")
            )

    asyncio.run(story())

"""Connections that are cut: nothing is lost, and nothing is stored twice where deduplication is on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waiting import until_async

import penstock
from penstock.client.http import HttpClient
from penstock.testing.clock import settle
from penstock.testing.server import Address, running

EARLIEST = penstock.InitialPosition.Earliest


class End(asyncio.Protocol):
    """One end of a connection; what it hears goes to the other."""

    def __init__(self, cutter: "Cutter", other: "End | None" = None) -> None:
        self.cutter = cutter
        self.other = other
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.cutter.ends.add(self)
        if self.other is None:  # the client's end: go to the server
            loop = asyncio.get_running_loop()
            self.cutter.tasks.append(
                loop.create_task(loop.create_connection(self.twin, "127.0.0.1", self.cutter.target))
            )
        else:
            self.other.other = self
            for data in self.other._early:
                transport.write(data)

    def twin(self) -> "End":
        return End(self.cutter, self)

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._early.append(data)
        elif not (self.cutter.hold_answers and self.is_server):
            self.other.transport.write(data)

    @property
    def is_server(self) -> bool:
        assert self.transport is not None
        return bool(self.transport.get_extra_info("peername")[1] == self.cutter.target)

    def connection_lost(self, error: Exception | None) -> None:
        self.cutter.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class Cutter:
    """A way to the server that can be cut. With `hold_answers` nothing comes back."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.ends: set[End] = set()
        self.tasks: list[asyncio.Task[object]] = []
        self.hold_answers = False

    def cut(self) -> None:
        for end in list(self.ends):
            assert end.transport is not None
            end.transport.abort()

    async def gone(self) -> None:
        self.cut()
        await asyncio.gather(*self.tasks, return_exceptions=True)

        def gone() -> bool:
            self.cut()  # the other ends of those that were cut, and new ones
            return not self.ends

        await until_async(gone)


@asynccontextmanager
async def cuttable(server: Address) -> AsyncIterator[tuple[Cutter, penstock.aio.Client]]:
    cutter = Cutter(int(server.pulsar.rsplit(":", 1)[1]))
    there = await asyncio.get_running_loop().create_server(lambda: End(cutter), "127.0.0.1", 0)
    port = there.sockets[0].getsockname()[1]
    client = penstock.aio.Client(f"pulsar://127.0.0.1:{port}", operation_timeout_seconds=30)
    here = client._context._pool
    connect = here.link

    async def through_here(address, proxy_to=None):  # type: ignore[no-untyped-def]
        return await connect(address._replace(port=port), proxy_to)

    here.link = through_here  # type: ignore[method-assign]
    try:
        yield cutter, client
    finally:
        await client.close()
        there.close()
        await there.wait_closed()
        await cutter.gone()


async def test_a_producer_and_a_consumer_go_on(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, receiver_queue_size=10)
        seen: set[bytes] = set()
        for number in range(60):
            await producer.send(b"%d" % number)
            message = await consumer.receive(30_000)
            seen.add(message.data())
            await consumer.acknowledge(message)
            if number % 20 == 10:
                cutter.cut()
        while len(seen) < 60:
            seen.add((await consumer.receive(30_000)).data())

        assert seen == {b"%d" % number for number in range(60)}
        assert producer.is_connected()


async def test_what_has_no_receipt_is_sent_again_once(server: Address, topic: str) -> None:
    with HttpClient(server.url) as http:
        http.call("POST", "/admin/v2/namespaces/public/default/deduplication", body=True)
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic, producer_name="once", batching_enabled=False)
        await producer.send(b"first")
        cutter.hold_answers = True  # stored, but the receipts never come
        sends = [asyncio.get_running_loop().create_task(producer.send(b"%d" % n)) for n in range(20)]
        await asyncio.sleep(0.3)  # most are stored by then; right either way, as each is to be there once
        cutter.hold_answers = False
        cutter.cut()
        await asyncio.wait_for(asyncio.gather(*sends), 30)
        reader = await client.create_reader(topic, penstock.MessageId.earliest)
        seen = []
        while await reader.has_message_available():
            seen.append((await reader.read_next(30_000)).data())

        assert seen == [b"first", *(b"%d" % number for number in range(20))]
    with HttpClient(server.url) as http:
        http.call("POST", "/admin/v2/namespaces/public/default/deduplication", body=False)


async def test_a_reader_goes_on_where_it_was(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(50)))
        reader = await client.create_reader(topic, penstock.MessageId.earliest)
        seen = [(await reader.read_next(30_000)).data() for _ in range(20)]
        before = set(cutter.ends)
        cutter.cut()
        await until_async(lambda: not before & cutter.ends)
        seen += [(await reader.read_next(30_000)).data() for _ in range(30)]

        assert seen == [b"%d" % number for number in range(50)]


async def test_a_server_that_is_started_again(tmp_path: Path, topic: str) -> None:
    with running(tmp_path) as first:
        pulsar, http = first.pulsar, first.port
        client = penstock.aio.Client(pulsar, operation_timeout_seconds=30)
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "sub")
        await producer.send(b"before")
        assert (await consumer.receive(30_000)).data() == b"before"
    sending = asyncio.get_running_loop().create_task(producer.send(b"meanwhile"))
    await settle()
    with running(tmp_path, port=http, pulsar=pulsar.removeprefix("pulsar://")):
        await asyncio.wait_for(sending, 30)
        again = {(await consumer.receive(30_000)).data() for _ in range(2)}
        await client.close()

    assert again == {b"before", b"meanwhile"}

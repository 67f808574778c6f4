"""Which reader serves a read, and when readers leave, with readers that the test makes."""

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import Consumer, KafkaError
from tests.support.kafka_clients import FakeClients

from penstock.engines.kafka.driver import ranges
from penstock.engines.kafka.driver import reader as module
from penstock.engines.kafka.driver.clients import CredentialsInUse
from penstock.engines.kafka.driver.reader import Found, OutOfRange, Readers, log_end
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.driver.tail import TailReader
from penstock.model.errors import ErrorKind, PenstockError

REAL_READER = module.Reader
ORDERS, OTHERS = ("orders", 0), ("others", 3)


class Fake:
    """A reader of logs that end at offset 10."""

    made: ClassVar[list["Fake"]] = []
    open: ClassVar[asyncio.Event]

    def __init__(self, clients: FakeClients, executor: object) -> None:
        self.credentials = CredentialsInUse(clients)
        self.place: At | None = None
        self.position = -1
        self.rests_s = self.leaves_s = 0.0
        self.closed = False
        self.moves = 0
        Fake.made.append(self)

    def covers(self, place: At, offset: int) -> bool:
        return (place, offset) == (self.place, self.position)

    async def move(self, place: At, offset: int) -> None:
        self.place, self.position = place, offset
        self.moves += 1

    async def read(self, entries_max: int, bytes_max: int, until: int) -> Found:
        await Fake.open.wait()
        if self.position < 0:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")
        if self.position == 10:
            return Found((), 10)
        end = min(self.position + entries_max, 10)
        found: list[Any] = [SimpleNamespace(offset=lambda at=at: at) for at in range(self.position, end)]
        self.position = end
        return Found(found, -1)

    def rest(self) -> None:
        self.place = None

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Reader", Fake)
    monkeypatch.setattr(module, "READERS_MAX", 2)
    Fake.made = []
    Fake.open = asyncio.Event()
    Fake.open.set()


def new_readers(clients: FakeClients | None = None) -> Readers:
    made: Any = clients or FakeClients()
    unused: Any = None
    return Readers(made, unused)


async def test_a_read_that_goes_on_takes_the_reader_that_was_there() -> None:
    readers = new_readers()
    for offset in (0, 4, 8):
        await readers.read(ORDERS, offset, 4, 100, 10)
    assert [one.moves for one in Fake.made] == [1]
    await readers.read(ORDERS, 0, 4, 100, 10)
    await readers.read(OTHERS, 0, 4, 100, 10)  # of two, the one that was not used for longest
    assert [(one.moves, one.place) for one in Fake.made] == [(2, OTHERS), (1, ORDERS)]
    readers.close()
    assert all(one.closed for one in Fake.made)


async def test_reads_wait_for_a_reader() -> None:
    readers = new_readers()
    Fake.open.clear()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(readers.read(ORDERS, number, 1, 100, 10)) for number in range(4)]
        await asyncio.sleep(0)
        assert len(Fake.made) == 2
        Fake.open.set()
    assert all(len(one.result().records) == 1 for one in waiting)
    assert len(Fake.made) == 2
    readers.close()


async def test_a_reader_that_failed_is_not_used_again() -> None:
    readers = new_readers()
    with pytest.raises(PenstockError):
        await readers.read(ORDERS, -5, 1, 100, 10)
    assert Fake.made[0].closed
    await readers.read(ORDERS, 0, 1, 100, 10)
    assert len(Fake.made) == 2
    readers.close()


@pytest.mark.parametrize("offset", [6, 10])
async def test_a_reader_at_the_end_rests_soon_and_is_used_for_the_next_read(
    offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READERS_MAX", 3)
    monkeypatch.setattr(module, "IDLE_S", 3600.0)
    monkeypatch.setattr(module, "AT_END_S", 0.0)
    readers = new_readers()
    await readers.read(ORDERS, 0, 4, 100, 10)
    await readers.read(OTHERS, offset, 4, 100, 10)
    async with asyncio.timeout(60):
        while Fake.made[1].place is not None:
            await asyncio.sleep(0)
    assert Fake.made[0].place == ORDERS
    await readers.read(OTHERS, 0, 4, 100, 10)
    assert [one.moves for one in Fake.made] == [1, 2]
    assert not any(one.closed for one in Fake.made)
    readers.close()


async def test_a_reader_that_is_not_used_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    readers = new_readers()
    await readers.read(ORDERS, 0, 4, 100, 10)
    async with asyncio.timeout(60):
        while not Fake.made[0].closed:
            await asyncio.sleep(0)
    readers.close()


async def test_nothing_is_read_after_the_end() -> None:
    readers = new_readers()
    readers.close()
    with pytest.raises(PenstockError) as caught:
        await readers.read(ORDERS, 0, 1, 100, 10)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert Fake.made == []


async def test_readers_with_old_credentials_leave() -> None:
    clients = FakeClients()
    readers = new_readers(clients)
    await readers.read(ORDERS, 0, 4, 100, 10)
    clients.renew()
    assert Fake.made[0].closed
    Fake.open.clear()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(readers.read(ORDERS, 4, 4, 100, 10))
        await asyncio.sleep(0)
        clients.renew()
        Fake.open.set()
    assert [one.closed for one in Fake.made] == [True, True]
    readers.close()


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION])
def test_a_log_without_the_next_offset_is_out_of_range(code: int) -> None:
    """As readers and Spark's tasks see it: retention or an unclean election took the records away."""
    with pytest.raises(OutOfRange):
        log_end(message_of(code), "t, partition 0")


def test_the_end_of_a_log_and_other_errors() -> None:
    assert log_end(message_of(KafkaError._PARTITION_EOF, 7), "t, partition 0") == 7
    assert log_end(message_of(KafkaError._TRANSPORT), "t, partition 0") is None
    with pytest.raises(PenstockError, match="t, partition 0"):
        log_end(message_of(KafkaError.TOPIC_AUTHORIZATION_FAILED), "t, partition 0")


def message_of(code: int, offset: int = -1) -> Any:
    """A message that has nothing but an error."""
    return SimpleNamespace(error=lambda: KafkaError(code), offset=lambda: offset)


async def test_a_full_queue_does_not_halt_a_consumer_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Clients(FakeClients):
        def consumer(self, kind: str, own: dict[str, Any]) -> None:
            made.append(own)

    clients: Any = Clients()
    unused: Any = None
    REAL_READER(clients, unused)
    TailReader(clients)._consumer()
    monkeypatch.setattr(ranges, "Consumer", made.append)
    ranges.RangeReader({})
    ranges.RangeReader({"fetch.queue.backoff.ms": "20"})
    assert [one["fetch.queue.backoff.ms"] for one in made] == [10, 10, 10, "20"]
    for own in made:
        Consumer({name: value for name, value in own.items() if name != "error_cb"}).close()

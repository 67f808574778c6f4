"""How records are handed to librdkafka and what became of them comes back, with a librdkafka that the test turns."""

import asyncio
from collections.abc import Callable
from itertools import repeat
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.kafka_clients import FakeClients

from penstock.engines.kafka.driver import producer as module
from penstock.engines.kafka.driver.producer import RecordProducer
from penstock.engines.kafka.driver.record import NewRecord
from penstock.model.errors import ErrorKind, PenstockError

AT = ("orders", 2)


class Stored:
    """What a callback is told of a record."""

    def __init__(self, offset: int, value: bytes | None) -> None:
        self._offset = offset
        self._value = value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value


class Fake:
    """librdkafka's producer: what is produced waits until `deliver` says what became of it."""

    made: ClassVar[list["Fake"]] = []
    refuses: ClassVar[dict[object, Exception]] = {}

    def __init__(self, properties: dict[str, Any]) -> None:
        self.properties = properties
        self.waiting: list[tuple[bytes | str | None, Callable[[Any, Any], None]]] = []
        self.headers: list[object] = []
        self.ready: list[Callable[[], None]] = []
        self.offset = 0
        Fake.made.append(self)

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        key: object,
        partition: int,
        callback: Any,
        _: None,
        timestamp: int,
        headers: object,
    ) -> None:
        assert (topic, partition) == AT
        if value in Fake.refuses:
            raise Fake.refuses[value]
        self.waiting.append((value, callback))
        self.headers.append(headers)

    def deliver(self, error: KafkaError | None = None, at: int = 0) -> None:
        """The first that waits, or another one, is stored, or fails."""
        value, callback = self.waiting.pop(at)
        stored = Stored(self.offset, value.encode() if isinstance(value, str) else value)
        self.offset += error is None
        self.ready.append(lambda: callback(error, stored))

    def poll(self, timeout: float) -> int:
        assert timeout == 0
        ready, self.ready = self.ready, []
        for call in ready:
            call()
        return len(ready)

    def purge(self, *, blocking: bool) -> None:
        assert not blocking
        while self.waiting:
            self.deliver(KafkaError(KafkaError._PURGE_QUEUE))


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "made", [])
    monkeypatch.setattr(Fake, "refuses", {})


def new_producer(clients: FakeClients | None = None) -> RecordProducer:
    made: Any = clients or FakeClients(Fake)
    return RecordProducer(made, compression="lz4", message_bytes_max=1000)


def records(*values: bytes) -> list[NewRecord]:
    return [NewRecord(value) for value in values]


async def test_each_record_has_its_outcome() -> None:
    producer = new_producer()
    first, second = producer.send(AT, records(b"a", b"b")), producer.send(AT, records(b"c"))
    (one,) = Fake.made
    assert [value for value, _ in one.waiting] == [b"a", b"b", b"c"]
    one.deliver()
    one.deliver(KafkaError(KafkaError._MSG_TIMED_OUT))
    one.deliver()
    offset, failed = await first.future
    assert offset == 0
    assert isinstance(failed, PenstockError)
    assert failed.kind is ErrorKind.UNAVAILABLE
    assert await second.future == [1]
    await producer.close()


async def test_a_record_that_is_refused_at_once_fails_alone() -> None:
    Fake.refuses = {
        b"large": KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)),
        b"many": BufferError("Local: Queue full"),
        b"odd": ValueError("embedded null character"),
    }
    producer = new_producer()
    sent = producer.send(AT, records(b"large", b"many", b"odd", b"good"))
    Fake.made[0].deliver()
    outcomes = await sent.future
    kinds = [one.kind if isinstance(one, PenstockError) else one for one in outcomes]
    assert kinds == [ErrorKind.TOO_LARGE, ErrorKind.UNAVAILABLE, ErrorKind.BAD_ENCODING, 0]
    assert not producer.full
    await producer.close()


TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


async def test_values_have_the_offsets_in_their_order() -> None:
    producer = new_producer()
    sent = producer.send_values(AT, ["a", "b", "c"], repeat([("v", b"1")]))
    alone = producer.send_values(AT, [b"d"])
    (one,) = Fake.made
    assert [value for value, _ in one.waiting] == ["a", "b", "c", b"d"]
    assert one.headers == [[("v", b"1")]] * 3 + [None]
    one.offset = 7
    for _ in range(4):
        one.deliver()
    one.ready.reverse()  # what is reported late
    assert await sent.future == [7, 8, 9]
    assert (sent.failed, await alone.future, producer.full) == (False, [10], False)
    await producer.close()


async def test_values_that_fail_among_others_fail_alone() -> None:
    producer = new_producer()
    sent = producer.send_values(AT, [b"a", b"b", b"c"])
    (one,) = Fake.made
    one.deliver()
    one.deliver(TIMED_OUT)
    one.deliver()
    first, second, third = await sent.future
    assert (first, third, sent.failed) == (0, 1, True)
    assert isinstance(second, PenstockError)
    await producer.close()


async def test_values_fail_together_where_it_is_not_known_which_failed() -> None:
    producer = new_producer()
    sent = producer.send_values(AT, [b"a", b"b", b"c"])
    (one,) = Fake.made
    one.deliver(TIMED_OUT, at=2)
    one.deliver()
    one.deliver()
    assert [type(outcome) for outcome in await sent.future] == [PenstockError] * 3
    await producer.close()


async def test_values_after_one_that_is_refused_are_not_sent() -> None:
    Fake.refuses = {b"b": BufferError("Local: Queue full")}
    producer = new_producer()
    sent = producer.send_values(AT, [b"a", b"b", b"c"])
    (one,) = Fake.made
    one.deliver()
    assert not one.waiting
    offset, *others = await sent.future
    assert (offset, sent.failed) == (0, True)
    assert [error.kind for error in others if isinstance(error, PenstockError)] == [ErrorKind.UNAVAILABLE] * 2
    (refused,) = await producer.send_values(AT, [b"b"]).future
    assert isinstance(refused, PenstockError)
    assert not producer.full
    await producer.close()


async def test_after_a_fatal_error_another_producer_goes_on() -> None:
    producer = new_producer()
    sent = producer.send(AT, records(b"a", b"b"))
    Fake.made[0].deliver(KafkaError(KafkaError._FATAL, "out of order", fatal=True))
    outcomes = await sent.future
    assert [one.kind for one in outcomes if isinstance(one, PenstockError)] == [ErrorKind.UNAVAILABLE] * 2
    again = producer.send(AT, records(b"c"))
    assert len(Fake.made) == 2
    Fake.made[1].deliver()
    assert await again.future == [0]
    await producer.close()


async def test_a_producer_that_refuses_everything_is_replaced() -> None:
    """What failed first was not marked as fatal."""
    Fake.refuses = {b"a": KafkaException(KafkaError(KafkaError._FATAL))}
    producer = new_producer()
    (refused,) = await producer.send(AT, records(b"a")).future
    assert isinstance(refused, PenstockError)
    assert refused.kind is ErrorKind.UNAVAILABLE
    again = producer.send(AT, records(b"c"))
    assert len(Fake.made) == 2
    Fake.made[1].deliver()
    assert await again.future == [0]
    await producer.close()


async def test_who_finds_no_room_waits_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 2)
    producer = new_producer()
    order: list[bytes] = []

    async def publish(value: bytes) -> None:
        if producer.full:
            await producer.room()
        order.append(value)
        await producer.send(AT, records(value)).future

    async with asyncio.TaskGroup() as tasks:
        for value in (b"a", b"b", b"c", b"d", b"e"):
            tasks.create_task(publish(value))
        await asyncio.sleep(0)
        (one,) = Fake.made
        assert order == [b"a", b"b"]
        for _ in range(5):
            while not one.waiting:
                await asyncio.sleep(0)
            one.deliver()
    assert order == [b"a", b"b", b"c", b"d", b"e"]
    assert not producer.full
    await producer.close()


async def test_what_cannot_be_delivered_is_given_up_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S", 0.01)
    producer = new_producer()
    sent = producer.send(AT, records(b"a"))
    await producer.close()
    (outcome,) = await sent.future
    assert isinstance(outcome, PenstockError)
    (late,) = await producer.send(AT, records(b"b")).future
    assert isinstance(late, PenstockError)
    assert late.kind is ErrorKind.UNAVAILABLE
    assert [type(one) for one in await producer.send_values(AT, [b"b", b"c"]).future] == [PenstockError] * 2


async def test_other_credentials_are_used_once_earlier_records_are_stored() -> None:
    clients = FakeClients(Fake)
    producer = new_producer(clients)
    first = producer.send(AT, records(b"a"))
    clients.renew()
    assert producer.full  # a client with the new credentials could overtake the one before
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(producer.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        Fake.made[0].deliver()
    assert await first.future == [0]
    second = producer.send(AT, records(b"b"))
    assert len(Fake.made) == 2
    Fake.made[1].deliver()
    await second.future
    clients.renew()  # none is on its way
    producer.send(AT, records(b"c"))
    assert len(Fake.made) == 3
    Fake.made[2].deliver()
    await producer.close()


async def test_a_record_that_timed_out_says_that_the_cluster_refuses_the_server() -> None:
    clients = FakeClients(Fake)
    producer = new_producer(clients)
    sent = producer.send(AT, records(b"a"))
    clients.errors.report("producer", KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    Fake.made[0].deliver(KafkaError(KafkaError._MSG_TIMED_OUT))
    (outcome,) = await sent.future
    assert isinstance(outcome, PenstockError)
    assert "refuses the credentials of this server: wrong password" in outcome.message
    await producer.close()

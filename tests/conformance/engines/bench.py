"""A broker that the tests of a suite drive, with clients that take what they are given."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import uuid4

import msgspec
import pytest

from penstock.broker.broker import Broker
from penstock.broker.capability import Capability
from penstock.broker.consumer import Consumer
from penstock.broker.delivery import Delivery
from penstock.broker.producer import Placement, Producer, Result
from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, ProducerOptions, SubscriptionType
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

BOUND_S: Final = 60.0  # machines are busy
LOOK_S: Final = 0.005


async def until(holds: Callable[[], object], said: Callable[[], object] = str) -> None:
    """Return once `holds()` is true; fails with what `said()` returns when it is not in time."""
    end = asyncio.get_running_loop().time() + BOUND_S
    while not holds():
        assert asyncio.get_running_loop().time() < end, said()
        await asyncio.sleep(LOOK_S)


def texts(*payloads: str, **more: Any) -> list[OutMessage]:
    """Messages of these payloads; `more` are further fields of each."""
    return [OutMessage(payload=payload.encode(), **more) for payload in payloads]


def stored(results: Sequence[Result]) -> list[MessageId]:
    """The ids of messages that were all stored; raises what became of one that was not."""
    for result in results:
        if isinstance(result, PenstockError):
            raise result
    return [result for result in results if isinstance(result, MessageId)]


def whole(placed: Placement | list[Result]) -> Placement:
    """Where plain messages were stored one after the other; fails where they were not."""
    assert isinstance(placed, Placement)
    return placed


def kinds(results: Sequence[Result]) -> list[ErrorKind | None]:
    """The kinds of error of messages that were not stored, None for those that were."""
    return [result.kind if isinstance(result, PenstockError) else None for result in results]


async def refused(call: Awaitable[object]) -> None:
    """Prove that the engine does not have something."""
    with pytest.raises(PenstockError) as caught:
        await call
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED


class Received(msgspec.Struct, frozen=True):
    """A message that a consumer was given, and when (ms of the broker's clock)."""

    text: str
    id: MessageId
    message: Message
    delivery: Delivery
    at_ms: int

    @property
    def redeliveries(self) -> int:
        return self.delivery.redeliveries


class Client:
    """An endpoint's side of a consumer: takes what comes, message by message."""

    def __init__(self, broker: Broker, consumer: Consumer, tasks: Tasks) -> None:
        self.consumer = consumer
        self.received: list[Received] = []
        self._broker = broker
        tasks.spawn(self._run(), f"take from {consumer.name}")

    async def _run(self) -> None:
        while await self.consumer.ready():
            now = self._broker.clock.now_ms()
            for delivery in self.consumer.take():
                for at, message in enumerate(wire.decode(delivery.entry)):
                    if delivery.mask >> at & 1:
                        place = delivery.topic.id_of(delivery.entry, message.index)
                        self.received.append(
                            Received(message.payload.decode(), place, message, delivery, now)
                        )

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.received]

    def id_of(self, text: str) -> MessageId:
        """The id of a message that came."""
        return next(one.id for one in self.received if one.text == text)

    async def come(self, count: int) -> list[str]:
        """Wait until so many messages have come, in all; returns the payloads of what has."""
        await until(lambda: len(self.received) >= count, lambda: f"{count} expected, got {self.texts}")
        return self.texts

    async def acknowledge(self, *wanted: str) -> None:
        """Acknowledge messages that came, durably; everything without names."""
        every = [one.id for one in self.received if not wanted or one.text in wanted]
        for message_id in dict.fromkeys(every):
            await self.consumer.acknowledge(message_id)
        await self.consumer.flush()

    async def leave(self) -> None:
        """Close the consumer."""
        await self.consumer.leave()


class Bench:
    """A running broker, and a topic that no other test has."""

    def __init__(self, suite: "EngineTests", folder: Path) -> None:
        self._suite = suite
        self._folder = folder
        self._tasks = Tasks()
        self.broker = suite.make(folder)
        self.topic = TopicName.parse(f"persistent://{suite.namespace}/suite-{uuid4().hex[:10]}")

    def can(self, capability: Capability) -> bool:
        """Whether the engine claims a capability."""
        return capability in self.broker.capabilities

    async def restart(self) -> None:
        """Close the broker and start one over what it left."""
        await self.stop()
        self._tasks = Tasks()
        self.broker = self._suite.make(self._folder)
        await self.broker.start()

    async def stop(self) -> None:
        """Close the broker."""
        await self.broker.close()
        await self._tasks.close()

    # -- clients

    async def producer(self, topic: TopicName | None = None, **options: Any) -> Producer:
        """A producer of the bench's topic, or another."""
        return await self.broker.producer(topic or self.topic, ProducerOptions(**options))

    async def publish(
        self, *payloads: str, topic: TopicName | None = None, batch: bool = False, **more: Any
    ) -> list[MessageId]:
        """Publish by a producer of its own; `more` are fields of each message."""
        producer = await self.producer(topic)
        results = await producer.publish(texts(*payloads, **more), batch=batch)
        producer.close()
        return stored(results)

    async def consume(
        self,
        type: SubscriptionType = SubscriptionType.EXCLUSIVE,
        subscription: str = "s",
        *,
        topic: TopicName | None = None,
        **options: Any,
    ) -> Client:
        """A consumer from the earliest message on, whose negative acknowledgements wait for 50 ms."""
        chosen = ConsumerOptions(**{"type": type, "start": EARLIEST, "nack_delay_ms": 50, **options})
        return self.client(await self.broker.subscribe([topic or self.topic], subscription, chosen))

    def client(self, consumer: Consumer) -> Client:
        """An endpoint's side of a consumer."""
        return Client(self.broker, consumer, self._tasks)

    async def refused(self, type: SubscriptionType, subscription: str = "s", **options: Any) -> ErrorKind:
        """The kind of error that a consumer is refused with."""
        with pytest.raises(PenstockError) as caught:
            await self.consume(type, subscription, **options)
        return caught.value.kind

    # -- what is stored

    async def log(self, topic: TopicName | None = None) -> Topic:
        """The one log of a topic, as it is now."""
        found = await self.broker.topics.get(topic or self.topic)
        await found.refresh()
        return found

    async def contents(self, topic: TopicName | None = None) -> list[str]:
        """The payloads of everything in a log, in its order."""
        log = await self.log(topic)
        found: list[str] = []
        at = log.bounds.first_offset
        while entries := await log.read_at(at, 100):
            found += [one.payload.decode() for entry in entries for one in wire.decode(entry)]
            at = entries[-1].end
        return found

    async def tick(self) -> int:
        """Wait until the broker's clock shows another millisecond; returns it."""
        before = self.broker.clock.now_ms()
        await until(lambda: self.broker.clock.now_ms() > before)
        return self.broker.clock.now_ms()


class EngineTests:
    """Tests of one part of an engine; `make` says how a broker is made.

    `namespace` exists in it. `durable`: a broker over the same folder (or cluster) has what another left.
    `batches`: whether messages of one call may share an entry.
    `early_ms`: how much too early a delayed message may come, where the engine's clock of delays is a coarse one.
    """

    pytestmark = pytest.mark.anyio
    namespace: str = "public/default"
    durable: ClassVar[bool] = True
    batches: ClassVar[bool] = True
    early_ms: ClassVar[int] = 0

    def make(self, folder: Path) -> Broker:
        """A broker over `folder`, not yet started."""
        raise NotImplementedError

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def bench(self, tmp_path: Path) -> AsyncIterator[Bench]:
        bench = Bench(self, tmp_path)
        await bench.broker.start()
        yield bench
        await bench.stop()

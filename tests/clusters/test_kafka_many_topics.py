"""Many topics, subscriptions and consumers over three processes before a real Kafka: the short form of `benchmarks/fleet.py`."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaCluster
from tests.support.many_consumers import SocketConsumers, connections, threads
from tests.support.service import Service, flags_before, service
from tests.support.waiting import until_async

from penstock.testing.server import Launched

TOPICS: Final = 200
SUBSCRIPTIONS: Final = 100  # each of its own topic
CONSUMERS: Final = 200
FEW: Final = 10  # subscriptions and consumers at which threads and connections are counted first
BOUND_S: Final = 120.0
# A client of Kafka for each further subscription would have three threads and a connection at least. Pools may still grow by less.
THREADS: Final = 3 * (SUBSCRIPTIONS - FEW)
CONNECTIONS: Final = SUBSCRIPTIONS - FEW


@pytest.fixture
def topics(kafka_cluster: KafkaCluster) -> Iterator[list[str]]:
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap, "log_level": 0})
    prefix = f"t{uuid4().hex[:10]}"
    names = [f"{prefix}-{number}" for number in range(TOPICS)]
    new = [NewTopic(name, 1, 1) for name in names]
    for made in admin.create_topics(new, operation_timeout=BOUND_S, request_timeout=BOUND_S).values():
        made.result(BOUND_S)
    yield names
    for gone in admin.delete_topics(names, request_timeout=BOUND_S).values():
        with suppress(KafkaException, TimeoutError):  # other tests only have fewer topics then
            gone.result(BOUND_S)


class Messages:
    """Messages that are published by a client of Kafka's, and who got them."""

    def __init__(self, bootstrap: str, topics: Sequence[str]) -> None:
        self.reached: set[int] = set()  # consumers
        self._topics = topics
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        self._missing: set[str] = set()
        self._round = 0

    def seen(self, number: int, topic: str, payload: str) -> None:
        self.reached.add(number)
        if payload == self._payload:
            self._missing.discard(topic)

    @property
    def _payload(self) -> str:
        return b64encode(b"%d" % self._round).decode()

    async def deliver(self) -> None:
        """Publish a message to each topic; returns once all were delivered."""
        self._round += 1
        self._missing = set(self._topics)
        for topic in self._topics:
            self._producer.produce(topic, b"%d" % self._round)
        await asyncio.to_thread(self._producer.flush)
        await until_async(lambda: not self._missing, BOUND_S)


def size(nodes: Sequence[Launched], kafka_port: int) -> tuple[int, int]:
    pids = [node.process.pid for node in nodes]
    return threads(pids), connections(pids, kafka_port)


async def test_many_consumers_get_their_messages_also_after_the_restart_of_a_process(
    kafka_cluster: KafkaCluster, topics: list[str], tmp_path: Path
) -> None:
    with service(tmp_path, flags_before(kafka_cluster)) as running:
        messages = Messages(kafka_cluster.bootstrap, topics[:SUBSCRIPTIONS])
        consumers = SocketConsumers(
            lambda: [node.url.removeprefix("http://") for node in running.nodes], messages.seen
        )
        try:
            await _consume(
                running, int(kafka_cluster.bootstrap.rsplit(":", 1)[1]), messages, consumers, topics
            )
        except BaseException:
            print(consumers.errors[-10:], *(node.log for node in running.nodes), sep="\n")
            raise
        finally:
            await consumers.close()


async def _consume(
    running: Service, kafka_port: int, messages: Messages, consumers: SocketConsumers, topics: list[str]
) -> None:
    async def open_from(first: int, end: int) -> None:
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for number in range(first, end):
                of = number % SUBSCRIPTIONS
                group.create_task(consumers.open(topics[of], f"s-{of}", number))

    await open_from(0, FEW)
    few_threads, few_connections = size(running.nodes, kafka_port)
    await open_from(FEW, CONSUMERS)

    def is_small() -> bool:
        now_threads, now_connections = size(running.nodes, kafka_port)
        return now_threads < few_threads + THREADS and now_connections < few_connections + CONNECTIONS

    async with asyncio.timeout(BOUND_S):
        while len(messages.reached) < CONSUMERS:  # those of one subscription take turns
            await messages.deliver()
    await until_async(is_small, BOUND_S)

    last = len(running.nodes) - 1
    await asyncio.to_thread(running.nodes[last].terminate)
    await asyncio.to_thread(running.start, last)
    await messages.deliver()
    await until_async(lambda: consumers.connected == CONSUMERS, BOUND_S)
    messages.reached.clear()
    async with asyncio.timeout(BOUND_S):
        while len(messages.reached) < CONSUMERS:
            await messages.deliver()
    await until_async(is_small, BOUND_S)

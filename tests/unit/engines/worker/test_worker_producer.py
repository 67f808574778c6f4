"""Requests of a worker: which of a producer's connections sent each, so that replies and withdrawals are of that one."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.producer import Reply
from penstock.client.entries.pending import Outcome, Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.engines.pulsar.producer import Partitions
from penstock.engines.pulsar.publishing import PartitionProducer
from penstock.engines.worker.producer import WorkerProducer, WorkerRequests
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle
from penstock.wire.pulsar_pb2 import CommandRequestReceipt, MessageIdData

TOPIC = TopicName.parse("persistent://public/default/t")


class Entries:
    """An `EntryProducer` whose receipts come when the test says so."""

    name, max_message_size, last_sequence_id = "x-1", 2000, -1

    def __init__(self) -> None:
        self.withdrawn: list[int] = []
        self.receipts: list[asyncio.Future[list[Outcome]]] = []

    async def room(self) -> None: ...

    def send_all(self, entries: Sequence[Outgoing]) -> asyncio.Future[list[Outcome]]:
        self.receipts.append(asyncio.get_running_loop().create_future())
        return self.receipts[-1]

    def withdraw(self, sequence_id: int) -> None:
        self.withdrawn.append(sequence_id)


def opened(partitions: Partitions | None) -> Entries:
    """Open the one partition of a producer without an owner of the log."""
    assert partitions is not None
    entries = Entries()
    topic: Any = SimpleNamespace(
        name=TOPIC, policies=SimpleNamespace(deduplication=True), published=lambda *_: None
    )
    partitions.topics = [topic]
    made = cast(EntryProducer, entries)
    partitions._open = [PartitionProducer(topic, made, partitions.numbers, lambda: True, shared_name="x")]
    return entries


def receipt(sequence_id: int, entry: int, payload: bytes) -> CommandRequestReceipt:
    return CommandRequestReceipt(
        reply_to_producer_id=1,
        sequence_id=sequence_id,
        request_message_id=MessageIdData(ledgerId=5, entryId=entry),
        reply_payload=payload,
        is_error=False,
    )


async def test_replies_and_withdrawals_are_of_the_connection_that_sent_the_request() -> None:
    """Both connections of a shared name number from 0."""
    requests = WorkerRequests(ManualClock(), 60_000)
    owner: Any = SimpleNamespace(get_or_create=lambda *_: None)
    options = ProducerOptions(name="x", shared_name=True)
    producer = WorkerProducer(owner, owner, owner, TOPIC, options, requests)
    plain, numbered = opened(producer._partitions), opened(producer._numbered)
    tasks = Tasks()

    async def ask(number: int | None) -> asyncio.Task[Reply]:
        message = OutMessage(payload=b"?", sequence_id=number)
        task = tasks.spawn(producer.request(message, 1000), "ask")
        await settle()
        return task

    first, second = await ask(None), await ask(0)
    assert (len(plain.receipts), len(numbered.receipts)) == (1, 1)
    # Both replies come before the receipts.
    producer._replied(cast(EntryProducer, numbered), receipt(0, 8, b"numbered"))
    producer._replied(cast(EntryProducer, plain), receipt(0, 7, b"plain"))
    for entries, number in ((plain, 7), (numbered, 8)):
        entries.receipts[0].set_result([(5, number)])
    assert await first == Reply(MessageId(5, 7), b"plain", False)
    assert await second == Reply(MessageId(5, 8), b"numbered", False)
    assert (plain.withdrawn, numbered.withdrawn, len(requests)) == ([], [], 0)

    third = await ask(1)
    numbered.receipts[1].set_result([(5, 9)])
    await settle()
    third.cancel()
    await settle()
    assert (plain.withdrawn, numbered.withdrawn, len(requests)) == ([], [1], 0)
    await tasks.close()

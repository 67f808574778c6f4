"""What cannot be read or stored in a Kafka cluster is passed over, is said, and holds up nothing else."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.support.kafka_bench import Bench
from tests.support.kafka_bench import bench as bench_of
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until_async as until

from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import DeadLetter, NamespacePolicies
from penstock.protocols.auth.permissions import CONSUME, PRODUCE, Permissions

SHOP, OTHER = NamespaceName("public", "default"), NamespaceName("penstock", "system")


@pytest.fixture
async def bench(kafka_cluster: KafkaCluster) -> AsyncIterator[Bench]:
    async with bench_of(kafka_cluster) as made:
        yield made


def _granted(*actions: str) -> bytes:
    return msgspec.json.encode(NamespacePolicies(permissions={"mary": actions} if actions else {}))


async def _write(bench: Bench, *rows: tuple[str, bytes]) -> None:
    """Documents in one batch of a producer, as any writer of the topic may write them."""
    producer = Producer({"bootstrap.servers": bench.cluster.bootstrap, "linger.ms": 500})
    for key, value in rows:
        producer.produce(f"__penstock-{bench.name}", value, key=key, partition=0)
    assert await asyncio.to_thread(producer.flush, 60) == 0


async def test_a_broken_document_ends_neither_its_batch_nor_the_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first = await bench.broker()
    permissions = Permissions(first.namespaces)
    granted = _granted(PRODUCE, CONSUME)
    await _write(bench, (f"namespace\0{SHOP}", granted), (f"namespace\0{OTHER}", granted))
    await until(lambda: all(permissions.may_in("mary", CONSUME, one) for one in (SHOP, OTHER)))

    caplog.clear()
    await _write(
        bench,
        (f"topic-policies\0{bench.topic}", b'{"max_producers": '),
        ("namespace\0no name at all", b"{}"),
        (f"namespace\0{OTHER}", b"\x00\xff"),
        (f"namespace\0{SHOP}", _granted(PRODUCE)),
    )
    await until(lambda: not permissions.may_in("mary", CONSUME, SHOP))
    assert permissions.may_in("mary", PRODUCE, SHOP)
    # Of a namespace whose document cannot be read nothing is granted: something may have been revoked.
    assert not permissions.may_in("mary", PRODUCE, OTHER)
    broken = sorted([f"namespace {OTHER}", "namespace no name at all", f"topic-policies {bench.topic}"])
    assert sorted(one.subject for one in first.failures.ongoing) == broken

    second = await bench.broker()  # reads all of them as it starts
    again = Permissions(second.namespaces)
    assert sorted(one.subject for one in second.failures.ongoing) == broken
    assert again.may_in("mary", PRODUCE, SHOP)
    assert not again.may_in("mary", CONSUME, SHOP)
    assert not again.may_in("mary", PRODUCE, OTHER)
    await bench.publish(["goes on"])
    # A reader is served by the process that is asked, whichever of the two owns the partition.
    assert await (await bench.consume(second, durable=False)).come(1) == ["goes on"]

    await _write(bench, (f"namespace\0{OTHER}", granted), (f"topic-policies\0{bench.topic}", b"{}"))
    await until(lambda: permissions.may_in("mary", PRODUCE, OTHER) and again.may_in("mary", PRODUCE, OTHER))
    await until(lambda: len(first.failures.ongoing) == len(second.failures.ongoing) == 1)
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.runtime.failures"]
    assert lines.count("a stored document cannot be read") == 2 * len(broken)  # each process once
    assert lines.count("the document can be read again") == 2 * 2


async def test_dead_letters_that_kafka_refuses_wait_and_hold_up_no_others(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await bench.broker()
    letters = f"{bench.name}-{bench.subscription}-DLQ"
    admin = AdminClient({"bootstrap.servers": bench.cluster.bootstrap})
    made = admin.create_topics([NewTopic(letters, 1, 1, config={"max.message.bytes": "1000"})])
    await asyncio.to_thread(made[letters].result, 60)
    client = await bench.consume(broker, dead_letter=DeadLetter(0))
    large = secrets.token_hex(2500)  # which does not compress to less than the topic takes
    await bench.publish([large, "small"])
    await client.come(2)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for message_id in list(client.ids):
            client.consumer.negative(message_id)
        (subscription,) = client.consumer.attached
        figures = subscription.dead_letters
        await until(lambda: figures.failed >= 2 and figures.waiting == 1)
        await client.consumer.flush()
        await subscription.refresh()
        assert subscription.backlog == 1  # the small one is there
        assert figures.error is not None
        await bench.publish(["behind it"])
        assert (await client.come(3))[2] == "behind it"
        assert [one.subject for one in broker.failures.ongoing] == [f"{bench.topic} {bench.subscription}"]

        change = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, letters, incremental_configs=[change])
        (altered,) = admin.incremental_alter_configs([resource]).values()
        await asyncio.to_thread(altered.result, 60)
        await until(lambda: not figures.waiting, bound_s=120)
    reader = await bench.consume(broker, topic=TopicName.parse(letters), subscription="reader")
    assert sorted(await reader.come(2)) == [large, "small"]
    assert not broker.failures.ongoing
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.runtime.failures"]
    assert lines == ["dead letters cannot be stored", "dead letters are stored again"]

"""Clients of a real schema registry and of Kafka: one that knows nothing of Penstock, and brokers of the test's process."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import fastavro
import httpx
import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.runtime.clock import LoopClock

from .kafka_broker import KafkaCluster


def avro(*fields: str) -> SchemaInfo:
    """A record of optional texts."""
    inner = [{"name": one, "type": ["null", "string"], "default": None} for one in fields]
    return SchemaInfo(
        SchemaType.AVRO, msgspec.json.encode({"type": "record", "name": "R", "fields": inner}), "R"
    )


def encoded(schema: SchemaInfo, **values: str) -> bytes:
    """A value, as another's Avro library writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, msgspec.json.decode(schema.data), values)
    return out.getvalue()


def new_name() -> TopicName:
    """Of a topic of the test's own."""
    return TopicName.of("persistent", "public", "default", f"registry-{uuid4().hex[:12]}")


class Foreign:
    """A client of Kafka's and of the registry's that knows nothing of Penstock."""

    def __init__(self, cluster: KafkaCluster, url: str) -> None:
        self._cluster = cluster
        self._url = url

    def register(self, subject: str, text: str, kind: str = "AVRO", **references: str) -> int:
        """Register a schema, with the first versions of other subjects by the names it uses them by; returns its id."""
        uses = [{"name": name, "subject": used, "version": 1} for name, used in references.items()]
        body = {"schema": text, "schemaType": kind, "references": uses}
        answer = httpx.post(f"{self._url}/subjects/{subject}/versions", json=body, timeout=60)
        return int(answer.raise_for_status().json()["id"])

    def get(self, path: str) -> Any:
        """What the registry answers."""
        return httpx.get(self._url + path, timeout=60).raise_for_status().json()

    def be_compatible(self, subject: str, level: str) -> None:
        """Have the registry check what follows."""
        body = {"compatibility": level}
        httpx.put(f"{self._url}/config/{subject}", json=body, timeout=60).raise_for_status()

    def produce(self, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
        """Write records, in order."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "acks": "all"})
        for value in values:
            producer.produce(topic, value, key, partition=0)
        assert producer.flush(60) == 0

    def consume(self, topic: str, count: int) -> list[bytes | None]:
        """The first values of a topic."""
        return [value for _, value in self.records(topic, count)]

    def records(self, topic: str, count: int) -> list[tuple[bytes | None, bytes | None]]:
        """The first records of a topic, by key and value."""
        own = {"bootstrap.servers": self._cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
        consumer = Consumer(own)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[tuple[bytes | None, bytes | None]] = []
        while len(found) < count:
            found += [(one.key(), one.value()) for one in consumer.consume(count - len(found), 60)]
        consumer.close()
        return found

    def deserialize(self, value: bytes | None) -> Any:
        """A framed Avro value, as Confluent's deserializer reads it."""
        assert value is not None
        assert value[0] == 0
        writer = fastavro.parse_schema(
            msgspec.json.decode(self.get(f"/schemas/ids/{int.from_bytes(value[1:5], 'big')}")["schema"])
        )
        return fastavro.schemaless_reader(io.BytesIO(value[5:]), writer, None)


def framed(number: int, payload: bytes) -> bytes:
    """A value as Confluent's serializers frame it."""
    return b"\0" + number.to_bytes(4, "big") + payload


def engine_of(cluster: KafkaCluster, url: str, documents: str = "", **further: Any) -> ClusterSettings:
    """A server's before both."""
    return ClusterSettings(
        url=cluster.service_url,
        learned_ms=0,
        documents_topic=documents or f"__{uuid4().hex[:10]}",
        schema_registry=url,
        **further,
    )


@asynccontextmanager
async def broker_before(
    cluster: KafkaCluster, url: str, documents: str = "", **further: Any
) -> AsyncIterator[KafkaBroker]:
    """A broker of this process before both."""
    settings = engine_of(cluster, url, documents, **further)
    broker = KafkaBroker(settings, BrokerSettings(), LoopClock())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()

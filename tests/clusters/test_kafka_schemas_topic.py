"""The topic `_schemas` of this server's registry, as other registries write and read it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.model.subjects import Definition
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.confluent.registry.subjects import Subjects
from penstock.runtime.clock import LoopClock
from penstock.testing.server import running

JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
NOOP = (b'{"keytype":"NOOP","magic":0}', None)


@pytest.fixture
def topic() -> str:
    return f"_schemas-{uuid4().hex[:10]}"


def engine_of(cluster: KafkaCluster, topic: str) -> ClusterSettings:
    return ClusterSettings(
        url=cluster.service_url,
        learned_ms=0,
        documents_topic=f"_{topic}",
        schemas_topic=topic,
    )


def records(cluster: KafkaCluster, topic: str, isolation: str) -> list[tuple[bytes, bytes | None]]:
    """All records of the topic, as a reader of committed or uncommitted ones sees them."""
    own = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    }
    consumer = Consumer(own)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes, bytes | None]] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        if message.error() is not None:
            break
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def write(cluster: KafkaCluster, topic: str, *rows: tuple[Any, Any]) -> None:
    """Write records, as Confluent's registry does: JSON without white space."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for key, value in rows:
        parts = [
            one if one is None or isinstance(one, bytes) else json.dumps(one, separators=(",", ":")).encode()
            for one in (value, key)
        ]
        producer.produce(topic, *parts, partition=0)
    assert producer.flush(60) == 0


def create(cluster: KafkaCluster, topic: str, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config={"cleanup.policy": policy})])[topic].result(60)
    until(lambda: topic in admin.list_topics(timeout=60).topics)


def ask(http: httpx.Client, method: str, path: str, status: int = 200, **more: Any) -> Any:
    answer = http.request(method, path, headers=JSON, **more)
    assert answer.status_code == status, (path, answer.text)
    return answer.json()


def test_records_are_those_of_confluents_registry(kafka_cluster: KafkaCluster, topic: str) -> None:
    with (
        running(engine=engine_of(kafka_cluster, topic)) as server,
        httpx.Client(base_url=server.registry_url, timeout=60) as http,
    ):
        ask(http, "POST", "/subjects/a/versions", json={"schema": '"int"'})
        shape = {"schema": '{"type": "object"}', "schemaType": "JSON"}
        ask(http, "POST", "/subjects/b/versions", json=shape)
        uses = [{"name": "R", "subject": "r", "version": 1}]
        record = '{"type":"record","name":"R","fields":[]}'
        ask(http, "POST", "/subjects/r/versions", json={"schema": record})
        using = {"schema": '{"type":"array","items":"R"}', "references": uses}
        ask(http, "POST", "/subjects/u/versions", json=using)
        ask(http, "PUT", "/config", json={"compatibility": "NONE"})
        ask(http, "PUT", "/config/a", json={"compatibility": "FULL"})
        ask(http, "PUT", "/mode/a", json={"mode": "READWRITE"})
        ask(http, "DELETE", "/subjects/b")
        ask(http, "DELETE", "/subjects/b/versions/1?permanent=true")
        expected = [
            (
                b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
                b'{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
            ),
            (
                b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
                b'{"subject":"b","version":1,"id":2,"schemaType":"JSON","schema":"{\\"type\\":\\"object\\"}","deleted":false}',
            ),
            (
                b'{"keytype":"SCHEMA","subject":"r","version":1,"magic":1}',
                b'{"subject":"r","version":1,"id":3,"schema":"{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[]}","deleted":false}',
            ),
            (
                b'{"keytype":"SCHEMA","subject":"u","version":1,"magic":1}',
                b'{"subject":"u","version":1,"id":4,"references":[{"name":"R","subject":"r","version":1}],"schema":"{\\"type\\":\\"array\\",\\"items\\":\\"R\\"}","deleted":false}',
            ),
            (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
            (
                b'{"keytype":"CONFIG","subject":"a","magic":0}',
                b'{"subject":"a","compatibilityLevel":"FULL"}',
            ),
            (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"subject":"a","mode":"READWRITE"}'),
            (
                b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
                b'{"subject":"b","version":1,"id":2,"schemaType":"JSON","schema":"{\\"type\\":\\"object\\"}","deleted":true}',
            ),
            (b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', None),
        ]
        # Karapace waits for a record at the very end of the log.
        until(lambda: records(kafka_cluster, topic, "read_committed")[-1] == NOOP)
        for isolation in ("read_committed", "read_uncommitted"):
            found = records(kafka_cluster, topic, isolation)
            assert [one for one in found if one != NOOP] == expected
        before = {
            path: http.get(path).text for path in ("/subjects", "/schemas", "/config", "/schemas/ids/4")
        }
    with (
        running(engine=engine_of(kafka_cluster, topic)) as server,
        httpx.Client(base_url=server.registry_url, timeout=60) as http,
    ):
        assert {path: http.get(path).text for path in before} == before
        assert ask(http, "POST", "/subjects/b/versions", json={"schema": '"long"'}) == {"id": 5}


def schema_row(subject: str, version: int, id: int, schema: str, **more: Any) -> tuple[Any, Any]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": id, **more, "schema": schema, "deleted": False}
    return key, value


def test_a_topic_of_other_registries_is_taken_over(kafka_cluster: KafkaCluster, topic: str) -> None:
    admin = engine_of(kafka_cluster, topic)
    with running(engine=admin) as server, httpx.Client(base_url=server.registry_url, timeout=60) as http:
        assert ask(http, "GET", "/subjects") == []
        create(kafka_cluster, topic, "compact")
        write(
            kafka_cluster,
            topic,
            (
                {"keytype": "CONFIG", "subject": None, "magic": 0},
                {"compatibilityLevel": "NONE", "alias": "x"},
            ),
            schema_row("a", 1, 7, '{"type": "record", "name": "A", "fields": []}', md5="abc"),
            schema_row("a", 2, 8, '"int"'),
            schema_row("b", 1, 9, '"long"'),
            schema_row("c", 1, 10, '"float"'),
            (
                {"keytype": "CONTEXT", "tenant": "t", "context": ".", "magic": 0},
                {"tenant": "t", "context": "."},
            ),
            ({"keytype": "NOOP", "magic": 0}, None),
            ({"keytype": "DELETE_SUBJECT", "subject": "b", "magic": 0}, {"subject": "b", "version": 1}),
            # Karapace deletes by an empty value.
            ({"keytype": "SCHEMA", "subject": "c", "version": 1, "magic": 1}, b""),
        )
        assert ask(http, "GET", "/subjects") == ["a"]
        assert ask(http, "GET", "/subjects?deleted=true") == ["a", "b"]
        assert ask(http, "GET", "/subjects/a/versions") == [1, 2]
        assert ask(http, "GET", "/config") == {"compatibilityLevel": "NONE", "alias": "x"}
        # The same schema, which is written without white space here.
        same = {"schema": '{"type":"record","name":"A","fields":[]}'}
        assert ask(http, "POST", "/subjects/z/versions", json=same) == {"id": 7}
        assert ask(http, "POST", "/subjects/z/versions", json={"schema": '"bytes"'}) == {"id": 11}
        ask(http, "DELETE", "/subjects/a/versions/1")
        key = json.dumps(schema_row("a", 1, 7, "")[0], separators=(",", ":")).encode()
        written = [value for found, value in records(kafka_cluster, topic, "read_committed") if found == key]
        assert json.loads(written[-1] or b"") == {
            **schema_row("a", 1, 7, '{"type":"record","name":"A","fields":[]}', md5="abc")[1],
            "deleted": True,
        }
        # And the other registry goes on.
        write(kafka_cluster, topic, schema_row("d", 1, 12, '"double"'))
        assert ask(http, "GET", "/subjects/d/versions/1")["id"] == 12
        assert ask(http, "POST", "/subjects/e/versions", json={"schema": '"string"'}) == {"id": 13}


def test_a_topic_that_would_lose_schemas_is_refused(kafka_cluster: KafkaCluster, topic: str) -> None:
    create(kafka_cluster, topic, "delete")
    with (
        running(engine=engine_of(kafka_cluster, topic)) as server,
        httpx.Client(base_url=server.registry_url, timeout=60) as http,
    ):
        assert "cleanup.policy delete" in ask(http, "GET", "/subjects", 501)["message"]


@asynccontextmanager
async def registry_before(cluster: KafkaCluster, topic: str) -> AsyncIterator[tuple[Registry, KafkaBroker]]:
    """The registry of a process that reaches no other one."""
    broker = KafkaBroker(engine_of(cluster, topic), BrokerSettings(), LoopClock())
    await broker.start()
    try:
        assert broker.registry_records is not None
        subjects = Subjects()
        await broker.registry_records.open(subjects.learn)
        yield Registry(subjects, broker.registry_records, None, uuid4().hex), broker
    finally:
        await broker.close()


async def test_processes_that_do_not_know_one_another_give_each_id_once(
    kafka_cluster: KafkaCluster, topic: str
) -> None:
    async with (
        registry_before(kafka_cluster, topic) as (one, _),
        registry_before(kafka_cluster, topic) as (two, _),
    ):

        async def register(registry: Registry, subject: str, count: int) -> list[int]:
            found = []
            for at in range(count):
                fields = [{"name": f"f{at}", "type": "int", "default": 0}]
                text = json.dumps({"type": "record", "name": "R", "fields": fields})
                found.append((await registry.register(subject, Definition(text))).id)
            return found

        found = await asyncio.gather(register(one, "s", 4), register(two, "s", 4), register(two, "t", 4))
        assert found[0] == found[1] == found[2]
        assert sorted(set(found[0])) == [1, 2, 3, 4]
        for registry in (one, two):
            await registry.sync()
            assert [each.version for each in registry.versions("s")] == [1, 2, 3, 4]
            assert [each.version for each in registry.versions("t")] == [1, 2, 3, 4]
    keys = [json.loads(key) for key, value in records(kafka_cluster, topic, "read_uncommitted")]
    schemas = [(key["subject"], key["version"]) for key in keys if key["keytype"] == "SCHEMA"]
    assert set(schemas) == {(subject, version) for subject in "st" for version in range(1, 5)}


async def test_what_a_writer_left_without_an_end_is_written_again(
    kafka_cluster: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends between its record and the commit: Confluent's registry has read the record."""
    async with registry_before(kafka_cluster, topic) as (one, broker):
        await one.register("a", Definition('"int"'))
        await asyncio.to_thread(until, lambda: records(kafka_cluster, topic, "read_committed")[-1] == NOOP)
        assert broker.registry_records is not None
        producer = broker.registry_records._writer._producer

        class Uncommitted:
            def __getattr__(self, name: str) -> Any:
                return getattr(producer, name)

            def commit_transaction(self, timeout: float) -> None:
                producer.abort_transaction(timeout)
                raise SystemError("the process ends here")

        monkeypatch.setattr(broker.registry_records._writer, "_producer", Uncommitted())
        with pytest.raises(SystemError):
            await one.register("b", Definition('"long"'))
    seen = [
        {json.loads(key).get("subject") for key, _ in records(kafka_cluster, topic, isolation)}
        for isolation in ("read_committed", "read_uncommitted")
    ]
    assert [one - {None} for one in seen] == [{"a"}, {"a", "b"}]
    async with registry_before(kafka_cluster, topic) as (two, _):
        assert (await two.register("c", Definition('"float"'))).id == 3
        assert two.version("b", "1").id == 2
    committed = [json.loads(key).get("subject") for key, _ in records(kafka_cluster, topic, "read_committed")]
    assert [one for one in committed if one] == ["a", "b", "c"]

"""Writes what a server keeps in a cluster: some of everything, as records of the topics that it keeps it in.

How the files beside this one were made, each by the last commit that wrote this version of the formats:

    PYTHONPATH=. .venv/bin/python tests/vectors/cluster/make.py kafka > tests/vectors/cluster/kafka-N.json
    PYTHONPATH=. .venv/bin/python tests/vectors/cluster/make.py pulsar > tests/vectors/cluster/pulsar-N.json

0: before records named a version, commit 10a12161 (this file passed no headers then); 1: the first version that they name.

What one process alone does not write (addresses of processes, replies) is encoded by the code that writes it.
"""

import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import msgspec
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import standalone as kafka_standalone
from tests.support.pulsar_broker import NUMBERED
from tests.support.pulsar_broker import standalone as pulsar_standalone

import penstock
from penstock.broker.fleet import Process
from penstock.broker.producer import Reply
from penstock.broker.settings import ClusterSettings
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.membership import FORMAT, encode, encode_end
from penstock.engines.kafka.driver.record import NewRecord
from penstock.engines.kafka.records import record_of
from penstock.engines.kafka.serving.state import (
    CLAIM,
    DONE,
    SAVE,
    Claim,
    CursorRecord,
    encode_claim,
    encode_done,
    encode_save,
    slot_of,
)
from penstock.engines.shared.replies import CORRELATION_ID, REPLY_TO, reply_message
from penstock.model.formats import CURSORS, document_format
from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.secret import Secret
from penstock.testing.server import running
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

TOPICS = "/topics/public/default"
ADMIN = "/admin/v2/persistent/public/default"
AVRO = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
FRAMES = {"accept": "application/x-kafka", "content-type": "application/x-kafka"}
WAIT_S = 30.0
PLACES = {
    "documents": "__penstock",
    "parts": "__penstock_parts",
    "staging": "__penstock_staging",
    "commits": "__penstock_commits",
    "journals": "__penstock_journals",
    "replies": "__penstock_replies",
    "messages": "orders",
}


# Of a process of a service, in documents and in messages of the topic `processes`.
SECRET = Secret("the secret of these vectors")
PROCESS = Process(
    id="0123456789abcdef",
    url="http://10.0.0.5:8001",
    pulsar_url="pulsar://10.0.0.5:6651",
    started_ms=1_764_000_000_000,
    version="0.1.0",
)


def process_document() -> bytes:
    return encode(ProcessFleet(SECRET, id=PROCESS.id), PROCESS, "machine")


def process_end() -> bytes:
    return encode_end(ProcessFleet(SECRET, id=PROCESS.id), PROCESS.id)


def asking(http: httpx.Client, method: str, path: str, body: object = None, **more: Any) -> httpx.Response:
    answer = http.request(method, path, json=body, **more)
    assert answer.status_code < 300, (path, answer.status_code, answer.text)
    return answer


def stage(http: httpx.Client) -> None:
    """A batch that is committed, and one that is not."""
    entry = batch_entry(pack_plain([b"a", b"b", b"c"]), 3, producer="p", sequence_id=0, publish_time=1)
    part = b"".join(pack_sections([("persistent://public/default/staged", [entry])]))
    counted = {"stage": "s", "parts": 1, "messages": 3, "size_bytes": len(entry)}
    for batch in (3, 4):
        kind = {"content-type": "application/vnd.penstock.sections"}
        answer = http.put(f"/stages/job/{batch}/s/0", content=part, headers=kind)
        assert answer.status_code < 300, answer.text
    asking(http, "POST", "/stages/job/3/commit", {"stages": [counted]})


def count(http: httpx.Client) -> None:
    """Have byte positions counted, and a checkpoint kept."""
    answer = http.get("/kafka/topics/plain/0", headers={**FRAMES, "range": "bytes=0-"})
    assert answer.status_code == 206, (answer.status_code, answer.text)


def publish(http: httpx.Client) -> None:
    texts = [{"value": f"text {number}"} for number in range(3)]
    asking(http, "POST", f"{TOPICS}/plain", {"messages": texts})
    asking(http, "POST", f"{TOPICS}/staged", {"messages": [{"value": "text first"}]})


# -- Kafka


def kafka() -> dict[str, list[dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder, kafka_standalone(Path(folder)) as cluster:
        settings = ClusterSettings(url=cluster.service_url)
        with running(engine=settings) as server, httpx.Client(base_url=server.url, timeout=60) as http:
            administer(http)
            publish(http)
            stage(http)
            count(http)
            other_processes(cluster.bootstrap)
            made = f"{TOPICS}/orders/subscription/r"
            asking(http, "POST", made, {"subscription_type": "Shared"})
            found = {name: records(cluster.bootstrap, topic) for name, topic in PLACES.items()}
    found["cursors"] = cursors()
    return found


def cursors() -> list[dict[str, Any]]:
    """A journal of cursors, by the code that writes it: a claim, saves, a deletion, and the end of a checkpoint."""
    slots = {slot_of("orders", 0, 64): "t0", slot_of("orders", 1, 64): "t1"}
    whole = CursorRecord("orders", 0, "s", "id-0", 5, {0: b"\x80", 2: b"\x01"}, b'{"team":"a"}')
    change = CursorRecord("orders", 0, "s", "id-0", 8, {0: None})
    other = CursorRecord("orders", 1, "r", "id-0", 3)
    gone = CursorRecord("orders", 1, "r", "", 0, deleted=True)
    rows = [
        (CLAIM, encode_claim(Claim("penstock-x", 64, "p-1", 1, slots))),
        (SAVE, encode_save("p-1", 2, slots, [whole, other])),
        (SAVE, encode_save("p-1", 3, slots, [change, gone])),
        (DONE, encode_done("p-1", 4, slots)),
    ]
    return [
        {
            "partition": 0,
            "offset": offset,
            "key": _text(kind),
            "value": _text(value),
            "headers": [] if kind == CLAIM else [[name, _text(text)] for name, text in CURSORS.headers()],
        }
        for offset, (kind, value) in enumerate(rows)
    ]


def administer(http: httpx.Client) -> None:
    asking(http, "PUT", "/admin/v2/tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
    asking(http, "PUT", "/admin/v2/namespaces/acme/sales", {})
    space = "/admin/v2/namespaces/acme/sales"
    asking(http, "POST", f"{space}/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10})
    asking(http, "POST", f"{space}/permissions/clerk", ["produce"])
    for topic in ("plain", "staged", "orders"):
        asking(http, "PUT", f"{ADMIN}/{topic}")
    asking(http, "PUT", f"{ADMIN}/plain/properties", {"team": "a"})
    asking(http, "POST", f"{ADMIN}/plain/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    schema = {"type": "AVRO", "schema": AVRO, "properties": {}}
    asking(http, "POST", "/admin/v2/schemas/public/default/orders/schema", schema)
    asking(http, "PUT", f"{ADMIN}/plain/subscription/s")
    asking(http, "PUT", f"{ADMIN}/plain/subscription/s/properties", {"owner": "b"})


def every_header() -> list[NewRecord]:
    """Records with all headers that records of Penstock's have."""
    message = OutMessage(
        payload=b"text",
        key=b64encode(b"k").decode(),
        key_is_base64=True,
        properties={"a": "1", "penstock-b": "2", REPLY_TO: "__penstock_replies:0", CORRELATION_ID: "x-1"},
        event_time=1_700_000_000_000,
        deliver_at=1_700_000_000_001,
        sequence_id=7,
        ordering_key=b"o",
        replicate_to=["east"],
        schema_version=3,
    )
    sealed = OutMessage(payload=b"sealed", encryption=Encryption((EncryptionKey("k", b"v"),), b"p"))
    return [record_of(message, "p", numbered=True), record_of(sealed, "p", numbered=True)]


def other_processes(bootstrap: str) -> None:
    """What several processes write to one another, by the code that does."""
    rows = [("fleet", PROCESS.id, msgspec.Raw(process_document()))]
    producer = Producer({"bootstrap.servers": bootstrap})
    for kind, key, document in rows:
        producer.produce(
            PLACES["documents"],
            msgspec.json.encode(document),
            f"{kind}\0{key}".encode(),
            headers=document_format(kind).headers(),
        )
    for record in every_header():
        producer.produce(PLACES["messages"], record.value, record.key, headers=record.headers)
    reply = reply_message(Reply(EARLIEST, b"done", True, 2), "0123456789abcdef-1")
    headers = [(name, value.encode()) for name, value in (reply.properties or {}).items()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(PLACES["replies"], 1)])
    made[PLACES["replies"]].result(WAIT_S)
    producer.produce(PLACES["replies"], reply.payload, headers=headers)
    assert producer.flush(WAIT_S) == 0


def records(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    """All records of a topic, those of transactions that were not committed left out."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "vectors",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[dict[str, Any]] = []
    partitions = list(consumer.list_topics(topic, WAIT_S).topics[topic].partitions)
    assert partitions, topic
    for number in partitions:
        consumer.assign([TopicPartition(topic, number, 0)])
        while True:
            record = consumer.poll(WAIT_S)
            assert record is not None, topic
            error = record.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            found.append(
                {
                    "partition": number,
                    "offset": record.offset(),
                    "key": _text(record.key()),
                    "value": _text(record.value()),
                    "headers": [[name, _text(value)] for name, value in record.headers() or ()],
                }
            )
    consumer.close()
    return found


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


# -- Pulsar


def pulsar() -> dict[str, list[dict[str, Any]]]:
    settings = {**NUMBERED, "transactionCoordinatorEnabled": "true"}
    with (
        tempfile.TemporaryDirectory() as folder,
        pulsar_standalone(Path(folder), settings) as cluster,
    ):
        engine = ClusterSettings(
            url=cluster.service_url, admin_url=cluster.admin_url, staging_namespace="public/staged"
        )
        with running(engine=engine) as server, httpx.Client(base_url=server.url, timeout=60) as http:
            publish(http)
            stage(http)
            count(http)
        reply = reply_message(Reply(EARLIEST, b"done", True, 2), "0123456789abcdef-1")
        with penstock.Client(cluster.service_url) as client:
            return {
                "batch": messages(client, "persistent://public/staged/job.4"),
                "writer": messages(client, "persistent://public/staged/job.log"),
                "journals": messages(client, "persistent://public/penstock/default~plain.positions"),
                "replies": [{"value": _text(reply.payload), "properties": reply.properties}],
                "processes": [
                    {"value": _text(document), "properties": FORMAT.properties()}
                    for document in (process_document(), process_end())
                ],
            }


def messages(client: penstock.Client, topic: str) -> list[dict[str, Any]]:
    """All messages of a topic."""
    reader = client.create_reader(topic, penstock.MessageId.earliest)
    found: list[dict[str, Any]] = []
    while reader.has_message_available():
        message = reader.read_next(30_000)
        found.append({"value": _text(message.data()), "properties": message.properties()})
    reader.close()
    return found


if __name__ == "__main__":
    made = {"kafka": kafka, "pulsar": pulsar}[sys.argv[1]]()
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n")

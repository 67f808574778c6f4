"""The schema registry of services before real clusters: any process answers, and one id is given to one schema."""

import itertools
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.rest_proxy import Proxy
from tests.support.service import Service

JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def avro(name: str, *fields: str) -> str:
    inner = [{"name": one, "type": ["null", "string"], "default": None} for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": inner}, separators=(",", ":"))


class Registries:
    """The registry at each process of a service."""

    def __init__(self, service: Service) -> None:
        self.clients = [
            httpx.Client(base_url=f"{node.url}/registry", timeout=60, headers=JSON) for node in service.nodes
        ]

    def ask(self, at: int, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = self.clients[at].request(method, path, **more)
        assert answer.status_code == status, (at, method, path, answer.text)
        return answer.json()

    def register(self, at: int, subject: str, schema: str, **more: Any) -> int:
        found: int = self.ask(at, "POST", f"/subjects/{subject}/versions", json={"schema": schema, **more})[
            "id"
        ]
        return found

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture(scope="module", params=["kafka", "pulsar"])
def service(request: pytest.FixtureRequest) -> Service:
    found: Service = request.getfixturevalue(f"{request.param}_service")
    return found


@pytest.fixture
def registries(service: Service) -> Iterator[Registries]:
    made = Registries(service)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    return f"r{uuid4().hex[:10]}"


def test_what_one_process_writes_all_answer(registries: Registries, name: str) -> None:
    first = registries.register(0, f"{name}-x", avro("A", "a"))
    for at in range(3):
        assert registries.ask(at, "GET", f"/schemas/ids/{first}") == {"schema": avro("A", "a")}
        assert registries.ask(at, "GET", f"/subjects/{name}-x/versions") == [1]
        assert registries.register(at, f"{name}-x", avro("A", "a")) == first
    assert registries.ask(2, "PUT", f"/config/{name}-x", json={"compatibility": "NONE"}) == {
        "compatibility": "NONE"
    }
    assert registries.ask(1, "GET", f"/config/{name}-x") == {"compatibilityLevel": "NONE"}
    second = registries.register(1, f"{name}-x", '"int"')
    assert registries.ask(0, "GET", f"/subjects/{name}-x/versions/latest")["id"] == second
    assert registries.ask(2, "DELETE", f"/subjects/{name}-x") == [1, 2]
    assert registries.ask(0, "GET", f"/subjects/{name}-x/versions", 404)["error_code"] == 40401
    assert registries.ask(1, "DELETE", f"/subjects/{name}-x?permanent=true") == [1, 2]
    assert registries.ask(2, "GET", f"/subjects/{name}-x/versions?deleted=true", 404)["error_code"] == 40401


def together(work: Callable[[int], Any], count: int) -> list[Any]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_processes_that_register_at_once_give_one_id(registries: Registries, name: str) -> None:
    same = avro(name, "a")
    found = together(lambda at: registries.register(at % 3, f"{name}-same{at % 2}", same), 12)
    assert len(set(found)) == 1
    assert registries.ask(0, "GET", f"/schemas/ids/{found[0]}/versions") == [
        {"subject": f"{name}-same0", "version": 1},
        {"subject": f"{name}-same1", "version": 1},
    ]


def test_different_schemas_at_once_have_different_ids(registries: Registries, name: str) -> None:
    found = together(
        lambda at: registries.register(at % 3, f"{name}-{at % 4}", avro(name, f"f{at // 4}")), 12
    )
    assert len(set(found)) == 3, found
    for at, number in itertools.product(range(3), sorted(set(found))):
        assert len(registries.ask(at, "GET", f"/schemas/ids/{number}/versions")) == 4
    versions = [registries.ask(at, "GET", f"/subjects/{name}-{at}/versions") for at in range(3)]
    assert versions == [[1, 2, 3]] * 3


def test_schemas_of_topics_are_versions_of_their_subjects(service: Service, registries: Registries) -> None:
    topic = service.new_topic()
    subject = f"{topic}-value"
    one, two = avro("R", "a"), avro("R", "a", "b")
    body = {"value_schema": {"type": "AVRO", "schema": one}, "messages": [{"value": {"a": "x"}}]}
    service.ask(0, "POST", f"/topics/public/default/{topic}", json=body)
    for at in range(3):
        found = registries.ask(at, "GET", f"/subjects/{subject}/versions/latest")
        assert (found["version"], json.loads(found["schema"])) == (1, json.loads(one))
    number = registries.register(1, subject, two)
    assert registries.ask(2, "GET", f"/schemas/ids/{number}") == {"schema": two}
    schemas = service.ask(0, "GET", f"/admin/v2/schemas/public/default/{topic}/schemas")["getSchemaResponses"]
    assert [json.loads(each["data"]) for each in schemas] == [json.loads(one), json.loads(two)]
    assert registries.ask(0, "GET", f"/subjects/{subject}/versions") == [1, 2]
    body = {"schema_version": 1, "messages": [{"value": {"a": "y", "b": "z"}}]}
    service.ask(2, "POST", f"/topics/public/default/{topic}", json=body)
    path = f"/topics/public/default/{topic}/partitions/0/messages?include_schema=true"
    found = service.ask(1, "GET", path)["messages"]
    assert [(each["value"], each["schema_version"]) for each in found] == [
        ({"a": "x"}, 0),
        ({"a": "y", "b": "z"}, 1),
    ]


def test_a_subject_of_a_topic_that_does_not_exist(registries: Registries, name: str) -> None:
    number = registries.register(0, f"{name}-value", avro("R", "a"))
    assert registries.ask(1, "GET", f"/subjects/{name}-value/versions/1")["id"] == number


def test_serializers_through_the_rest_proxy(service: Service, registries: Registries) -> None:
    topic = service.new_topic()
    context = SerializationContext(topic, MessageField.VALUE)
    with (
        closing(SchemaRegistryClient({"url": f"{service.nodes[0].url}/registry"})) as client,
        Proxy(*(f"{node.url}/rest" for node in service.nodes)) as proxy,
    ):
        first = AvroSerializer(client, avro("R", "a"))({"a": "x"}, context)
        odd = b"\0\0\1\0\0bytes"
        given = [{"value": b64encode(each).decode()} for each in (first, first, odd)]
        proxy.produce(topic, given, "binary")
        schema = {"type": "AVRO", "schema": avro("R", "a", "b")}
        body = {"value_schema": schema, "messages": [{"value": {"a": "y", "b": "z"}}]}
        service.ask(1, "POST", f"/topics/public/default/{topic}", json=body)
        instance = proxy.consumer(f"{topic}-binary", "binary")
        instance.subscribe(topic)
        found = [b64decode(one) for one in instance.values(4)]
        instance.delete()
        assert found[:3] == [first, first, odd]
        read = AvroDeserializer(client)
        assert read(found[0], context) == {"a": "x"}
        assert read(found[3], context) == {"a": "y", "b": "z"}
    path = f"/topics/public/default/{topic}/partitions/0/messages?include_schema=true"
    messages = service.ask(2, "GET", path)["messages"]
    assert [one["value"] for one in messages[:2]] == [{"a": "x"}] * 2
    assert [one["schema_version"] for one in messages] == [0, 0, None, 1]

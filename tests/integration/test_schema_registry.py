"""The schema registry's API, as its clients use it, and beside Pulsar's own schemas."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import httpx
import pulsar
import pytest
from confluent_kafka.schema_registry import (
    AsyncSchemaRegistryClient,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry._async.avro import AsyncAvroDeserializer, AsyncAvroSerializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pulsar.schema import AvroSchema, Integer, Record
from tests.support.auth import AUDIENCE, headers_of, issuer, token
from tests.support.server import ThreadedServer

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.schema_registry.client import RegistryClient
from penstock.model.subjects import topic_of
from penstock.testing.server import Running, running

JSON = "application/vnd.schemaregistry.v1+json"
FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "number", "type": "int"}]}
LATER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "carrier", "type": "string", "default": ""}]}  # type: ignore[misc]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(settings={"registry": {"listen": "127.0.0.1:0"}}) as address:
        yield address


@pytest.fixture
def client(server: Running) -> Iterator[SchemaRegistryClient]:
    with closing(
        SchemaRegistryClient({"url": server.registry_url})
    ) as made:  # which has `close`, and no `with`
        yield made


@pytest.fixture
def http(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.registry_url, trust_env=False) as made:
        yield made


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def given(schema: Any, **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


def test_serializers_of_the_official_client(client: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(client, json.dumps(FLIGHT))
    framed = serialize({"number": 5}, context("air"))
    assert framed is not None
    assert framed[0] == 0
    assert AvroDeserializer(client)(framed, context("air")) == {"number": 5}
    later = AvroSerializer(client, json.dumps(LATER))({"number": 5, "carrier": "UA"}, context("air"))
    assert AvroDeserializer(client)(later, context("air")) == {"number": 5, "carrier": "UA"}
    assert client.get_versions("air-value") == [1, 2]
    shape = json.dumps({"title": "T", "type": "object", "properties": {"x": {"type": "integer"}}})
    framed = JSONSerializer(shape, client)({"x": 1}, context("sea"))
    assert JSONDeserializer(shape, schema_registry_client=client)(framed, context("sea")) == {"x": 1}


async def test_serializers_of_the_asynchronous_client(server: Running) -> None:
    async with AsyncSchemaRegistryClient({"url": server.registry_url}) as client:
        serialize = await AsyncAvroSerializer(client, json.dumps(FLIGHT))
        framed = await serialize({"number": 5}, context("loop"))
        deserialize = await AsyncAvroDeserializer(client)
        assert await deserialize(framed, context("loop")) == {"number": 5}
        assert await client.get_versions("loop-value") == [1]
        assert await client.delete_subject("loop-value") == [1]


def test_calls_of_the_official_client(client: SchemaRegistryClient) -> None:
    first = client.register_schema("calls", Schema(json.dumps(FLIGHT), "AVRO"))
    assert client.get_schema(first).schema_type == "AVRO"
    assert client.lookup_schema("calls", Schema(json.dumps(FLIGHT), "AVRO")).version == 1
    wrong = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "carrier", "type": "string"}]}  # type: ignore[misc]
    assert not client.test_compatibility("calls", Schema(json.dumps(wrong), "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        client.register_schema("calls", Schema(json.dumps(wrong), "AVRO"))
    assert (caught.value.http_status_code, caught.value.error_code) == (409, 409)
    reference = SchemaReference("Flight", "calls", 1)
    using = Schema('{"type": "array", "items": "Flight"}', "AVRO", [reference])
    assert client.register_schema("using", using) > first
    with pytest.raises(SchemaRegistryError) as caught:
        client.delete_subject("calls")
    assert caught.value.error_code == 42206
    assert client.delete_subject("using") == [1]
    assert client.delete_subject("calls") == [1]
    assert client.delete_subject("calls", permanent=True) == [1]
    assert client.get_compatibility() == "BACKWARD"
    assert client.set_compatibility("calls", "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility("calls") == "FULL"


class Flight(Record):  # type: ignore[misc]
    number = Integer(required=True)


def test_a_topic_and_its_subject_have_the_same_schemas(server: Running, client: SchemaRegistryClient) -> None:
    with closing(pulsar.Client(server.pulsar)) as official:
        official.create_producer("planes", schema=AvroSchema(Flight)).send(Flight(number=5))
        found = client.get_latest_version("planes-value")
        assert found.schema is not None
        assert json.loads(found.schema.schema_str or "")["name"] == "Flight"
        later = client.register_schema("planes-value", Schema(json.dumps(LATER), "AVRO"))
        answer = httpx.get(f"{server.url}/admin/v2/schemas/public/default/planes/schema", trust_env=False)
        assert json.loads(answer.json()["data"]) == LATER
        assert answer.json()["version"] == 1
        newest = type(
            "Flight",
            (Record,),
            {
                "number": Integer(required=True),
                "seat": Integer(required=True, default=0, required_default=True),
            },
        )
        official.create_producer("planes", schema=AvroSchema(newest)).send(newest(number=5, seat=1))
    assert client.get_versions("planes-value") == [1, 2, 3]
    assert (client.get_version("planes-value", 3).schema_id or 0) > later
    client.delete_subject("planes-value")
    assert (
        httpx.get(f"{server.url}/admin/v2/schemas/public/default/planes/schema", trust_env=False).status_code
        == 404
    )


def test_a_schema_deleted_from_its_topic_is_deleted_from_the_subject(
    server: Running, http: httpx.Client
) -> None:
    assert http.post("/subjects/gone-value/versions", json=given(FLIGHT)).status_code == 200
    path = f"{server.url}/admin/v2/schemas/public/default/gone/schema"
    assert httpx.delete(path, trust_env=False).status_code == 200
    assert http.get("/subjects/gone-value/versions").json()["error_code"] == 40401
    assert http.get("/subjects/gone-value/versions", params={"deleted": True}).json() == [1]
    assert http.post("/subjects/gone-value/versions", json=given(FLIGHT)).status_code == 200
    assert http.get("/subjects/gone-value/versions").json() == [2]
    assert httpx.get(path, trust_env=False).json()["version"] == 2


def test_a_topic_made_again_has_new_versions(server: Running, http: httpx.Client) -> None:
    topic = f"{server.url}/admin/v2/persistent/public/default/again"
    schemas = f"{server.url}/admin/v2/schemas/public/default/again/schema"
    for turn, schema in enumerate((FLIGHT, {**FLIGHT, "name": "Other"}), 1):
        assert httpx.put(topic, trust_env=False).status_code == 204
        body = {"type": "AVRO", "schema": json.dumps(schema), "properties": {}}
        assert httpx.post(schemas, json=body, trust_env=False).status_code == 200
        found = http.get("/subjects/again-value/versions/latest").json()
        assert (found["version"], json.loads(found["schema"])) == (turn, schema)
        assert httpx.delete(topic, trust_env=False).status_code == 204
        assert http.get("/subjects/again-value/versions").status_code == 404


def test_a_version_deleted_for_good_does_not_come_back(server: Running, http: httpx.Client) -> None:
    for schema in (FLIGHT, LATER):
        assert http.post("/subjects/some-value/versions", json=given(schema)).status_code == 200
    for permanent in (False, True):
        assert http.delete("/subjects/some-value/versions/1", params={"permanent": permanent}).json() == 1
    newest = {**LATER, "fields": [*LATER["fields"], {"name": "seat", "type": "int", "default": 0}]}
    assert http.post("/subjects/some-value/versions", json=given(newest)).status_code == 200
    assert http.get("/subjects/some-value/versions").json() == [2, 3]


def test_a_topic_has_one_subject(http: httpx.Client) -> None:
    for name in (
        "persistent%3A%2F%2Fpublic%2Fdefault%2Fone-value",
        "public%2Fdefault%2Fone-value",
        "one-partition-3-value",
    ):
        assert http.post(f"/subjects/{name}/versions", json=given("int")).status_code == 200
    assert "one-value" not in http.get("/subjects").json()


def test_topics_of_other_namespaces_have_full_names(server: Running, http: httpx.Client) -> None:
    schema = {"type": "JSON", "schema": json.dumps(FLIGHT), "properties": {}}
    assert httpx.put(f"{server.url}/admin/v2/namespaces/public/other", trust_env=False).status_code == 204
    path = f"{server.url}/admin/v2/schemas/public/other/cars/schema"
    assert httpx.post(path, json=schema, trust_env=False).status_code == 200
    subject = "persistent://public/other/cars-value"
    assert subject in http.get("/subjects").json()
    found = http.get(f"/subjects/{subject.replace('/', '%2F')}/versions/latest").json()
    assert found["schemaType"] == "JSON"
    assert json.loads(found["schema"])["properties"] == {"number": {"type": "integer"}}


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("*/*", 200),
        ("application/vnd.schemaregistry+json;q=0.5, text/html", 200),
        ("text/*", 406),
        ("*/does_not_matter", 200),
        ("application/octet-stream", 406),
    ],
)
def test_content_types_of_answers(http: httpx.Client, accept: str, status: int) -> None:
    answer = http.get("/subjects", headers={"accept": accept})
    assert answer.status_code == status
    assert answer.headers["content-type"] == (accept.partition(";")[0] if "json" in accept else JSON)


@pytest.mark.parametrize(
    ("kind", "content", "status", "code"),
    [
        ("text/plain", b"{}", 415, 415),
        (JSON, b"{", 400, 400),
        (JSON, b"[]", 422, 422),
        (JSON, b"{}", 422, 422),
        (JSON, b'{"schema": ""}', 422, 42201),
        (JSON, b'{"schema": "{"}', 422, 42201),
        (JSON, b'{"schema": "\\"int\\"", "schemaType": "THRIFT"}', 422, 42201),
        (JSON, b"\xff", 400, 400),
        (f"{JSON}; charset=punycode", b"{}", 415, 415),
        (f"{JSON}; charset=utf-16", '{"schema": ""}'.encode("utf-16"), 422, 42201),
    ],
)
def test_bad_bodies_change_nothing(
    http: httpx.Client, kind: str, content: bytes, status: int, code: int
) -> None:
    before = http.get("/subjects").json()
    answer = http.post("/subjects/bad/versions", content=content, headers={"content-type": kind})
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert http.get("/subjects").json() == before


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, 404),
        ("PUT", "/subjects", 405, 405),
        ("GET", "/schemas/ids/x", 404, 404),
        ("GET", "/schemas/ids/123456", 404, 40403),
        ("GET", "/subjects/none/versions", 404, 40401),
        ("GET", "/subjects/none/versions/0", 422, 42202),
        ("GET", "/config/none", 404, 40408),
        ("GET", "/mode/none", 404, 40409),
        ("DELETE", "/subjects/none", 404, 40401),
    ],
)
def test_codes(http: httpx.Client, method: str, path: str, status: int, code: int) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code)
    assert answer.headers["content-type"] == JSON


def test_paths(server: Running, http: httpx.Client) -> None:
    assert http.get("/").json() == {}
    assert http.get("/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    assert http.post("/subjects/a%2Fb/versions/", json=given("int")).status_code == 200
    assert http.get("/subjects/a%2Fb/versions/1/schema").text == '"int"'
    assert http.post("/contexts/.dev/subjects/x/versions", json=given("int")).json() == {"id": 1}
    assert http.get("/contexts").json() == [".", ".dev"]
    for name in (".dev", ":.dev:", "dev"):
        assert http.get(f"/contexts/{name}/schemas/ids/1").json() == {"schema": '"int"'}
    assert http.get("/subjects", params={"subjectPrefix": ":*:"}).json().count(":.dev:x") == 1
    assert http.get("/schemas/ids/1", params={"subject": ":.dev:", "fetchMaxId": True}).status_code == 200
    for subject in (":.dev:", ":.dev:x"):
        found = http.get("/schemas/ids/1/versions", params={"subject": subject}).json()
        assert found == [{"subject": ":.dev:x", "version": 1}]


def test_reads_by_id_follow_the_registry(http: httpx.Client) -> None:
    made = http.post("/contexts/.kept/subjects/a/versions", json=given("int")).json()["id"]
    path = f"/contexts/.kept/schemas/ids/{made}"

    def read(**headers: str) -> tuple[int, Any, str]:
        answer = http.get(path, params={"fetchMaxId": True}, headers=headers)
        return answer.status_code, answer.json().get("maxId"), answer.headers["content-type"]

    for _ in range(2):
        assert read() == (200, 1, JSON)
        assert read(accept="application/json") == (200, 1, "application/json")
        assert read(accept="text/html")[0] == 406
    http.post("/contexts/.kept/subjects/b/versions", json=given("long"))
    assert read() == (200, 2, JSON)
    for permanent in (False, True):
        assert read()[0] == 200
        http.delete("/contexts/.kept/subjects/a", params={"permanent": permanent})
    assert read()[0] == 404


def test_the_registry_has_its_own_port(server: Running) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.own_ports[0]}", trust_env=False) as http:
        assert http.get("/subjects").status_code == 200
        assert http.get("/registry/subjects").json()["error_code"] == 404
        assert http.get("/admin/v2/tenants").json()["error_code"] == 404


def test_the_javascript_client(server: Running, http: httpx.Client) -> None:
    command = ["node", str(Path(__file__).parents[1] / "js" / "registry.mjs"), server.registry_url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [
        {"type": kind, "framing": 0, "drink": "tea", "known": True} for kind in ("AVRO", "JSON", "PROTOBUF")
    ]
    assert http.get("/config/js-AVRO-value").json() == {"compatibilityLevel": "FULL"}


def test_schemas_outlast_the_server(tmp_path: Path) -> None:
    for versions in ([1], [1, 2]):
        with running(tmp_path) as server, httpx.Client(base_url=server.registry_url, trust_env=False) as http:
            schema = FLIGHT if versions == [1] else LATER
            assert http.post("/subjects/kept-value/versions", json=given(schema)).json() == {
                "id": versions[-1]
            }
            assert http.get("/subjects/kept-value/versions").json() == versions


class Configured(RegistryClient):
    """A registry that is configured, as the engine before Kafka has it."""

    topic_of = staticmethod(topic_of)


@contextmanager
def configured_at(server: ThreadedServer, url: str) -> Iterator[None]:
    """Have another registry answer a server's requests."""
    made = Configured(ClusterSettings(schema_registry=url))
    cast(Any, server.broker).other_registry = made
    yield
    server.run(made.close())


@pytest.mark.parametrize("configured", [False, True])
def test_roles(*, configured: bool) -> None:
    auth = issuer.settings(audience=AUDIENCE, super_users=("root",), leeway_s=0)
    with (
        ThreadedServer.running(auth=auth) as server,
        running() as other,
        configured_at(server, other.registry_url) if configured else nullcontext(),
    ):
        url = f"{server.url}/registry"
        grants = f"{server.url}/admin/v2/persistent/public/default/orders/permissions"

        def ask(role: str, method: str, path: str, **more: Any) -> int:
            return httpx.request(
                method, url + path, headers=headers_of(token(role)), trust_env=False, **more
            ).status_code

        assert httpx.get(f"{url}/subjects", trust_env=False).status_code == 401
        assert ask("root", "POST", "/subjects/orders-value/versions", json=given(FLIGHT)) == 200
        assert ask("root", "POST", "/subjects/other-value/versions", json=given("int")) == 200
        root = headers_of(token("root"))
        httpx.put(f"{server.url}/admin/v2/persistent/public/default/orders", headers=root, trust_env=False)
        for role, actions in (("reader", ["consume"]), ("writer", ["produce"])):
            assert (
                httpx.post(f"{grants}/{role}", json=actions, headers=root, trust_env=False).status_code == 204
            )
        for role in ("reader", "writer"):
            assert ask(role, "GET", "/subjects/orders-value/versions/latest") == 200
            assert ask(role, "GET", "/schemas/ids/1") == 200
            assert ask(role, "GET", "/schemas/ids/2") == 404
            assert ask(role, "GET", "/subjects/other-value/versions") == 403
            compared = "/compatibility/subjects/other-value/versions/1?verbose=true"
            assert ask(role, "POST", compared, json=given("string")) == 403
            assert ask(role, "DELETE", "/subjects/orders-value") == 403
            assert ask(role, "PUT", "/config", json={"compatibility": "NONE"}) == 403
        assert httpx.delete(f"{grants}/reader", headers=root, trust_env=False).status_code == 204
        assert ask("reader", "GET", "/schemas/ids/1") == 404
        assert ask("writer", "GET", "/schemas/ids/1") == 200
        httpx.post(f"{grants}/reader", json=["consume"], headers=root, trust_env=False)
        assert ask("reader", "POST", "/subjects/orders-value/versions", json=given(LATER)) == 403
        assert ask("writer", "POST", "/subjects/orders-value/versions", json=given(LATER)) == 200
        reference = [{"name": "x", "subject": "other-value", "version": 1}]
        assert ask("writer", "POST", "/subjects/orders-value", json=given("x", references=reference)) == 422
        assert ask("writer", "GET", "/schemas/ids/2/versions") == 404
        assert ask("writer", "PUT", "/mode/orders-value", json={"mode": "IMPORT"}) == 403
        answer = httpx.get(f"{url}/subjects", headers=headers_of(token("reader")), trust_env=False)
        assert answer.json() == ["orders-value"]
        assert ask("nobody", "GET", "/subjects/orders-value/versions") == 403
        for kind in ("int", "long", "float", "double"):
            path = f"/contexts/.dev/subjects/{kind}/versions"
            assert ask("root", "POST", path, json=given(kind)) == 200
        for number in (1, 4):  # the default context has no schema 4
            assert ask("reader", "GET", f"/schemas/ids/{number}?subject=:.dev:") == 200
            assert ask("nobody", "GET", f"/schemas/ids/{number}?subject=:.dev:") == 404
        theirs = httpx.get(f"{other.registry_url}/subjects", trust_env=False).json()
        assert theirs == (["orders-value", "other-value"] if configured else [])


def test_requests_that_a_configured_registry_answers(client: SchemaRegistryClient, server: Running) -> None:
    """The answers are its own, and nothing else of its address can be reached."""
    with ThreadedServer.running() as first, configured_at(first, server.registry_url):
        url = f"{first.url}/registry"
        with closing(SchemaRegistryClient({"url": url})) as passed:
            number = passed.register_schema("passed/on", Schema(json.dumps(FLIGHT), "AVRO"))
            assert client.get_latest_version("passed/on").schema_id == number
            assert passed.get_schema(number).schema_str == json.dumps(FLIGHT, separators=(",", ":"))
            assert "passed/on" in passed.get_subjects()
            with pytest.raises(SchemaRegistryError) as caught:
                passed.register_schema("passed/on", Schema("wrong", "AVRO"))
            assert (caught.value.http_status_code, caught.value.error_code) == (422, 42201)
            assert passed.set_compatibility("passed/on", "NONE") == {"compatibility": "NONE"}
            assert passed.delete_subject("passed/on") == [1]
        for path in ("/subjects/..%2F..%2Fadmin/versions", "/subjects/%2E%2E/versions", "/exporters"):
            assert httpx.get(url + path, trust_env=False).status_code == 404, path


def test_a_configured_registry_that_is_away() -> None:
    with ThreadedServer.running() as first, configured_at(first, "http://127.0.0.1:1"):
        answer = httpx.get(f"{first.url}/registry/subjects", trust_env=False)
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50001)

"""Which schemas a topic takes, told through admin, REST and WebSocket; and nothing half stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.schemas import A, B, C, Endpoints, avro, b64, record

from penstock.broker.settings import BrokerSettings
from penstock.testing.server import Address, running

SETTINGS = BrokerSettings(max_schema_bytes=20_000, max_message_bytes=10_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(broker=SETTINGS) as address:
        yield address


@pytest.fixture
def http(server: Address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def endpoints(server: Address, http: httpx.Client) -> Endpoints:
    return Endpoints(server, http)


def apart(server: Address, http: httpx.Client, namespace: str) -> Endpoints:
    """A topic in a namespace of its own, for its policies."""
    http.put(f"/admin/v2/namespaces/public/{namespace}")
    return Endpoints(server, http, namespace)


OPTIONAL = {**C, "default": "c"}
BACK = [[A], [A, OPTIONAL], [A, C]]  # the last reads the second and not the first
AHEAD = BACK[::-1]  # the last can be read by the second and not by the first


@pytest.mark.parametrize(
    ("strategy", "back", "ahead"),
    [
        ("UNDEFINED", 3, 3),
        ("ALWAYS_INCOMPATIBLE", 1, 1),
        ("ALWAYS_COMPATIBLE", 3, 3),
        ("BACKWARD", 3, 3),
        ("FORWARD", 3, 3),
        ("FULL", 3, 3),
        ("BACKWARD_TRANSITIVE", 2, 3),
        ("FORWARD_TRANSITIVE", 3, 2),
        ("FULL_TRANSITIVE", 2, 2),
    ],
)
def test_strategies(server: Address, http: httpx.Client, strategy: str, back: int, ahead: int) -> None:
    for taken, steps in ((back, BACK), (ahead, AHEAD)):
        endpoints = apart(server, http, strategy.lower().replace("_", "-"))
        endpoints.policy("schemaCompatibilityStrategy", strategy)
        for number, fields in enumerate(steps):
            endpoints.register(record(*fields), status=200 if number < taken else 409)
            # REST and WebSocket judge as admin does
            values = [{"a": 1, "c": "x"} if len(fields) > 1 else {"a": 1}]
            status = 200 if number < taken else 409
            endpoints.publish(status, value_schema=avro(*fields), messages=[{"value": v} for v in values])
            payload = b64(b"\2\2x" if len(fields) > 1 else b"\2")
            (answer,) = endpoints.frames({"payload": payload, "valueSchema": avro(*fields)})
            assert (answer["result"] == "ok") is (number < taken)
        assert len(endpoints.versions()) == taken


def test_where_schemas_do_not_change_by_themselves(server: Address, http: httpx.Client) -> None:
    endpoints = apart(server, http, "fixed")
    endpoints.policy("isAllowAutoUpdateSchema", False)
    refused = endpoints.publish(409, value_schema=avro(A), messages=[{"value": {"a": 1}}])
    assert "auto updating is disabled" in refused["message"]
    assert http.get("/admin/v2/persistent/public/fixed").json() == []  # no topic was made for it
    endpoints.register(record(A))  # an administrator may
    endpoints.publish(value_schema=avro(A), messages=[{"value": {"a": 1}}])
    endpoints.publish(409, value_schema=avro(A, B), messages=[{"value": {"a": 1}}])
    (answer,) = endpoints.frames({"payload": b64(b"\2\2x"), "valueSchema": avro(A, B)})
    assert "auto updating is disabled" in answer["errorMsg"]
    assert len(endpoints.versions()) == 1


def test_where_schemas_are_enforced(server: Address, http: httpx.Client) -> None:
    endpoints = apart(server, http, "enforced")
    endpoints.policy("schemaValidationEnforced", True)
    endpoints.publish(schema_type="bytes", messages=[{"value": "AA=="}])  # no schema yet
    endpoints.register(record(A), status=200)
    endpoints.publish(409, schema_type="bytes", messages=[{"value": "AA=="}])
    endpoints.publish(409, encoding="base64", messages=[{"value": "Ag=="}])
    bare, typed = endpoints.frames({"payload": "Ag=="}, {"payload": "Ag==", "schemaVersion": 0})
    assert (bare["result"] == "ok", typed["result"] == "ok") == (False, True)
    assert endpoints.values_and_versions() == [("AA==", None), ({"a": 1}, 0)]


@pytest.mark.parametrize(
    ("status", "code", "path", "message"),
    [
        (413, 41301, "", {"value": {"c": "x" * 11_000}}),
        (404, 40402, "", {"value": {"c": "x"}, "partition": 3}),
        (404, 40402, "/partitions/1", {"value": {"c": "x"}}),
        (422, 42205, "", {"value": {"c": 5}}),
        (422, 42205, "", {"value": {"c": "x"}, "deliverAt": 1, "deliverAfterMs": 1}),
        (422, 42205, "", {"value": {"c": "x"}, "key": 5}),
    ],
)
def test_a_request_that_stores_nothing_makes_nothing(
    endpoints: Endpoints, status: int, code: int, path: str, message: dict[str, Any]
) -> None:
    refused = endpoints.publish(status, path, value_schema=avro(C), messages=[message])
    assert refused["error_code"] == code
    assert endpoints.versions() == []
    topics = endpoints.http.get("/admin/v2/persistent/public/default").json()
    assert not [name for name in topics if name.endswith(endpoints.name)]


def test_only_schemas_that_are_used_are_registered(endpoints: Endpoints) -> None:
    answer = endpoints.publish(
        messages=[
            {"value": {"c": "x" * 11_000}, "value_schema": avro(C)},
            {"value": {"a": 1}, "value_schema": avro(A)},
            {"value": {"a": "1"}, "value_schema": avro(A, B)},
            {"value": {"a": 1}, "value_schema": avro(A, B), "partition": 1},
        ]
    )
    assert [slot["messageId"] is not None for slot in answer["messageIds"]] == [False, True, False, False]
    assert [json.loads(version["data"]) for version in endpoints.versions()] == [record(A)]


def test_a_terminated_topic_gets_no_schemas(endpoints: Endpoints) -> None:
    endpoints.publish(value_schema=avro(A), messages=[{"value": {"a": 1}}])
    endpoints.http.post(f"/admin/v2/persistent/public/default/{endpoints.name}/terminate")
    endpoints.publish(503, value_schema=avro(A, B), messages=[{"value": {"a": 1}}])
    assert len(endpoints.versions()) == 1


HUGE = "x" * 25_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "AVRO", "schema": {**record(A), "doc": HUGE}},
        {"type": "AVRO", "schema": record(A), "properties": {"more": HUGE}},
        {"type": "AVRO", "schema": record(A), "name": HUGE},
        {"type": "AVRO", "schema": record(A, A)},
        {"type": "AVRO", "schema": record({"name": "a", "type": record(A)})},
        {"type": "AVRO", "schema": '{"type": "array", "items": ' * 600 + '"int"' + "}" * 600},
        {"type": "JSON", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        {"type": "PROTOBUF_NATIVE", "schema": "{}"},
    ],
)
def test_schemas_that_cannot_be(endpoints: Endpoints, schema: dict[str, Any]) -> None:
    refused = endpoints.publish(422, value_schema=schema, messages=[{"value": {"a": 1}}])
    assert refused["error_code"] == 42204
    refused = endpoints.publish(
        422, key_schema=schema, value_schema={"type": "INT32"}, messages=[{"key": {"a": 1}, "value": 1}]
    )
    assert refused["error_code"] in (42203, 42204)  # 42204: a pair that is too large as a whole
    text = schema["schema"] if isinstance(schema["schema"], str) else json.dumps(schema["schema"])
    body = {"properties": {}, **schema, "schema": text}
    assert endpoints.http.post(f"{endpoints.admin}/schema", json=body).status_code == 422
    (answer,) = endpoints.frames({"payload": "Ag==", "valueSchema": schema})
    assert answer["result"].startswith("send-error")
    assert endpoints.versions() == []


def test_a_definition_where_there_is_none(endpoints: Endpoints) -> None:
    body: dict[str, Any] = {"type": "STRING", "schema": '{"type": "string"}', "properties": {}}
    refused = endpoints.http.post(f"{endpoints.admin}/schema", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42204)
    pair = {"key": record(A), "value": record(A)}
    body = {"type": "KEY_VALUE", "schema": json.dumps(pair), "properties": {"key.schema.type": "AVRO"}}
    refused = endpoints.http.post(f"{endpoints.admin}/schema", json=body)
    assert refused.status_code == 422
    assert "value.schema.type" in refused.json()["message"]
    assert endpoints.versions() == []


def test_texts_of_any_client_are_one_version(endpoints: Endpoints) -> None:
    body = {"type": "STRING", "schema": "null", "properties": {}}  # as Python's client registers it
    assert endpoints.http.post(f"{endpoints.admin}/schema", json=body).status_code == 200
    assert endpoints.publish(schema_type="string", messages=[{"value": "é"}])["schema_version"] == 0
    assert endpoints.publish(messages=[{"value": "é"}])["schema_version"] == 0
    latin = {"type": "STRING", "properties": {"__charset": "ISO-8859-1"}}
    assert endpoints.publish(value_schema=latin, messages=[{"value": "é"}])["schema_version"] == 1
    assert endpoints.values_and_versions() == [("é", 0), ("é", 0), ("é", 1)]

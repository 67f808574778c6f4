"""Which schemas a topic takes, told through admin, REST and WebSocket; and nothing half stored."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.integration.schemas_harness import A, B, C, Doors, avro, b64, record

from penstock.engines.embedded.settings import BrokerSettings
from penstock.testing.server import Address, running

SETTINGS = BrokerSettings(max_schema_bytes=20_000, max_message_bytes=10_000)


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(broker=SETTINGS) as address:
        yield address


@pytest.fixture
def http(server: Address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=20) as client:
        yield client


@pytest.fixture
def doors(server: Address, http: httpx.Client) -> Doors:
    return Doors(server, http)


def apart(server: Address, http: httpx.Client, namespace: str) -> Doors:
    """A topic in a namespace of its own, for its policies."""
    http.put(f"/admin/v2/namespaces/public/{namespace}")
    return Doors(server, http, namespace)


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
        doors = apart(server, http, strategy.lower().replace("_", "-"))
        doors.policy("schemaCompatibilityStrategy", strategy)
        for number, fields in enumerate(steps):
            doors.register(record(*fields), status=200 if number < taken else 409)
            # REST and WebSocket judge as admin does
            values = [{"a": 1, "c": "x"} if len(fields) > 1 else {"a": 1}]
            status = 200 if number < taken else 409
            doors.publish(status, value_schema=avro(*fields), messages=[{"value": v} for v in values])
            payload = b64(b"\2\2x" if len(fields) > 1 else b"\2")
            (answer,) = doors.frames({"payload": payload, "valueSchema": avro(*fields)})
            assert (answer["result"] == "ok") is (number < taken)
        assert len(doors.versions()) == taken


def test_where_schemas_do_not_change_by_themselves(server: Address, http: httpx.Client) -> None:
    doors = apart(server, http, "fixed")
    doors.policy("isAllowAutoUpdateSchema", False)
    refused = doors.publish(409, value_schema=avro(A), messages=[{"value": {"a": 1}}])
    assert "auto updating is disabled" in refused["message"]
    assert http.get("/admin/v2/persistent/public/fixed").json() == []  # no topic was made for it
    doors.register(record(A))  # an administrator may
    doors.publish(value_schema=avro(A), messages=[{"value": {"a": 1}}])
    doors.publish(409, value_schema=avro(A, B), messages=[{"value": {"a": 1}}])
    (answer,) = doors.frames({"payload": b64(b"\2\2x"), "valueSchema": avro(A, B)})
    assert "auto updating is disabled" in answer["errorMsg"]
    assert len(doors.versions()) == 1


def test_where_schemas_are_enforced(server: Address, http: httpx.Client) -> None:
    doors = apart(server, http, "enforced")
    doors.policy("schemaValidationEnforced", True)
    doors.publish(schema_type="bytes", messages=[{"value": "AA=="}])  # no schema yet
    doors.register(record(A), status=200)
    doors.publish(409, schema_type="bytes", messages=[{"value": "AA=="}])
    doors.publish(409, encoding="base64", messages=[{"value": "Ag=="}])
    bare, typed = doors.frames({"payload": "Ag=="}, {"payload": "Ag==", "schemaVersion": 0})
    assert (bare["result"] == "ok", typed["result"] == "ok") == (False, True)
    assert doors.told() == [("AA==", None), ({"a": 1}, 0)]


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
    doors: Doors, status: int, code: int, path: str, message: dict[str, Any]
) -> None:
    refused = doors.publish(status, path, value_schema=avro(C), messages=[message])
    assert refused["error_code"] == code
    assert doors.versions() == []
    topics = doors.http.get("/admin/v2/persistent/public/default").json()
    assert not [name for name in topics if name.endswith(doors.name)]


def test_only_schemas_that_are_used_are_registered(doors: Doors) -> None:
    answer = doors.publish(
        messages=[
            {"value": {"c": "x" * 11_000}, "value_schema": avro(C)},
            {"value": {"a": 1}, "value_schema": avro(A)},
            {"value": {"a": "1"}, "value_schema": avro(A, B)},
            {"value": {"a": 1}, "value_schema": avro(A, B), "partition": 1},
        ]
    )
    assert [slot["messageId"] is not None for slot in answer["messageIds"]] == [False, True, False, False]
    assert [json.loads(version["data"]) for version in doors.versions()] == [record(A)]


def test_a_terminated_topic_gets_no_schemas(doors: Doors) -> None:
    doors.publish(value_schema=avro(A), messages=[{"value": {"a": 1}}])
    doors.http.post(f"/admin/v2/persistent/public/default/{doors.name}/terminate")
    doors.publish(503, value_schema=avro(A, B), messages=[{"value": {"a": 1}}])
    assert len(doors.versions()) == 1


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
def test_schemas_that_cannot_be(doors: Doors, schema: dict[str, Any]) -> None:
    refused = doors.publish(422, value_schema=schema, messages=[{"value": {"a": 1}}])
    assert refused["error_code"] == 42204
    refused = doors.publish(
        422, key_schema=schema, value_schema={"type": "INT32"}, messages=[{"key": {"a": 1}, "value": 1}]
    )
    assert refused["error_code"] in (42203, 42204)  # 42204: a pair that is too large as a whole
    text = schema["schema"] if isinstance(schema["schema"], str) else json.dumps(schema["schema"])
    body = {"properties": {}, **schema, "schema": text}
    assert doors.http.post(f"{doors.admin}/schema", json=body).status_code == 422
    (answer,) = doors.frames({"payload": "Ag==", "valueSchema": schema})
    assert answer["result"].startswith("send-error")
    assert doors.versions() == []


def test_a_definition_where_there_is_none(doors: Doors) -> None:
    body: dict[str, Any] = {"type": "STRING", "schema": '{"type": "string"}', "properties": {}}
    refused = doors.http.post(f"{doors.admin}/schema", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42204)
    pair = {"key": record(A), "value": record(A)}
    body = {"type": "KEY_VALUE", "schema": json.dumps(pair), "properties": {"key.schema.type": "AVRO"}}
    refused = doors.http.post(f"{doors.admin}/schema", json=body)
    assert refused.status_code == 422
    assert "value.schema.type" in refused.json()["message"]
    assert doors.versions() == []


def test_texts_of_any_client_are_one_version(doors: Doors) -> None:
    body = {"type": "STRING", "schema": "null", "properties": {}}  # as Python's client registers it
    assert doors.http.post(f"{doors.admin}/schema", json=body).status_code == 200
    assert doors.publish(schema_type="string", messages=[{"value": "é"}])["schema_version"] == 0
    assert doors.publish(messages=[{"value": "é"}])["schema_version"] == 0
    latin = {"type": "STRING", "properties": {"__charset": "ISO-8859-1"}}
    assert doors.publish(value_schema=latin, messages=[{"value": "é"}])["schema_version"] == 1
    assert doors.told() == [("é", 0), ("é", 0), ("é", 1)]

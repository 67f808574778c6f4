import json

import pytest
from tests.support.admin import AdminServer

SCHEMAS = "/admin/v2/schemas/public/default/t"
NAMESPACE = "/admin/v2/namespaces/public/default"


def avro(*fields: dict[str, object], name: str = "R") -> dict[str, object]:
    definition = {"type": "record", "name": name, "fields": list(fields)}
    return {"type": "AVRO", "schema": json.dumps(definition), "properties": {"p": "q"}}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_DEFAULT = {"name": "b", "type": "int", "default": 0}


async def test_versions_are_registered_read_and_deleted() -> None:
    async with AdminServer.open() as server:
        assert (await server.get(f"{SCHEMAS}/schema", 404))["message"] == "Schema not found"
        assert await server.post(f"{SCHEMAS}/schema", avro(A), 200) == {"version": {"version": 0}}
        assert await server.post(f"{SCHEMAS}/schema", avro(A), 200) == {"version": {"version": 0}}
        assert await server.post(f"{SCHEMAS}/schema", avro(A, B_DEFAULT), 200) == {"version": {"version": 1}}
        newest = await server.get(f"{SCHEMAS}/schema")
        assert (newest["version"], newest["type"]) == (1, "AVRO")
        assert newest["properties"] == {"p": "q"}
        assert newest["timestamp"] == server.clock.now_ms()
        assert json.loads(newest["data"]) == json.loads(str(avro(A, B_DEFAULT)["schema"]))
        assert (await server.get(f"{SCHEMAS}/schema/0"))["version"] == 0
        await server.get(f"{SCHEMAS}/schema/7", 404)
        await server.get(f"{SCHEMAS}/schema/x", 400)
        found = await server.get(f"{SCHEMAS}/schemas")
        assert [one["version"] for one in found["getSchemaResponses"]] == [0, 1]
        assert (await server.get(f"{SCHEMAS}/metadata"))["info"]["version"] == 1
        assert await server.post(f"{SCHEMAS}/version", avro(A), 200) == {"version": 0}
        assert await server.post(f"{SCHEMAS}/version", avro(B), 200) == {"version": -1}
        assert await server.delete(f"{SCHEMAS}/schema", 200) == {"version": 2}
        assert (await server.get(f"{SCHEMAS}/schema", 404))["message"] == "Schema is deleted"
        await server.get(f"{SCHEMAS}/schema/0", 404)
        assert (await server.get(f"{SCHEMAS}/schema/0?deleted=true"))["version"] == 0
        assert await server.get(f"{SCHEMAS}/schemas") == {"getSchemaResponses": []}
        kept = (await server.get(f"{SCHEMAS}/schemas?deleted=true"))["getSchemaResponses"]
        assert [one["version"] for one in kept] == [0, 1]
        await server.delete(f"{SCHEMAS}/schema", 404)


async def test_an_answer_can_be_sent_back() -> None:
    async with AdminServer.open() as server:
        await server.post(f"{SCHEMAS}/schema", avro(A), 200)
        found = await server.get(f"{SCHEMAS}/schema")
        body = {key: found[key] for key in ("type", "data", "properties")}
        assert await server.post(f"{SCHEMAS}/version", body, 200) == {"version": 0}


async def test_an_incompatible_schema_is_409_and_says_why() -> None:
    async with AdminServer.open() as server:
        await server.post(f"{SCHEMAS}/schema", avro(A), 200)
        refused = await server.post(f"{SCHEMAS}/schema", avro(A, B), 409)
        assert refused["error_code"] == 40903
        assert "'b'" in refused["message"]
        checked = await server.post(f"{SCHEMAS}/compatibility", avro(A, B), 202)
        assert checked["isCompatibility"] is False
        assert checked["schemaCompatibilityStrategy"] == "FULL"
        await server.put(f"{NAMESPACE}/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
        assert await server.get(f"{NAMESPACE}/schemaCompatibilityStrategy") == "ALWAYS_COMPATIBLE"
        checked = await server.post(f"{SCHEMAS}/compatibility", avro(A, B), 202)
        assert checked["compatibility"] is checked["isCompatibility"] is True
        assert checked["schemaCompatibilityStrategy"] == "ALWAYS_COMPATIBLE"
        await server.post(f"{SCHEMAS}/schema", avro(A, B), 200)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "AVRO", "schema": "no"},
        {"type": "AVRO", "schema": '{"type": "record"}'},
        {"type": "NOTHING", "schema": ""},
        {"schema": "{}"},
        {"type": "AVRO", "schema": 5},
        {"type": "KEY_VALUE", "schema": "{}"},
        {"type": "AVRO", "schema": json.dumps({"type": "string", "doc": "x" * 2_000_000})},
        [],
        None,
    ],
)
async def test_what_cannot_be_understood_is_422_and_registers_nothing(body: object) -> None:
    async with AdminServer.open() as server:
        for operation in ("schema", "compatibility", "version"):
            refused = await server.post(f"{SCHEMAS}/{operation}", body, 422)
            assert refused["error_code"] == 42204
        await server.get(f"{SCHEMAS}/schema", 404)


async def test_a_key_value_schema_is_an_object_of_both() -> None:
    async with AdminServer.open() as server:
        value = json.loads(str(avro(A)["schema"]))
        body = {
            "type": "KEY_VALUE",
            "schema": json.dumps({"key": "", "value": value}),
            "properties": {
                "key.schema.type": "STRING",
                "value.schema.type": "AVRO",
                "kv.encoding.type": "SEPARATED",
            },
        }
        await server.post(f"{SCHEMAS}/schema", body, 200)
        found = await server.get(f"{SCHEMAS}/schema")
        assert found["type"] == "KEY_VALUE"
        assert json.loads(found["data"]) == {"key": "", "value": value}
        assert await server.post(f"{SCHEMAS}/version", body, 200) == {"version": 0}


async def test_policies_of_a_namespace() -> None:
    async with AdminServer.open() as server:
        for name, before, after in (
            ("schemaValidationEnforced", False, True),
            ("isAllowAutoUpdateSchema", True, False),
            ("deduplication", None, True),
        ):
            assert await server.get(f"{NAMESPACE}/{name}") is before
            await server.post(f"{NAMESPACE}/{name}", after)
            assert await server.get(f"{NAMESPACE}/{name}") is after
            await server.post(f"{NAMESPACE}/{name}", "perhaps", 400)
        await server.delete(f"{NAMESPACE}/deduplication")
        assert await server.get(f"{NAMESPACE}/deduplication") is None
        await server.put(f"{NAMESPACE}/schemaCompatibilityStrategy", "SOMETIMES", 400)
        await server.get("/admin/v2/namespaces/public/nowhere/deduplication", 404)
        # an administrator registers although producers may not
        await server.post(f"{SCHEMAS}/schema", avro(A), 200)

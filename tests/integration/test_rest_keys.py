"""Keys of bytes over REST: published as they are read, in both dialects, alone and in pairs."""

from base64 import b64encode
from typing import Any

import pytest
from tests.support.rest import TOPIC, RestServer

from penstock.broker.settings import BrokerSettings

SHIPPED = "/topics/persistent/public/default/t"
KEY = b64encode(b"\x00\xff").decode()


async def read(server: RestServer, path: str = TOPIC, **params: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get(f"{path}/partitions/0/messages", **params))["messages"]
    return found


@pytest.mark.parametrize(("path", "value"), [(TOPIC, "value"), (SHIPPED, "payload")])
async def test_a_key_of_bytes(path: str, value: str) -> None:
    async with RestServer.open() as server:
        given: list[dict[str, Any]] = [
            {value: "a", "key": KEY, "keyIsBase64": True},
            {value: "b", "key": KEY},
            {value: "c", "keyIsBase64": True},
            {value: "d", "key": "", "keyIsBase64": True},
        ]
        await server.post(path, {"messages": given})
        shown = [(one["key"], one.get("keyIsBase64")) for one in await read(server)]
        assert shown == [(KEY, True), (KEY, None), (None, None), ("", True)]


async def test_a_copy_by_what_was_read_is_the_same() -> None:
    """Also with the payloads in base64, and where keys choose partitions."""
    async with RestServer.open(BrokerSettings(auto_create_partitions=3)) as server:
        keys = [b64encode(bytes([n, 255])).decode() for n in range(20)]
        messages = [{"value": "v", "key": key, "keyIsBase64": True} for key in keys]
        await server.post("/topics/public/default/source", {"messages": messages})

        async def partitions(topic: str, encoding: str = "json") -> list[list[dict[str, Any]]]:
            paths = [f"/topics/public/default/{topic}/partitions/{n}/messages" for n in range(3)]
            return [(await server.get(path, encoding=encoding))["messages"] for path in paths]

        def kept(given: list[list[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
            names = ("key", "keyIsBase64", "value")
            return [[{name: one[name] for name in names} for one in found] for found in given]

        source = kept(await partitions("source"))
        assert all(source)
        for topic, encoding in (("copy", "json"), ("raw", "base64")):
            body = {"schema_type": "string", "encoding": encoding}
            for found in kept(await partitions("source", encoding)):
                await server.post(f"/topics/public/default/{topic}", {**body, "messages": found})
            assert kept(await partitions(topic)) == source


async def test_bad_keys_fail_alone_and_are_written_in_one_way() -> None:
    async with RestServer.open() as server:
        given = [
            {"value": "a", "key": "not base64", "keyIsBase64": True},
            {"value": "b", "key": 5, "keyIsBase64": True},
            {"value": "c", "key": KEY, "keyIsBase64": "yes"},
            {"value": "d", "key": "AP9=", "keyIsBase64": True},  # bits beyond the bytes
        ]
        answer = await server.post(TOPIC, {"messages": given})
        errors = [slot["error"] for slot in answer["messageIds"]]
        assert errors[0] == "key: base64 is expected"
        assert "key" in errors[1]
        assert "keyIsBase64" in errors[2]
        assert errors[3] is None
        assert [one["key"] for one in await read(server)] == [KEY]


async def test_the_key_of_a_pair_has_a_schema() -> None:
    async with RestServer.open() as server:
        pair = {"key_schema": {"type": "STRING"}, "value_schema": {"type": "STRING"}}
        key, value = b64encode(b"k").decode(), b64encode(b"v").decode()
        encoded = {"value": value, "key": key, "keyIsBase64": True, "encoding": "base64"}
        both = [encoded, {"value": "v", "key": key, "keyIsBase64": True}]
        answer = await server.post(TOPIC, {**pair, "messages": both})
        good, bad = (slot["error"] for slot in answer["messageIds"])
        assert good is None
        assert "the key has a schema" in bad
        (shown,) = await read(server)
        assert (shown["key"], shown["value"]) == ("k", "v")
        (raw,) = await read(server, encoding="base64")
        assert (raw["key"], raw["keyIsBase64"], raw["value"]) == (key, True, value)

"""Bodies of requests, whatever they are for: compressed ones, and what answers say to those of another shape."""

import gzip
import json
import zlib
from typing import Any

import pytest
from tests.support.admin import ADMIN, AdminServer
from tests.support.rest import TOPIC, RestServer

from penstock.protocols.http.examples import EXAMPLES
from penstock.protocols.limits import Limits

REST = "/topics/{tenant}/{namespace}/{topic}"
SHIPPED = "/topics/persistent/public/default/t"


async def test_compressed_bodies_are_taken_by_every_endpoint() -> None:
    async with AdminServer.open() as server:

        async def send(method: str, path: str, body: Any, coding: str = "gzip") -> Any:
            pack = gzip.compress if coding == "gzip" else zlib.compress
            headers = {"content-encoding": coding}
            answer = await server.client.request(
                method, path, content=pack(json.dumps(body).encode()), headers=headers
            )
            assert answer.status_code < 300, answer.text
            return answer.json() if answer.content else None

        await send("POST", TOPIC, {"messages": [{"value": "a"}]})
        await send("POST", TOPIC, {"messages": [{"value": "b"}]}, "deflate")
        await send("POST", SHIPPED, {"messages": [{"payload": "c"}]})
        await send("PUT", f"{ADMIN}/t/properties", {"team": "sales"})
        assert (await server.client.get(f"{ADMIN}/t/properties")).json() == {"team": "sales"}
        made = await send("POST", f"{TOPIC}/subscription/s", {"initial_position": "earliest"})
        found = (await server.client.get(f"{made['base_uri']}/messages")).json()["messages"]
        assert [one["value"] for one in found] == ["a", "b", "c"]
        ids = {"messageIds": [one["messageId"] for one in found]}
        await send("POST", f"{TOPIC}/subscription/s/cursor", ids)
        await send("POST", "/topics/offsets", {"topics": ["t"]})
        await send("POST", "/stages", {"topics": ["t"]})


async def test_compressed_bodies_have_the_bounds_of_others() -> None:
    async with RestServer.open(limits=Limits(max_request_bytes=1000)) as server:

        async def refused(body: bytes, coding: str, status: int, code: int) -> Any:
            answer = await server.client.post(TOPIC, content=body, headers={"content-encoding": coding})
            assert (answer.status_code, answer.json()["error_code"]) == (status, code)
            return answer

        long = json.dumps({"messages": [{"value": "x" * 1000}]}).encode()
        await refused(gzip.compress(long), "gzip", 413, 41301)
        await refused(zlib.compress(long), "deflate", 413, 41301)
        await refused(b"{}", "gzip", 422, 42205)
        answer = await refused(b"{}", "br", 415, 41501)
        assert answer.headers["accept-encoding"] == "gzip, deflate"


@pytest.mark.parametrize(
    ("method", "path", "operation", "body"),
    [
        ("POST", TOPIC, REST, b"hello"),
        ("POST", TOPIC, REST, b'{"value": "hello"}'),
        ("POST", TOPIC, REST, b'{"messages": ["hello"]}'),
        ("POST", TOPIC, REST, b'{"messages": []}'),
        ("POST", TOPIC, REST, b'{"messages": [{"key": "k"}]}'),
        ("POST", f"{TOPIC}/partitions/0", f"{REST}/partitions/{{partition}}", b"[]"),
        ("POST", f"{TOPIC}/request", f"{REST}/request", b'{"message": "what time is it?"}'),
        ("POST", SHIPPED, "/topics/{domain}/{tenant}/{namespace}/{topic}", b'{"messages": "hello"}'),
        (
            "POST",
            f"{TOPIC}/subscription/s",
            f"{REST}/subscription/{{subscription}}",
            b'{"subscription_type": 5}',
        ),
        ("POST", "/topics/offsets", "/topics/offsets", b'{"topics": "hello"}'),
        ("POST", "/stages", "/stages", b""),
        (
            "POST",
            "/admin/v2/namespaces/public/default/retention",
            "/admin/v2/namespaces/{tenant}/{namespace}/retention",
            b'"a day"',
        ),
    ],
)
async def test_a_body_of_another_shape_is_answered_with_one_that_is_taken(
    method: str, path: str, operation: str, body: bytes
) -> None:
    async with AdminServer.open() as server:
        answer = await server.client.request(method, path, content=body)
        assert 400 <= answer.status_code < 500
        assert answer.json()["message"]
        assert answer.json()["example"] == EXAMPLES[method, operation]
        if not path.endswith("/request"):  # which would wait for a reply
            again = await server.client.request(method, path, json=answer.json()["example"])
            assert again.status_code < 300, again.text


async def test_other_errors_have_no_example() -> None:
    async with RestServer.open() as server:
        await server.produce("text")
        for path, body in (
            (TOPIC, {"messages": [{"value": 5}]}),
            (f"{TOPIC}/partitions/7", {"messages": [{"value": "x"}]}),
            (TOPIC, {"schema_type": "none such", "messages": [{"value": "x"}]}),
        ):
            answer = await server.client.post(path, json=body)
            assert answer.status_code >= 400
            assert "example" not in answer.json()

"""The client of a schema registry: who it says it is, and what answers mean. What a registry itself answers is in tests/clusters."""

import asyncio
import contextlib
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.tls import Pki

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.schema_registry.client import Definition, Reference, RegistryClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret


@asynccontextmanager
async def answering(
    status: int, body: bytes = b"{}", pki: Pki | None = None, **settings: Any
) -> AsyncIterator[tuple[RegistryClient, list[bytes]]]:
    """A client of a server that answers everything so (status 0: nothing), and the heads of the requests."""
    heads: list[bytes] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        if not status:
            await over.wait()
        head = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        with contextlib.suppress(OSError):
            writer.write(head + body)
            await writer.drain()
            writer.close()
            await writer.wait_closed()

    context = None
    if pki is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.client_ca_file)
        context.load_cert_chain(pki.cert_file, pki.key_file)
        context.verify_mode = ssl.CERT_REQUIRED
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    scheme = "http" if pki is None else "https"
    client = RegistryClient(ClusterSettings(schema_registry=f"{scheme}://127.0.0.1:{port}/api/", **settings))
    try:
        yield client, heads
    finally:
        over.set()
        await client.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, b""),
        (
            {"schema_registry_username": "me", "schema_registry_password": Secret("secret")},
            b"Basic " + b64encode(b"me:secret"),
        ),
        ({"schema_registry_token": Secret("t.o.k")}, b"Bearer t.o.k"),
    ],
)
async def test_it_says_who_it_is(settings: dict[str, Any], said: bytes) -> None:
    async with answering(200, b"[1,2]", **settings) as (client, heads):
        assert await client.versions("a/b-value") == [1, 2]
    (head,) = heads
    assert head.startswith(b"GET /api/subjects/a%2Fb-value/versions HTTP/1.1\r\n")
    found = [line for line in head.split(b"\r\n") if line.lower().startswith(b"authorization:")]
    assert found == ([b"Authorization: " + said] if said else [])


async def test_a_token_is_renewed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    async with answering(200, b"[]", schema_registry_token_file=str(file)) as (client, heads):
        await client.versions("s")
        file.write_text("two\n")
        await client.versions("s")
        file.unlink()
        with pytest.raises(PenstockError) as caught:
            await client.versions("s")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert [b"Bearer one" in heads[0], b"Bearer two" in heads[1], len(heads)] == [True, True, 2]


async def test_certificates(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    cert, key = pki.client("penstock")
    own = {"tls_trust_file": pki.ca_file, "tls_cert_file": cert, "tls_key_file": key}
    async with answering(200, b"[1]", pki, **own) as (client, _):
        assert await client.versions("s") == [1]
    async with answering(200, b"[1]", pki, **{**own, "tls_trust_file": ""}) as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.versions("s")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    with pytest.raises(PenstockError) as caught:
        RegistryClient(ClusterSettings(schema_registry="https://h", tls_trust_file=str(tmp_path / "none")))
    assert caught.value.kind is ErrorKind.BAD_PARAMETER


async def test_settings_that_contradict() -> None:
    with pytest.raises(PenstockError) as caught:
        RegistryClient(
            ClusterSettings(
                schema_registry="http://h",
                schema_registry_username="me",
                schema_registry_token=Secret("token"),
            )
        )
    assert caught.value.kind is ErrorKind.BAD_PARAMETER


async def test_an_answer_that_does_not_come() -> None:
    async with answering(0, timeout_ms=50) as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.latest("s")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert "does not answer" in caught.value.message


async def test_an_answer_that_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engines.kafka.schema_registry.client.ANSWER_BYTES_MAX", 1000)
    async with answering(200, b" " * 2000) as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.latest("s")
    assert "1000 bytes" in caught.value.message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, ErrorKind.FORBIDDEN),
        (409, ErrorKind.INCOMPATIBLE_SCHEMA),
        (422, ErrorKind.BAD_VALUE_SCHEMA),
        (500, ErrorKind.UNAVAILABLE),
        (302, ErrorKind.UNAVAILABLE),
    ],
)
async def test_what_refusals_mean(status: int, kind: ErrorKind) -> None:
    async with answering(status, b'{"message":"why"}') as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.register("s", Definition("AVRO", "{}"))
    assert caught.value.kind is kind
    assert "why" in caught.value.message


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>"), (404, b"<html>"), (404, b'{"error_code":404}'), (404, b"[]")],
)
async def test_what_is_no_registry(status: int, body: bytes) -> None:
    async with answering(status, body) as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.latest("s")
    assert caught.value.kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"1","version":1,"schema":"{}"}',
        b'{"id":-1,"version":1,"schema":"{}"}',
        b'{"id":4294967296,"version":1,"schema":"{}"}',
        b'{"id":1,"version":1,"schema":{}}',
        b"[[]]",
        b"3",
    ],
)
async def test_answers_of_another_shape(body: bytes) -> None:
    async with answering(200, body) as (client, _):
        asking = [client.latest("s"), client.versions("s"), client.versions_of_id(1)]
        found = await asyncio.gather(*asking, return_exceptions=True)
    assert {one.kind for one in found if isinstance(one, PenstockError)} == {ErrorKind.UNAVAILABLE}
    assert len([one for one in found if isinstance(one, PenstockError)]) == 3


async def test_what_is_not_there() -> None:
    async with answering(404, b'{"error_code":40403,"message":"none"}') as (client, heads):
        assert await client.by_id(7, ":.dc:s") is None
        assert await client.versions("s") == []
    assert heads[0].startswith(b"GET /api/schemas/ids/7?subject=%3A.dc%3As HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("level", "strategy"),
    [("NONE", "ALWAYS_COMPATIBLE"), ("BACKWARD_TRANSITIVE", "BACKWARD_TRANSITIVE"), ("ODD", "UNDEFINED")],
)
async def test_levels_are_strategies(level: str, strategy: str) -> None:
    async with answering(200, b'{"compatibilityLevel":"%s"}' % level.encode()) as (client, _):
        assert (await client.strategy("s")).value == strategy


async def test_schemas_that_are_normalized() -> None:
    found = b'{"id":1,"version":2,"is_compatible":true}'
    async with answering(200, found, schema_registry_normalize=True) as (client, heads):
        definition = Definition("AVRO", "{}", (Reference("a", "b", 1),))
        await client.register("s", definition)
        await client.lookup("s", definition)
        await client.objection("s", definition)
    assert [b"?normalize=true" in head.split(b"\r\n")[0] for head in heads] == [True, True, False]
    assert b"&normalize=true" in heads[2].split(b"\r\n")[0]


def test_an_address_has_no_password_in_it() -> None:
    with pytest.raises(PenstockError) as caught:
        RegistryClient(ClusterSettings(schema_registry="http://user:s3cret@127.0.0.1:8081"))
    assert caught.value.kind is ErrorKind.BAD_PARAMETER
    assert "s3cret" not in caught.value.message

"""The client of a schema registry: who it says it is, and what answers mean. What a registry itself answers is in tests/clusters."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.schema_registry.client import Definition, RegistryClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret


@asynccontextmanager
async def answering(
    status: int, body: bytes = b"{}", user: str = ""
) -> AsyncIterator[tuple[RegistryClient, list[bytes]]]:
    """A client of a server that answers everything so, and the heads of the requests."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)
        )
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    settings = ClusterSettings(
        schema_registry=f"http://127.0.0.1:{port}/api/",
        schema_registry_username=user,
        schema_registry_password=Secret("secret"),
    )
    client = RegistryClient(settings)
    try:
        yield client, heads
    finally:
        await client.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("user", ["", "me"])
async def test_it_says_who_it_is(user: str) -> None:
    async with answering(200, b"[1,2]", user) as (client, heads):
        assert await client.versions("a/b-value") == [1, 2]
    (head,) = heads
    assert head.startswith(b"GET /api/subjects/a%2Fb-value/versions HTTP/1.1\r\n")
    token = b"Basic " + b64encode(b"me:secret")
    assert (token.lower() in head.lower()) is bool(user)


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


async def test_what_is_no_registry() -> None:
    async with answering(200, b"<html>") as (client, _):
        with pytest.raises(PenstockError) as caught:
            await client.latest("s")
    assert caught.value.kind is ErrorKind.UNAVAILABLE

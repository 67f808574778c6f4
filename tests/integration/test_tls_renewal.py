"""Certificates that are replaced while the server runs, under load."""

import asyncio
import json
import logging
import os
import ssl
from base64 import b64encode
from pathlib import Path

import httpx
import pytest
import trustme
from tests.support.tls import Pki
from tests.support.waiting import until_async
from websockets.asyncio.client import connect

from penstock.testing.server import Address, running

ROUNDS = 20 if os.environ.get("PENSTOCK_SOAK") == "1" else 3
WS = "/ws/v2/producer/persistent/public/default/renewed"


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def shown(url: str) -> str:
    """The certificate that a new connection is shown."""
    host, _, port = url.partition("://")[2].rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


def on_disk(pki: Pki) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(Path(pki.cert_file).read_text()))


async def test_replaced_under_load(pki: Pki) -> None:
    """Open connections go on, new ones see the new certificate, and nothing fails in between."""
    with pki.server() as server:
        await under_load(server, pki)


async def under_load(server: Address, pki: Pki) -> None:
    over = asyncio.Event()
    done = {"new": 0, "old": 0, "ws": 0}
    trust = pki.trust()

    async def new_connections() -> None:
        while not over.is_set():
            async with httpx.AsyncClient(verify=trust) as http:
                assert (await http.get(f"{server.https}/health/live")).status_code == 200
            done["new"] += 1

    async def an_old_connection() -> None:
        async with httpx.AsyncClient(
            verify=trust, limits=httpx.Limits(max_connections=1), headers={"connection": "keep-alive"}
        ) as http:
            while not over.is_set():
                assert (await http.get(f"{server.https}/health/live")).status_code == 200
                done["old"] += 1

    async def an_old_socket() -> None:
        async with connect(server.wss + WS, ssl=trust) as ws:
            while not over.is_set():
                await ws.send(json.dumps({"payload": b64encode(b"a").decode()}))
                assert json.loads(await ws.recv())["result"] == "ok"
                done["ws"] += 1

    async def replace() -> None:
        try:
            for _ in range(ROUNDS):
                before = dict(done)
                await until_async(lambda: all(done[kind] > before[kind] for kind in done))  # noqa: B023
                pki.renew()
                for url in (server.https, server.pulsar_tls):
                    assert await asyncio.to_thread(shown, url) == on_disk(pki)
        finally:
            over.set()

    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for work in (new_connections, new_connections, an_old_connection, an_old_socket, replace):
            group.create_task(work())


def test_a_broken_file_is_passed_over(pki: Pki, caplog: pytest.LogCaptureFixture) -> None:
    with pki.server() as server:
        before = shown(server.https)
        good = Path(pki.cert_file).read_bytes()
        with caplog.at_level(logging.ERROR, "penstock.server.tls"):
            for broken in (b"", b"no certificate", good[: len(good) // 2]):
                Path(pki.cert_file).write_bytes(broken)
                assert shown(server.https) == before
            Path(pki.cert_file).unlink()
            assert shown(server.https) == before
            assert shown(server.https) == before
        said = [record for record in caplog.records if "cannot be used" in record.getMessage()]
        assert len(said) == 4  # once each, however many connections there are
        pki.renew()
        assert shown(server.https) == on_disk(pki) != before


def test_a_key_that_is_not_the_certificates(pki: Pki) -> None:
    with pki.server() as server:
        before = shown(server.https)
        old_key = Path(pki.key_file).read_bytes()
        pki.renew()
        Path(pki.key_file).write_bytes(old_key)
        assert shown(server.https) == before


def test_another_ca_of_clients(pki: Pki) -> None:
    """Who was let in is not any more, also not by a session that it had."""
    with pki.server(client_certificates="required", client_ca_file=pki.client_ca_file) as server:
        url = f"{server.https}/health/live"
        old = pki.trust(pki.client("old"))
        assert httpx.get(url, verify=old).status_code == 200
        others = trustme.CA()
        others.cert_pem.write_to_path(pki.client_ca_file)
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=old)
        assert httpx.get(url, verify=pki.trust(pki.client("new", others))).status_code == 200


def test_files_that_are_no_good_at_the_start(pki: Pki, tmp_path: Path) -> None:
    from penstock.server.config import StartError

    for settings, said in (
        (pki.settings(cert_file=str(tmp_path / "none")), "none: No such file"),
        (pki.settings(cert_file=""), "tls.cert_file is needed"),
        (pki.settings(client_certificates="required"), "tls.client_ca_file is needed"),
        (pki.settings(key_file=pki.ca_file), "tls.cert_file"),
    ):
        with pytest.raises(StartError, match=said), running(tls=settings):
            pass

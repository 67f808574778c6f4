"""A password towards Kafka that changes at the brokers, with a broker of the test's own that knows authentication and metadata alone."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver.admin import KafkaAdmin
from penstock.engines.kafka.driver.clients import Clients
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

pytestmark = pytest.mark.anyio

METADATA, HANDSHAKE, VERSIONS, AUTHENTICATE = 3, 17, 18, 36  # requests of Kafka's protocol
UNSUPPORTED_VERSION, AUTHENTICATION_FAILED = 35, 58
_KNOWN = {METADATA: (1, 2), HANDSHAKE: (0, 1), VERSIONS: (0, 0), AUTHENTICATE: (0, 0)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class AuthenticatingBroker:
    """A cluster of one broker without topics, that takes SASL PLAIN with one password."""

    def __init__(self, password: str) -> None:
        self.password = password
        self.refused = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._connections: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._server.accept()[0]
                self._connections.append(connection)
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as read:
            while head := read.read(4):
                request = read.read(struct.unpack(">i", head)[0])
                kind, version, number = struct.unpack(">hhi", request[:8])
                good = kind != AUTHENTICATE or request.endswith(f"\0{self.password}".encode())
                answer = struct.pack(">i", number) + self._answer(kind, version, good=good)
                connection.sendall(struct.pack(">i", len(answer)) + answer)
                if not good:
                    self.refused += 1
                    return

    def _answer(self, kind: int, version: int, *, good: bool) -> bytes:
        if kind == VERSIONS:
            known = b"".join(struct.pack(">hhh", key, *bounds) for key, bounds in _KNOWN.items())
            return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(_KNOWN)) + known
        if kind == HANDSHAKE:
            return struct.pack(">hi", 0, 1) + _text("PLAIN")
        if kind == AUTHENTICATE:
            return struct.pack(">hhi", 0 if good else AUTHENTICATION_FAILED, -1, 0)
        nodes = struct.pack(">ii", 1, 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        cluster = _text("test") if version >= 2 else b""
        return nodes + cluster + struct.pack(">ii", 1, 0)

    def cut(self) -> None:
        """End every connection."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.cut()


@pytest.fixture
def broker() -> Iterator[AuthenticatingBroker]:
    made = AuthenticatingBroker("one")
    yield made
    made.close()


async def test_a_password_that_changes_is_used_once_the_file_has_it(
    broker: AuthenticatingBroker, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("one\n")
    clients = Clients(
        ClusterSettings(url=f"kafka://127.0.0.1:{broker.port}", username="me", password_file=str(file))
    )
    admin, tasks = KafkaAdmin(clients, 30.0), Tasks()
    tasks.spawn(clients.watch(), "watch")
    try:
        assert await admin.topics() == {}
        broker.password = "two"
        broker.cut()
        async with asyncio.timeout(60):
            while clients.errors.refusal() is None:
                await asyncio.sleep(0.05)  # librdkafka connects again by itself
        with pytest.raises(PenstockError, match="refuses the credentials of this server") as caught:
            await admin.topics()
        assert caught.value.kind is ErrorKind.UNAVAILABLE
        assert clients.errors.counts()["admin", "_AUTHENTICATION"] > 0
        file.write_text("two\n")
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(PenstockError):
                    assert await admin.topics() == {}
                    break
    finally:
        await tasks.close()
        await admin.close()

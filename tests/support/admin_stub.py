"""A stand-in for the admin REST of a cluster that keeps what it was sent, byte by byte."""

import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from penstock.broker.cluster import ClusterFigures, ClusterTraits
from penstock.client.authentication import AuthenticationToken
from penstock.engines.pulsar.admin import Admin
from penstock.engines.pulsar.credentials import ServerCredentials
from penstock.model.target import Target

CREDENTIALS: Final = ServerCredentials(AuthenticationToken("secret"), "engine.token")


class Sent(NamedTuple):
    """A request: its method, its target as it was on the wire, its headers by lower-case name, and its body."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Given(NamedTuple):
    """What is answered."""

    status: int = 200
    body: bytes = b"{}"
    headers: Sequence[tuple[str, str]] = (("Content-Type", "application/json"),)


class AdminStub(socketserver.ThreadingTCPServer):
    """Answers every request with `answer`; `sent` is what came."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.sent: list[Sent] = []
        self.answer: Callable[[Sent], Given] = lambda _: Given()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Connection(socketserver.StreamRequestHandler):
    """Reads request after request without a parser of URLs."""

    server: AdminStub

    def handle(self) -> None:
        while line := self.rfile.readline():
            method, target, _ = line.decode("latin-1").rstrip("\r\n").split(" ")
            headers = {}
            while (head := self.rfile.readline().decode("latin-1").rstrip("\r\n")) != "":
                name, _, value = head.partition(":")
                headers[name.lower()] = value.strip()
            body = self.rfile.read(int(headers.get("content-length", 0)))
            sent = Sent(method, target, headers, body)
            self.server.sent.append(sent)
            given = self.server.answer(sent)
            content = b"" if given.status == 204 else given.body
            lines = [f"HTTP/1.1 {given.status} X", *(f"{name}: {value}" for name, value in given.headers)]
            if given.status != 204:
                lines.append(f"Content-Length: {len(content)}")
            shown = b"" if method == "HEAD" else content
            self.wfile.write("\r\n".join([*lines, "", ""]).encode() + shown)


@contextmanager
def admin_stub() -> Iterator[AdminStub]:
    """One that listens on a free port."""
    with AdminStub() as stub:
        thread = threading.Thread(target=stub.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield stub
        finally:
            stub.shutdown()


class StubCluster:
    """As much of `broker.Cluster` as passing on requests needs; `targets` is what was let through."""

    traits = ClusterTraits(kind="pulsar", administered=True)

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin: Admin | None = None
        self.targets: list[tuple[str, Target]] = []

    def figures(self) -> ClusterFigures:
        return ClusterFigures()

    async def request(
        self,
        method: str,
        target: Target,
        query: Any = (),
        headers: Any = (),
        body: bytes = b"",
        *,
        caller: Any = None,
    ) -> Any:
        self.targets.append((method, target))
        if self._admin is None:
            self._admin = Admin(self._url, CREDENTIALS, False, 30)
        return await self._admin.forward(method, target, query, headers, body)

    async def close(self) -> None:
        if self._admin is not None:
            await self._admin.close()

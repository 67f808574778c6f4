"""The cluster's admin REST as the engine asks it: redirects, refusals, and what is passed on."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from penstock.client.authentication import AuthenticationToken
from penstock.engines.pulsar.admin import Admin, _refusal
from penstock.engines.pulsar.credentials import ServerCredentials
from penstock.model.errors import ErrorKind, PenstockError

CREDENTIALS = ServerCredentials(AuthenticationToken("secret"), "engine.token")


class Broker(BaseHTTPRequestHandler):
    """Sends to the owner what begins with /admin/v2/elsewhere, and answers what it was asked."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.startswith("/admin/v2/elsewhere"):
            self.send_response(307)
            self.send_header("Location", self.path.replace("elsewhere", "here"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status = int(self.path.rpartition("/")[2]) if self.path.startswith("/admin/v2/status") else 200
        answer = b"<html>no</html>" if self.path.startswith("/admin/v2/status/html") else b'{"reason": "r"}'
        if status == 200:
            said = f"{self.command} {self.path} {self.headers['authorization']} ".encode()
            answer = said + body
        self.send_response(status)
        self.send_header("X-Pulsar-PROPERTY", '{"a":"b"}')
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  # the names that the base class calls

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Broker) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_redirect_keeps_method_body_query_and_credentials(url: str, method: str) -> None:
    admin = Admin(url, CREDENTIALS, False, 30)
    sent = [(b"authorization", b"Bearer of the caller"), (b"content-type", b"application/json")]
    answer = await admin.forward(method, "/admin/v2/elsewhere/t", b"a=b%2F", sent, b"\x00body")
    await admin.close()
    assert answer.status == 200
    assert answer.body == f"{method} /admin/v2/here/t?a=b%2F Bearer secret ".encode() + b"\x00body"
    assert (b"X-Pulsar-PROPERTY", b'{"a":"b"}') in answer.headers


@pytest.mark.parametrize(
    ("path", "kind", "text"),
    [
        ("/status/401", ErrorKind.FORBIDDEN, "does not allow it to this server: r"),
        ("/status/403", ErrorKind.FORBIDDEN, "does not allow it to this server: r"),
        ("/status/html/401", ErrorKind.UNAVAILABLE, "the credentials of this server (engine.token)"),
        ("/status/404", ErrorKind.NOT_FOUND, "r"),
        ("/status/412", ErrorKind.BAD_PARAMETER, "r"),
        ("/status/500", ErrorKind.UNAVAILABLE, "r"),
    ],
)
async def test_refusals(url: str, path: str, kind: ErrorKind, text: str) -> None:
    admin = Admin(url, CREDENTIALS, False, 30)
    with pytest.raises(PenstockError) as refused:
        await admin.get(path)
    await admin.close()
    assert (refused.value.kind, text in refused.value.message) == (kind, True)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "Topic not found", ErrorKind.TOPIC_NOT_FOUND),
        (409, "This topic already exists", ErrorKind.ALREADY_EXISTS),
        (412, "Topic name is not valid", ErrorKind.BAD_PARAMETER),
        (412, "Failed to find ownership for topic:persistent://a/b/c", ErrorKind.UNAVAILABLE),
        (503, "Service Unavailable", ErrorKind.UNAVAILABLE),
        (500, "Not enough non-faulty bookies available", ErrorKind.UNAVAILABLE),
    ],
)
def test_kinds_of_refusals(status: int, reason: str, kind: ErrorKind) -> None:
    error = _refusal(httpx.Response(status, json={"reason": reason}), ErrorKind.TOPIC_NOT_FOUND)
    assert error.kind is kind
    assert error.message == f"the cluster refuses it with status {status}: {reason}"

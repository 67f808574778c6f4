"""A token endpoint (RFC 6749, 4.4) for the librdkafka clients of this process: on loopback, with a secret that only they know.

One thread answers the requests one after the other. It is not the loop's thread, because the loop may wait for a client that
is being created or closed.
"""

import base64
import logging
import os
import secrets
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, Final

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

from .tokens import FileTokens, ProviderTokens, TokenError

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
CLIENT: Final = "penstock"
REQUEST_S: Final = 2.0  # for a request that does not end
BODY_MAX: Final = 4096
_NO_PROXY: Final = ("no_proxy", "NO_PROXY")  # curl, within librdkafka, would ask a proxy of `http_proxy`


class TokenEndpoint:
    """Answers with the current token. Starts with the first client that needs it."""

    def __init__(self, tokens: FileTokens | ProviderTokens) -> None:
        self._tokens = tokens
        self._secret = secrets.token_urlsafe(32)
        self._server: HTTPServer | None = None

    @classmethod
    def of(cls, settings: ClusterSettings) -> "TokenEndpoint":
        """From settings that `config` has checked; raises BAD_PARAMETER if certificates cannot be used."""
        return cls(FileTokens(settings.token_file) if settings.token_file else ProviderTokens(settings))

    @property
    def subject(self) -> str:
        """The subject of the token; blocks while a provider is asked. Raises UNAVAILABLE."""
        try:
            return self._tokens.current().subject
        except TokenError as error:
            raise PenstockError(ErrorKind.UNAVAILABLE, str(error)) from None

    def properties(self) -> dict[str, Any]:
        """librdkafka's properties for a client that uses this endpoint."""
        if self._server is None:
            self._server = self._start()
        return {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": self._secret,
            "sasl.oauthbearer.token.endpoint.url": f"http://{HOST}:{self._server.server_port}/token",
        }

    def _start(self) -> HTTPServer:
        for name in _NO_PROXY:
            named = os.environ.get(name, "")
            if named != "*" and HOST not in named.split(","):
                os.environ[name] = f"{named},{HOST}".lstrip(",")
        expected = b"Basic " + base64.b64encode(f"{CLIENT}:{self._secret}".encode())
        tokens = self._tokens

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_S

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "0")
                if length.isdigit() and int(length) <= BODY_MAX:
                    self.rfile.read(int(length))
                shown = self.headers.get("Authorization", "").encode("latin-1", "replace")
                if not secrets.compare_digest(shown, expected):
                    self._answer(401, b"wrong secret", "text/plain")
                    return
                try:
                    token = tokens.current()
                except TokenError as error:
                    # librdkafka reports the body as it is, in its own sentence.
                    self._answer(400, str(error).encode(), "text/plain")
                else:
                    body = msgspec.json.encode({"access_token": token.text, "token_type": "Bearer"})
                    self._answer(200, body, "application/json")

            def _answer(self, status: int, content: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing: http.server would print each request."""

        server = _Server((HOST, 0), Handler)
        Thread(target=server.serve_forever, name="kafka-tokens", daemon=True).start()
        return server

    def close(self) -> None:
        """Stop the endpoint; blocks for up to half a second."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Server(HTTPServer):
    request_queue_size = 64  # clients created at the same time

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a token request broke off", exc_info=True)

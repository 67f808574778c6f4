"""Tokens for SASL/OAUTHBEARER from a file or an identity provider. One token serves all clients of the process.

The constructor of a confluent-kafka 2.16 client with an `oauth_cb` blocks its thread for a second. librdkafka's `oidc` method
does not, but asks the provider once for each client, and cannot read a file. So librdkafka asks a token endpoint of this
process (RFC 6749, 4.4), which answers with the token cached here: on loopback, with a secret that only its clients know.

One thread answers the requests one after the other. It is not the loop's thread, because the loop may wait for a client that
is being created or closed.
"""

import base64
import binascii
import logging
import os
import secrets
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Lock, Thread
from time import time
from typing import Any, Final

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

log = logging.getLogger(__name__)

ANSWER_S: Final = 10.0  # for the identity provider
ANSWER_BYTES_MAX: Final = 1 << 20
AGAIN_S: Final = 5.0  # before a failed provider is asked again
RENEW_AT: Final = 0.8  # of a token's life
LEFT_S: Final = 2.0  # a token that expires sooner is not used
HOST: Final = "127.0.0.1"
CLIENT: Final = "penstock"
REQUEST_S: Final = 2.0  # for a request that does not end
BODY_MAX: Final = 4096
_NO_PROXY: Final = ("no_proxy", "NO_PROXY")  # curl, within librdkafka, would ask a proxy of `http_proxy`


class TokenError(Exception):
    """No valid token; the message names the setting."""


class Token(msgspec.Struct, frozen=True):
    """A JWT, its expiry (s since the epoch) and its subject, which is the principal in Kafka."""

    text: str
    expires_s: float
    subject: str

    def check(self) -> "Token":
        """Raise TokenError if the token has expired."""
        if self.expires_s < time() + LEFT_S:
            raise TokenError("the token has expired")
        return self


class _Claims(msgspec.Struct):
    exp: float
    sub: str


class _Answer(msgspec.Struct):
    access_token: str


def parse(text: str) -> Token:
    """Parse a token. Its signature is not verified here; the brokers do. Raises TokenError."""
    parts = text.split(".")
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=_Claims)
    except (IndexError, binascii.Error, msgspec.DecodeError, ValueError, RecursionError):
        raise TokenError("the token is not a JWT with the claims exp and sub") from None
    return Token(text, claims.exp, claims.sub)


class FileTokens:
    """The token in a file, which another program renews."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def current(self) -> Token:
        """The file's current token; raises TokenError."""
        try:
            return parse(self._path.read_text("utf-8").strip()).check()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(f"engine.token_file cannot be read: {error}") from None
        except TokenError as error:
            raise TokenError(f"engine.token_file: {error}") from None


class ProviderTokens:
    """Tokens from an identity provider for the server's client id and secret (RFC 6749, 4.4)."""

    def __init__(self, settings: ClusterSettings, now: Callable[[], float] = time) -> None:
        self._settings = settings
        self._now = now
        self._lock = Lock()  # clients ask concurrently; the provider is asked once
        self._token: Token | None = None
        self._renew_s = 0.0
        self._failed = ""
        self._again_s = 0.0
        self._tls: ssl.SSLContext | None = None
        if settings.oauth_token_url.startswith("https://"):
            try:
                self._tls = ssl.create_default_context(cafile=settings.oauth_trust_file or None)
            except (OSError, ssl.SSLError) as error:
                raise PenstockError(
                    ErrorKind.BAD_PARAMETER, f"engine.oauth_trust_file cannot be used: {error}"
                ) from None
        self._open = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=self._tls)
        ).open

    def current(self) -> Token:
        """A valid token; blocks while the provider is asked. Raises TokenError."""
        with self._lock:
            now, kept = self._now(), self._token
            if kept is not None and now < self._renew_s:
                return kept
            if now >= self._again_s:
                try:
                    return self._renew(now)
                except TokenError as error:
                    self._failed, self._again_s = str(error), now + AGAIN_S
                    log.warning("no token for Kafka", extra={"reason": self._failed})
            if kept is not None and kept.expires_s > now + LEFT_S:
                return kept
            raise TokenError(self._failed)

    def _renew(self, now: float) -> Token:
        try:
            token = parse(self._ask()).check()
        except TokenError as error:
            raise TokenError(f"engine.oauth_token_url: {error}") from None
        self._token, self._again_s = token, 0.0
        self._renew_s = now + RENEW_AT * (token.expires_s - now)
        return token

    def _ask(self) -> str:
        settings = self._settings
        form = {"grant_type": "client_credentials"}
        if settings.oauth_scope:
            form["scope"] = settings.oauth_scope
        named = f"{settings.oauth_client_id}:{self._secret()}".encode()
        request = urllib.request.Request(  # noqa: S310 # http or https, by `config`
            settings.oauth_token_url,
            urllib.parse.urlencode(form).encode(),
            {
                "Authorization": f"Basic {base64.b64encode(named).decode()}",
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with self._open(request, timeout=ANSWER_S) as answer:
                return msgspec.json.decode(answer.read(ANSWER_BYTES_MAX), type=_Answer).access_token
        except urllib.error.HTTPError as error:
            with error:
                raise TokenError(f"status {error.code}{_reason(error)}") from None
        except (OSError, ValueError, RecursionError) as error:  # an answer that is not JSON is a ValueError
            raise TokenError(str(getattr(error, "reason", error)) or type(error).__name__) from None

    def _secret(self) -> str:
        file = self._settings.oauth_client_secret_file
        if not file:
            return self._settings.oauth_client_secret.reveal()
        try:
            return Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(f"engine.oauth_client_secret_file cannot be read: {error}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: `urllib` would show the secret wherever it leads, also without TLS."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _reason(error: urllib.error.HTTPError) -> str:
    """The provider's error and description (RFC 6749, 5.2), if the answer has them."""
    try:
        found: dict[str, Any] = msgspec.json.decode(error.read(ANSWER_BYTES_MAX), type=dict[str, Any])
    except (OSError, ValueError, RecursionError):
        return ""
    details = [str(found[key])[:300] for key in ("error", "error_description") if found.get(key)]
    return f": {', '.join(details)}" if details else ""


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

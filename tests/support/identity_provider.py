"""An identity provider on the loopback that gives tokens for client credentials (RFC 6749, 4.4)."""

import base64
import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


def unsigned(subject: str, life_s: float) -> str:
    """A token without a signature."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + life_s, "n": time.perf_counter()})
    return ".".join(_base64(json.dumps(part).encode()) for part in parts) + "."


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SigningKey:
    """A key that signs tokens, and the set of keys (JWKS) by which brokers verify them."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.jwks = json.dumps({"keys": [{**public, "kid": "one", "use": "sig", "alg": "RS256"}]})

    def token(self, subject: str, life_s: float) -> str:
        now = time.time()
        claims = {"sub": subject, "iat": int(now), "exp": int(now + life_s), "aud": "kafka", "scope": "kafka"}
        return jwt.encode(claims, self._key, "RS256", {"kid": "one"})


class IdentityProvider:
    """Gives what `make` returns to client `me` with the secret."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.secret = "it"
        self.given: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.refused = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                expected = base64.b64encode(f"me:{outer.secret}".encode()).decode()
                if self.headers["Authorization"] != f"Basic {expected}":
                    outer.refused += 1
                    self._answer(401, {"error": "invalid_client"})
                    return
                outer.forms.append(parse_qs(form))
                outer.given.append(make())
                self._answer(200, {"access_token": outer.given[-1], "token_type": "Bearer", "expires_in": 60})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

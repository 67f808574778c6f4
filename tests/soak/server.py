"""The server of a soak: a process of its own over TLS and plain endpoints, killed and started again at one address,
with its certificate and its keys renewed and its disk full when somebody says so."""

import json
import resource
import ssl
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from tests.support.ports import kept_port
from tests.support.tls import Pki

from penstock.testing.server import Launched

TOKEN_S: Final = 40.0  # long enough that the binary endpoint asks for fresh ones now and then
FRESH_S: Final = 5.0
ROOM_WHEN_FULL: Final = 16 << 10


class Figures(NamedTuple):
    """What the server's process has."""

    rss_mb: float
    fds: int
    threads: int


class Keys:
    """An identity provider's keys, of which the newest signs; a file that the server reads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._keys: list[tuple[str, Any]] = []
        self._count = 0
        self._signs = 0
        self._token = ("", 0.0)
        self.add()
        self.use_newest()

    def add(self) -> None:
        """A new key, known to the server from its next look on."""
        self._count += 1
        self._keys.append((f"key-{self._count}", ec.generate_private_key(ec.SECP256R1())))
        self._write()

    def use_newest(self) -> None:
        self._signs = len(self._keys) - 1
        self._token = ("", 0.0)

    def drop_oldest(self) -> None:
        """What it signed counts no more."""
        del self._keys[0]
        self._signs = len(self._keys) - 1
        self._write()

    def _write(self) -> None:
        keys = [
            {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig", "alg": "ES256"}
            for name, key in self._keys
        ]
        made = self.file.with_suffix(".new")
        made.write_text(json.dumps({"keys": keys}))
        made.replace(self.file)

    def token(self) -> str:
        """A token that is fresh."""
        text, made = self._token
        if time.monotonic() - made > FRESH_S:
            name, key = self._keys[self._signs]
            claims = {"sub": "soak", "exp": time.time() + TOKEN_S}
            text = jwt.encode(claims, key, algorithm="ES256", headers={"kid": name})
            self._token = (text, time.monotonic())
        return text


class SoakServer:
    """The server and what its clients need. Its addresses stay the same over all its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pki = Pki(folder)
        self.keys = Keys(folder / "keys.json")
        self.token_file = folder / "token"
        self.trust: ssl.SSLContext = self.pki.trust()
        self.lives = 0
        self._ports = ExitStack()
        self._port, pulsar, https, pulsar_tls = (self._ports.enter_context(kept_port()) for _ in range(4))
        self._flags = ["--log", "json", "--pulsar", f"127.0.0.1:{pulsar}"]
        for setting in (
            f"http.tls_listen=127.0.0.1:{https}",
            f"pulsar.tls_listen=127.0.0.1:{pulsar_tls}",
            "auth.enabled=true",
            f"auth.token_jwks_file={self.keys.file}",
            "auth.super_users=soak",
            "auth.leeway_s=1",
            f"tls.cert_file={self.pki.cert_file}",
            f"tls.key_file={self.pki.key_file}",
            "tls.reload_ms=200",
            "broker.deduplication=true",
            "broker.keep_check_ms=500",
            "limits.max_connections=20000",
            "limits.max_connections_per_address=20000",
        ):
            self._flags += ["--set", setting]
        self.restart()
        self.url, self.https = self.launched.url, self.launched.https
        self.ws, self.wss = self.launched.ws, self.launched.wss
        self.pulsar, self.pulsar_tls = self.launched.pulsar, self.launched.pulsar_tls

    def restart(self) -> None:
        """Start it, where it was."""
        self.lives += 1
        self.launched = Launched.start(self.folder / "data", *self._flags, port=self._port)

    def close(self) -> None:
        """Its ports are free."""
        self._ports.close()

    def kill(self) -> None:
        """SIGKILL."""
        self.launched.kill()
        self.launched._errors.unlink(missing_ok=True)

    def stop(self) -> int:
        """End it well; the exit code."""
        code = self.launched.terminate()
        self.launched._errors.unlink(missing_ok=True)
        return code

    def token(self) -> str:
        return self.keys.token()

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token()}"}

    def write_token(self) -> None:
        """For who reads it from a file."""
        made = self.token_file.with_suffix(".new")
        made.write_text(self.token())
        made.replace(self.token_file)

    def full(self, *, full: bool) -> None:
        """No file of the server's can grow any more, or all can again."""
        room = ROOM_WHEN_FULL if full else resource.RLIM_INFINITY
        resource.prlimit(self.launched.process.pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

    def figures(self) -> Figures:
        """As the system tells; zeros while there is no process."""
        process = Path(f"/proc/{self.launched.process.pid}")
        try:
            status = dict(
                line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line
            )
            rss = int(status["VmRSS"].split()[0]) / 1024
            return Figures(rss, sum(1 for _ in (process / "fd").iterdir()), int(status["Threads"]))
        except (OSError, KeyError):
            return Figures(0.0, 0, 0)

    def http(self, *, tls: bool = False) -> httpx.AsyncClient:
        """A client of the HTTP endpoints; the token goes with each request."""
        url = self.https if tls else self.url
        return httpx.AsyncClient(base_url=url, verify=self.trust, trust_env=False, timeout=20)

    def call(self, method: str, path: str, **options: Any) -> Any:
        """One request that has to be answered well."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
            answer = client.request(method, path, headers=self.headers(), **options)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text)
        return (
            answer.json()
            if answer.content and "json" in answer.headers.get("content-type", "")
            else answer.text
        )

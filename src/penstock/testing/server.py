"""Real servers for tests: one in this process in milliseconds, or one of its own process.

with running() as server:
    httpx.get(server.url + "/health/ready")
"""

import asyncio
import contextlib
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import uvloop

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.limits import Limits
from penstock.server.config import OFF, Config, DataSettings, HttpSettings, PulsarSettings, TlsSettings
from penstock.server.run import serve
from penstock.server.sources import settings_of

from .calls import Calls
from .clock import AdvancingClock

START_S: Final = 60.0  # a busy machine may take long; an idle one takes a fraction of a second
STOP_S: Final = 60.0  # before a cluster that does not answer it takes 20 s beyond the drain
READY: Final = "penstock ready "


class Address(Calls):
    """Where a server is, and calls to it for tests."""

    def __init__(self, *urls: str) -> None:
        by_scheme = {url.partition("://")[0]: url for url in reversed(urls)}  # the first of each
        self.https = by_scheme.get("https", "")  # "" where nothing is served over TLS
        self.pulsar_tls = by_scheme.get("pulsar+ssl", "")
        self.url = by_scheme.get("http", self.https)
        self.pulsar = by_scheme.get("pulsar", "")  # "" where the binary endpoint is off
        own = [url for url in urls if url.startswith("http:")][1:]
        # Of the schema registry and the REST proxy, if they have their own.
        self.own_ports = [int(url.rsplit(":", 1)[1]) for url in own]
        self.ws = "ws" + self.url.removeprefix("http")
        self.wss = "ws" + self.https.removeprefix("http") if self.https else ""

    @property
    def registry_url(self) -> str:
        """Where clients of a schema registry with Confluent's API ask."""
        return f"{self.url}/registry"

    @property
    def rest_proxy_url(self) -> str:
        """Where clients of a REST proxy with Confluent's API ask."""
        return f"{self.url}/rest"

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])


class Running(Address):
    """A server in a thread of this process."""

    def __init__(self, urls: Sequence[str], loop: asyncio.AbstractEventLoop, clock: AdvancingClock) -> None:
        super().__init__(*urls)
        self._loop = loop
        self._clock = clock

    def advance(self, ms: int) -> None:
        """Let `ms` pass for the server at once: delayed messages come, timeouts are over. Its clock runs on from there.

        Only the server's: clients in the test's process keep their own time.
        """
        asyncio.run_coroutine_threadsafe(self._clock.advance(ms), self._loop).result(STOP_S)

    def now_ms(self) -> int:
        """The server's time, ms since the epoch."""
        return self._clock.now_ms()


@contextlib.contextmanager
def running(
    folder: Path | None = None,
    *,
    port: int = 0,
    pulsar: str = "127.0.0.1:0",
    broker: BrokerSettings | None = None,
    limits: Limits | None = None,
    tls: TlsSettings | None = None,
    auth: AuthSettings | None = None,
    plain: bool = True,
    http: Mapping[str, Any] | None = None,
    drain_ms: int = 1000,
    engine: ClusterSettings | None = None,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> Iterator[Running]:
    """A server in a thread of this process, with a loop of its own; in memory unless `folder` is given.

    `engine` is the cluster that it stands before. `settings` are further ones, by section and key of the configuration.

    With `tls` it is also served over TLS, and only so unless `plain`; `http` are further keys of that section.

    `auth` turns authentication on; `penstock.testing.credentials` makes what its clients need.

    It is drained at the end, and whatever it failed with is raised.
    """
    config = Config(
        http=HttpSettings(
            listen=f"127.0.0.1:{port}" if plain else OFF,
            tls_listen="127.0.0.1:0" if tls else OFF,
            drain_ms=drain_ms,
            **(http or {}),
        ),
        pulsar=PulsarSettings(listen=pulsar if plain else OFF, tls_listen="127.0.0.1:0" if tls else OFF),
        tls=tls or TlsSettings(),
        auth=auth or AuthSettings(),
        data=DataSettings(store="memory") if folder is None else DataSettings(folder=folder),
        broker=broker or BrokerSettings(),
        engine=engine or ClusterSettings(),
        limits=limits or Limits(),
    )
    config = settings_of(config, settings or {}, "the test")
    clock = AdvancingClock()
    started = threading.Event()
    urls: list[str] = []
    failures: list[BaseException] = []
    stops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def ready(*served: str) -> None:
        urls.extend(served)
        started.set()

    async def main() -> None:
        stop = asyncio.Event()
        stops.append((asyncio.get_running_loop(), stop))
        await serve(config, ready=ready, stop=stop, clock=clock)

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=work, name="penstock", daemon=True)
    thread.start()
    if not started.wait(START_S):
        raise TimeoutError("the server did not start")
    if failures:
        raise failures[0]
    try:
        yield Running(urls, stops[0][0], clock)
    finally:
        loop, stop = stops[0]
        with contextlib.suppress(RuntimeError):  # it ended by itself
            loop.call_soon_threadsafe(stop.set)
        thread.join(STOP_S)
    if thread.is_alive():
        raise TimeoutError("the server did not stop")
    if failures:
        raise failures[0]


class Launched(Address):
    """A server in a process of its own."""

    def __init__(self, urls: list[str], process: subprocess.Popen[str], errors: Path) -> None:
        super().__init__(*urls)
        self.process = process
        self._errors = errors

    @classmethod
    def start(
        cls, folder: Path, *flags: str, port: int = 0, environment: Mapping[str, str] | None = None
    ) -> Self:
        """Start `penstock serve` and wait for its ready line; raises RuntimeError with what it said instead."""
        handle, name = tempfile.mkstemp(prefix="penstock-", suffix=".log")
        errors = Path(name)
        command = [sys.executable, "-m", "penstock", "serve", "--data", str(folder)]
        command += ["--http", f"127.0.0.1:{port}", "--pulsar", "127.0.0.1:0", *flags]
        with os.fdopen(handle, "wb") as stderr:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**_environment(), **(environment or {})},
            )
        line = _first_line(process)
        if not line.startswith(READY):
            process.kill()
            process.communicate()
            said = errors.read_text(errors="replace")
            errors.unlink()
            raise RuntimeError(f"penstock serve did not start: {line}{said}")
        return cls(line.removeprefix(READY).split(), process, errors)

    @property
    def log(self) -> str:
        """What it wrote to stderr so far."""
        return self._errors.read_text(errors="replace")

    def terminate(self, timeout_s: float = STOP_S) -> int:
        """SIGTERM; returns the exit code."""
        self.process.terminate()
        return self._ended(timeout_s)

    def kill(self) -> int:
        """SIGKILL: what was not durable is lost."""
        self.process.kill()
        return self._ended(STOP_S)

    def _ended(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@contextlib.contextmanager
def launch(
    folder: Path, *flags: str, port: int = 0, environment: Mapping[str, str] | None = None
) -> Iterator[Launched]:
    """`penstock serve` in a process of its own, ended when the block is left unless it ended before."""
    server = Launched.start(folder, *flags, port=port, environment=environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            try:
                server.terminate()
            except subprocess.TimeoutExpired:
                server.kill()
        if server.process.stdout is not None:
            server.process.stdout.close()
        server._errors.unlink(missing_ok=True)


def _environment() -> dict[str, str]:
    """This process's, but for what it says to tests: a server knows every variable of its own by name."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_SOAK")}


def _first_line(process: subprocess.Popen[str]) -> str:
    """The first line on stdout, or what there is when it ends or takes too long."""
    assert process.stdout is not None
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        readable, _, _ = select.select([process.stdout], [], [], 0.1)
        if readable:
            return process.stdout.readline()
        if process.poll() is not None:
            break
    return ""

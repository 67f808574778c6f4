"""Several processes of one server on one machine, behind one address (`penstock serve --workers N`).

Before a cluster each worker is a whole server. All are started with the same command. All listen on the same ports (SO_REUSEPORT: the system
spreads the connections), and each also on its own port, at which only it is reached. The supervisor serves no requests: it keeps
the ports, starts workers, restarts one that ended by itself, and passes signals on. A worker ends when its standard
input does, so that none is left when the supervisor is killed.

Over the embedded engine one more process owns the log. It starts before the workers and stops after them, serves Pulsar's
protocol, and answers what they pass on.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.model.worker import WorkerAccess

from .config import OFF, PULSAR_LISTEN, Config, PortTakenError, StartError
from .listeners import SOCKETS, bind, is_exposed
from .local_secret import secret_before_cluster
from .logs import configure
from .systemd import STOPPING, VARIABLE, notify

log = logging.getLogger(__name__)

RESTART_S: Final = 0.5  # before the first restart of a worker; twice as long before each further one
RESTART_S_MAX: Final = 30.0
STEADY_S: Final = 60.0  # a worker that lived so long is started again without delay
READY: Final = b"penstock ready "
OWNER: Final = 0  # the number of the process that owns the log


class Worker:
    """One process, restarted until it is stopped."""

    def __init__(self, number: int, command: Sequence[str], settings: Mapping[str, str] = {}) -> None:
        """`settings` are added to its environment."""
        self.number = number
        self._command = command
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = asyncio.Event()
        self.urls: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Keep the process running; returns once it ended when stopped. Raises StartError if the first one does not
        start."""
        delay_s = RESTART_S
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._live()
            if self._stopping.is_set():
                break
            if not self.urls.done():
                raise StartError(
                    f"worker {self.number} does not start"
                    if self.number
                    else "the process that owns the log does not start"
                )
            if asyncio.get_running_loop().time() - began > STEADY_S:
                delay_s = RESTART_S
            event = "a worker ended" if self.number else "the owner of the log ended"
            log.error(event, extra={"worker": self.number, "code": code, "again_in_s": delay_s})
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, RESTART_S_MAX)
        self.urls.cancel()  # if it was never ready

    def send(self, number: signal.Signals) -> None:
        """Pass a signal on; SIGTERM ends it for good."""
        if number is signal.SIGTERM:
            self._stopping.set()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _live(self) -> int:
        pipe = asyncio.subprocess.PIPE
        # One worker is not the service: only the supervisor notifies the service manager.
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        environment |= self._settings
        # In its own session: Ctrl-C is the supervisor's to pass on.
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
        )
        if self._stopping.is_set():  # stopped while it was started
            process.terminate()
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if line.startswith(READY):
                    event = "worker ready" if self.number else "owner ready"
                    log.info(event, extra={"worker": self.number, "pid": process.pid})
                    if not self.urls.done():
                        self.urls.set_result(line.removeprefix(READY).decode().split())
            return await process.wait()
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
            raise


async def supervise(config: Config, command: Sequence[str], count: int, ready: Callable[..., None]) -> None:
    """Serve by `count` processes until SIGTERM or SIGINT; a second one shortens their wait, SIGHUP is passed on.

    `command` is that of one worker; its addresses are added as settings. `ready` is called with the addresses that all
    workers share once all of them accept work. Raises StartError.
    """
    with contextlib.ExitStack() as held:
        command = [*command, *_shared_addresses(config, held)]
        own = _secret(config)
        owner: Worker | None = None
        owned: list[str] = []
        if not config.engine.url:
            access = _access(held)
            owner = Worker(OWNER, [*command, "--owner", str(access)], own)
            owned = ["--owner", str(access)]
        workers = [Worker(n, [*command, *owned, "--worker", str(n)], own) for n in range(1, count + 1)]
        loop = asyncio.get_running_loop()

        def pass_on(number: signal.Signals) -> None:
            if number is signal.SIGTERM:
                notify(STOPPING)
            for worker in workers:
                worker.send(number)
            if owner is not None and (number is not signal.SIGTERM or not owner.urls.done()):
                owner.send(number)  # it stops after its workers, unless none was started

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, pass_on, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGHUP, pass_on, signal.SIGHUP)

        async def tell() -> None:
            found = await asyncio.gather(*(worker.urls for worker in workers))
            ready(*found[0])

        async def run_workers() -> None:
            if owner is not None:
                await owner.urls
            async with asyncio.TaskGroup() as group:
                group.create_task(tell())
                for worker in workers:
                    group.create_task(worker.run())
            if owner is not None:
                owner.send(signal.SIGTERM)

        try:
            async with asyncio.TaskGroup() as group:
                if owner is not None:
                    group.create_task(owner.run())
                group.create_task(run_workers())
        except* StartError as errors:
            raise StartError(_first(errors)) from None


def _first(errors: BaseExceptionGroup[StartError]) -> str:
    """The message of the first of nested groups."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


def _shared_addresses(config: Config, held: contextlib.ExitStack) -> list[str]:
    """Hold the ports that the workers share; returns the settings that name them. Raises StartError."""
    settings: list[str] = []
    for section, key, _ in SOCKETS:
        listen = getattr(getattr(config, section), key)
        if listen == OFF:
            continue
        try:
            bound = held.enter_context(contextlib.closing(bind(listen, shared=True)))
        except PortTakenError as error:
            if key != "listen" or listen != PULSAR_LISTEN:
                raise
            # As without workers: a second server on a machine goes on without that endpoint.
            log.warning(
                "no Pulsar endpoint", extra={"reason": str(error), "remedy": "--pulsar HOST:PORT, or off"}
            )
            settings += ["--set", f"{section}.{key}={OFF}"]
            continue
        is_exposed(f"{section}.{key}", listen, bound, config.auth)  # logged once, not by each worker
        host, _, _ = listen.rpartition(":")
        settings += ["--set", f"{section}.{key}={host}:{bound.getsockname()[1]}"]
    return settings


def _access(held: contextlib.ExitStack) -> WorkerAccess:
    """Hold the ports at which workers reach the process that owns the log, also while it is started again."""
    addresses = []
    for _ in range(2):
        bound = held.enter_context(contextlib.closing(bind("127.0.0.1:0", shared=True)))
        addresses.append(f"127.0.0.1:{bound.getsockname()[1]}")
    http, pulsar = addresses
    return WorkerAccess(http, pulsar, secrets.token_hex(8))


def _secret(config: Config) -> dict[str, str]:
    """The setting of a secret, unless one is configured: before a cluster that of this machine's processes, else one that only the
    workers know. Every user of the machine sees the arguments of a process, but not its environment."""
    if not config.engine.url:
        return {"PENSTOCK_FLEET__SECRET": secrets.token_hex(32)}
    secret = secret_before_cluster(config)
    return {} if secret is None else {"PENSTOCK_FLEET__SECRET": secret.reveal()}


def run_workers(config: Config, command: Sequence[str], count: int, ready: Callable[..., None]) -> None:
    """`supervise` on its own loop, with the log that the configuration asks for. Raises StartError."""
    configure(config.log)
    with asyncio.Runner() as runner:
        runner.run(supervise(config, command, count, ready))

"""One server from start to end, on the loop of the caller."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from collections.abc import Callable
from typing import Final

from penstock.model.errors import PenstockError

from .app import build
from .config import OFF, PULSAR_LISTEN, Config
from .http import HttpServer
from .listen import StartError, bind, url_of
from .logs import configure

log = logging.getLogger(__name__)

# The store's writer thread must win Python's lock from a busy loop for each of its steps, and waits this
# long for it (5 ms by default).
SWITCH_INTERVAL_S: Final = 0.0005

# What is there after the start stays: collections need not look at it, nor run after every few objects.
COLLECT_AFTER: Final = 10_000


async def serve(
    config: Config,
    *,
    ready: Callable[..., None],
    stop: asyncio.Event,
    force: asyncio.Event | None = None,
) -> None:
    """Serve until `stop` is set, then drain; `ready` is told the addresses once work is accepted: HTTP's
    and, unless it is off, that of Pulsar's protocol.

    Draining refuses new work, finishes what is in flight, saves every cursor and closes the stores; `force`
    shortens the wait. Raises StartError.
    """
    with contextlib.ExitStack() as sockets:
        bound = sockets.enter_context(contextlib.closing(bind(config.http.listen)))
        pulsar = None
        if config.pulsar.listen != OFF:
            pulsar = _bind_pulsar(config.pulsar.listen, sockets)
        try:
            app = build(config)
            await app.start()
        except PenstockError as error:
            raise StartError(error.message) from None
        try:
            http = HttpServer(app.asgi, config.http, app.gate.limits)
            urls = [url_of(bound)]
            if pulsar is not None:
                urls.append(url_of(pulsar, "pulsar"))
                await app.binary.open(pulsar, urls[1], config.pulsar.advertise)
            await http.open(bound)
            log.info("ready", extra={"urls": urls, "store": config.data.store})
            ready(*urls)
            await http.run_until(stop)
            log.info("draining")
            await http.drain(app.drain, force or asyncio.Event())
        finally:
            await app.close()
    log.info("stopped")


def _bind_pulsar(listen: str, sockets: contextlib.ExitStack) -> socket.socket | None:
    """The socket of Pulsar's protocol; None where its default port is taken: a second server on a machine goes
    on without that door."""
    try:
        return sockets.enter_context(contextlib.closing(bind(listen)))
    except StartError as error:
        if listen != PULSAR_LISTEN:
            raise
        log.warning("no Pulsar door", extra={"reason": str(error), "remedy": "--pulsar HOST:PORT, or off"})
        return None


def run(config: Config, ready: Callable[..., None]) -> None:
    """Serve in this process until SIGTERM or SIGINT; a second one shortens the wait. Raises StartError."""
    import uvloop

    configure(config.log)
    sys.setswitchinterval(SWITCH_INTERVAL_S)

    def started(*urls: str) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER, 50, 100)
        ready(*urls)

    async def main() -> None:
        stop, force = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            if stop.is_set():
                force.set()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)
        await serve(config, ready=started, stop=stop, force=force)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

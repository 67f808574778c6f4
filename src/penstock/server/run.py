"""One server from start to end, on the loop of the caller."""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Final

from penstock.model.errors import PenstockError
from penstock.model.worker import WorkerAccess
from penstock.protocols.auth.settings import AuthConfigError
from penstock.runtime.clock import Clock

from .app import build
from .config import Config, StartError
from .http import HttpServer
from .listeners import Listeners
from .local_secret import secret_before_cluster
from .logs import LINE_LIMITS, configure
from .reload import Reload
from .resources import allow_connections, trimming_of
from .systemd import STOPPING, notify

log = logging.getLogger(__name__)

# The store's writer thread must win Python's lock from a busy loop for each of its steps, and waits this
# long for it (5 ms by default).
SWITCH_INTERVAL_S: Final = 0.0005

# Objects of the start stay: collections need not examine them, nor run after every few objects. They look at all
# that came since within a million objects more: circles that lived long before they were left are at most so many.
COLLECT_AFTER: Final = 10_000, 10, 10


async def serve(
    config: Config,
    *,
    ready: Callable[..., None],
    stop: asyncio.Event,
    force: asyncio.Event | None = None,
    reread: Callable[[], Config] | None = None,
    hangup: asyncio.Event | None = None,
    worker: int = 0,
    owner: WorkerAccess | None = None,
    clock: Clock | None = None,
) -> None:
    """Serve until `stop` is set, then drain; `ready` is called with the addresses once work is accepted: those of HTTP
    and Pulsar's protocol, then the same over TLS, each unless it is off.

    Draining refuses new work, finishes work in flight, saves every cursor and closes the stores; `force`
    shortens the wait. When `hangup` is set, the configuration is read again by `reread`. A `worker` shares its addresses
    with other processes. `owner` is the process that owns the log of several over the embedded engine: this one, unless it is a
    `worker`. The embedded engine's time is that of `clock`. Raises StartError.
    """
    with contextlib.ExitStack() as sockets:
        listeners = Listeners(config, sockets, worker=worker, owner=owner)
        listeners.check_exposed(config.auth)
        try:
            app = build(config, clock, owner, worker=worker, local=secret_before_cluster(config))
            await app.context.broker.start()
        except PenstockError as error:
            raise StartError(error.message) from None
        except AuthConfigError as error:
            raise StartError(str(error)) from None
        try:
            http = HttpServer(app.asgi, config.http, app.context.limits, app.context.load)
            await listeners.open(app.context, app.binary)
            await http.open(listeners.http)
            await app.join(listeners.own_url, listeners.own_pulsar, listeners.peer_url)
            own = {"own_url": listeners.own_url} if config.engine.url or worker else {}
            if worker and listeners.own_pulsar.url:
                own["own_pulsar_url"] = listeners.own_pulsar.url
            store = config.engine.url or config.data.store
            log.info("ready", extra={"urls": listeners.urls, "store": store, **own})
            ready(*listeners.urls)

            reload = None if reread is None else Reload(config, reread, app, http, listeners)
            trimming = trimming_of(app.context.load)

            def now_and_then() -> None:
                app.binary.look()
                if app.fleet is not None:
                    app.fleet.look()
                if app.history is not None:
                    app.history.look()
                if trimming is not None:
                    trimming.look()
                listeners.refresh()
                app.context.audit.tell()
                LINE_LIMITS.tell()
                if hangup is not None and hangup.is_set():
                    hangup.clear()
                    if reload is not None:
                        reload.run()

            await http.run_until(stop, now_and_then)
            log.info("draining")
            await http.drain(app.drain, force or asyncio.Event())
        finally:
            await app.close()
    log.info("stopped")


def run(
    config: Config,
    ready: Callable[..., None],
    reread: Callable[[], Config] | None = None,
    *,
    worker: int = 0,
    owner: WorkerAccess | None = None,
) -> None:
    """Serve in this process until SIGTERM or SIGINT; a second one shortens the wait. SIGHUP reads the configuration
    again, by `reread`, and ends nothing. A `worker`, and the `owner` of the workers' log, end with their standard input, too.
    Raises StartError."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the loop hears it
    import uvloop

    configure(config.log)
    allow_connections(config.limits.max_connections)
    sys.setswitchinterval(SWITCH_INTERVAL_S)

    def started(*urls: str) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        ready(*urls)

    async def main() -> None:
        stop, force, hangup = asyncio.Event(), asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def signalled() -> None:
            if stop.is_set():
                force.set()
            stop.set()
            notify(STOPPING)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
        if worker or owner is not None:
            loop.add_reader(sys.stdin, stop.set)  # nothing is written to it: it ends with the supervisor
        await serve(
            config,
            ready=started,
            stop=stop,
            force=force,
            reread=reread,
            hangup=hangup,
            worker=worker,
            owner=owner,
        )

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

"""Builds the application: stores, broker, gate, and every door round them."""

import asyncio

import msgspec
from starlette.routing import Router
from starlette.types import ASGIApp

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.clock import LoopClock
from penstock.protocols.admin.routes import door as admin_door
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.binary.door import BinaryDoor
from penstock.protocols.kafka_rest.door import KafkaRestDoor
from penstock.protocols.rest.door import RestDoor
from penstock.protocols.rest.stages import StagesDoor
from penstock.protocols.session import Gate
from penstock.protocols.websocket.routes import routes as websocket_routes
from penstock.protocols.websocket.socket import Sockets
from penstock.wire.entry import WireFormat

from .config import Config
from .dispatch import Dispatcher
from .metrics.doors import Doors as WatchedDoors
from .metrics.page import MetricsPage
from .origins import Origins
from .pages import Pages
from .rated import Rated
from .stores import open_stores
from .tracing import Tracing


class App(msgspec.Struct, frozen=True):
    """A broker, the gate to it, the doors that have something to finish, and the ASGI application of all."""

    gate: Gate
    rest: RestDoor
    binary: BinaryDoor
    kafka_rest: KafkaRestDoor
    sockets: Sockets
    asgi: ASGIApp
    watched: WatchedDoors
    rated: Rated
    tracing: "Tracing | None" = None

    def rate(self) -> None:
        """Count what requests carry, where there are rates: also where they came while the server runs."""
        if self.gate.rates is not None:
            self.watched.inner = self.rated

    async def start(self) -> None:
        """Open the stores; raises UNAVAILABLE."""
        await self.gate.broker.start()

    async def drain(self) -> None:
        """Take no new work, end every wait, close every connection that lasts; completes when they are closed."""
        self.gate.draining = True
        self.gate.broker.drain()
        self.rest.drain()
        self.kafka_rest.drain()
        await asyncio.gather(self.sockets.drain(), self.binary.drain())

    async def close(self) -> None:
        """Disconnect everybody, save every cursor, let go of the stores."""
        await self.rest.close()
        await self.binary.close()
        await self.kafka_rest.close()
        await self.gate.broker.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def build(config: Config) -> App:
    """Everything of one server, not yet started; raises AuthConfigError."""
    store, transient = open_stores(config.data, config.storage)
    broker = Broker(store, transient, WireFormat(), LoopClock(), config.broker)
    return build_for(Gate(broker, config.limits, authenticator(config.auth, broker)), config)


def build_for(gate: Gate, config: Config | None = None) -> App:
    """The doors round a gate."""
    config = config or Config()
    rest, sockets, admin = RestDoor(gate), Sockets(), admin_door(gate)
    kafka_rest = KafkaRestDoor(gate)
    websocket = Router(websocket_routes(gate, sockets), redirect_slashes=False)
    stages = StagesDoor(gate)
    binary = BinaryDoor(gate)
    doors: dict[str, ASGIApp] = {
        "stages": stages,
        "entries": stages,
        "topics": rest,
        "kafka": kafka_rest,
        "ws": websocket,
        "admin": admin,
        "lookup": admin,
    }
    dispatcher = Dispatcher(doors, {"ws": websocket}, Pages(gate))
    origins = Origins(
        dispatcher,
        config.http.allowed_origins,
        gate.audit,
        own_names_only=gate.auth is None and not config.auth.insecure,
    )
    rated = Rated(origins)
    watched = WatchedDoors(origins if gate.rates is None else rated, log_access=config.log.access)
    doors["metrics"] = MetricsPage(
        gate, watched, lambda: (len(sockets), len(binary)), by_topic=config.metrics.by_topic
    )
    tracing = Tracing(watched, config.trace) if config.trace.otlp_endpoint else None
    asgi = watched if tracing is None else tracing
    return App(gate, rest, binary, kafka_rest, sockets, asgi, watched, rated, tracing)

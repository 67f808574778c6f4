"""Builds the application: stores, broker, gate, and every door round them."""

import asyncio

import msgspec
from starlette.routing import Router
from starlette.types import ASGIApp

from penstock.core.broker import Broker
from penstock.core.clock import LoopClock
from penstock.protocols.admin.routes import door as admin_door
from penstock.protocols.binary.door import BinaryDoor
from penstock.protocols.kafka_rest.door import KafkaRestDoor
from penstock.protocols.rest.door import RestDoor
from penstock.protocols.session import Gate
from penstock.protocols.websocket.routes import routes as websocket_routes
from penstock.protocols.websocket.socket import Sockets
from penstock.wire.entry import WireFormat

from .config import Config
from .dispatch import Dispatcher
from .pages import Pages
from .stores import open_stores


class App(msgspec.Struct, frozen=True):
    """A broker, the gate to it, the doors that have something to finish, and the ASGI application of all."""

    gate: Gate
    rest: RestDoor
    binary: BinaryDoor
    kafka_rest: KafkaRestDoor
    sockets: Sockets
    asgi: ASGIApp

    async def start(self) -> None:
        """Open the stores; raises UNAVAILABLE."""
        await self.gate.broker.start()

    async def drain(self) -> None:
        """Take no new work, end every wait, close every connection that lasts; completes when they are closed."""
        self.gate.draining = True
        self.rest.drain()
        self.kafka_rest.drain()
        await asyncio.gather(self.sockets.drain(), self.binary.drain())

    async def close(self) -> None:
        """Disconnect everybody, save every cursor, let go of the stores."""
        await self.rest.close()
        await self.binary.close()
        await self.kafka_rest.close()
        await self.gate.broker.close()


def build(config: Config) -> App:
    """Everything of one server, not yet started."""
    store, transient = open_stores(config.data)
    broker = Broker(store, transient, WireFormat(), LoopClock(), config.broker)
    return build_for(Gate(broker, config.limits))


def build_for(gate: Gate) -> App:
    """The doors round a gate."""
    rest, sockets, admin = RestDoor(gate), Sockets(), admin_door(gate)
    kafka_rest = KafkaRestDoor(gate)
    websocket = Router(websocket_routes(gate, sockets), redirect_slashes=False)
    doors: dict[str, ASGIApp] = {
        "topics": rest,
        "kafka": kafka_rest,
        "ws": websocket,
        "admin": admin,
        "lookup": admin,
    }
    return App(
        gate, rest, BinaryDoor(gate), kafka_rest, sockets, Dispatcher(doors, {"ws": websocket}, Pages(gate))
    )

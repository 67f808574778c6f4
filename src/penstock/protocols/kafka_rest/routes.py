"""The Kafka REST door as routes of a Starlette application."""

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from penstock.protocols.session import Gate

from .door import PREFIX, KafkaRestDoor


class KafkaRoute(BaseRoute):
    """`/kafka` and everything below it."""

    def __init__(self, door: KafkaRestDoor) -> None:
        self.door = door

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and f"{scope['path']}/".startswith(f"{PREFIX}/"):
            return Match.FULL, {}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.door(scope, receive, send)


def routes(gate: Gate) -> list[BaseRoute]:
    """The door's routes. Whoever stops the server calls `drain`, then `close`, of the route's `door`."""
    return [KafkaRoute(KafkaRestDoor(gate))]

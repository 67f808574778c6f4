"""The REST door as routes of a Starlette application."""

from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from penstock.protocols.session import Gate

from .door import RestDoor
from .target import PREFIX


class TopicsRoute(BaseRoute):
    """Everything below `/topics/`, handed on without a regular expression or a wrapper in between."""

    def __init__(self, door: RestDoor) -> None:
        self.door = door
        self._prefix = PREFIX.decode()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and scope["path"].startswith(self._prefix):
            return Match.FULL, {}
        return Match.NONE, {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.door(scope, receive, send)


def routes(gate: Gate) -> list[BaseRoute]:
    """The door's routes. Whoever stops the server calls `drain`, then `close`, of the route's `door`."""
    return [TopicsRoute(RestDoor(gate))]

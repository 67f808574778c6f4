"""The one ASGI application: hands each request to the endpoint its path begins with, and answers what went wrong.

An endpoint is found by one look into a dict, so that the hot ones wait for no regular expression.
"""

import logging
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.model.errors import ErrorKind, PenstockError

from .refusals import refuse

log = logging.getLogger(__name__)

_BY_STATUS = {404: ErrorKind.NOT_FOUND, 405: ErrorKind.METHOD_NOT_ALLOWED}


class Dispatcher:
    """Endpoints by the first segment of the path, `sockets` those for WebSocket; `pages` has everything else."""

    def __init__(
        self, endpoints: Mapping[str, ASGIApp], sockets: Mapping[str, ASGIApp], pages: ASGIApp
    ) -> None:
        self._endpoints = endpoints
        self._sockets = sockets
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind not in ("http", "websocket"):
            raise NotImplementedError(
                f"no ASGI protocol {kind!r} here: the server starts and stops the broker"
            )
        path: str = scope["path"]
        end = path.find("/", 1)
        endpoints = self._endpoints if kind == "http" else self._sockets
        endpoint = endpoints.get(path[1:end] if end > 0 else path[1:], self._pages)
        scope["app"] = self  # lets Starlette's routers raise 404 and 405 rather than answer in plain text
        try:
            await endpoint(scope, receive, send)
        except PenstockError as error:
            await refuse(scope, send, error)
        except HTTPException as error:
            found = _BY_STATUS.get(error.status_code, ErrorKind.BAD_PARAMETER)
            message = error.detail if found is ErrorKind.BAD_PARAMETER else _unknown(scope, found)
            await refuse(scope, send, PenstockError(found, message), error.headers)
        except Exception as error:
            if type(error).__name__ == "ClientDisconnected":  # uvicorn's: the client is gone
                raise
            log.exception("request failed", extra={"method": scope.get("method"), "path": path})
            await refuse(scope, send, PenstockError(ErrorKind.INTERNAL, "internal error"))


def _unknown(scope: Scope, kind: ErrorKind) -> str:
    if kind is ErrorKind.METHOD_NOT_ALLOWED:
        return f"{scope['method']} is not for {scope['path']}"
    return f"there is nothing at {scope['path']}"

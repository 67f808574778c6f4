"""The answer to a request that failed."""

import logging

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext

from .answers import BodyError, Dialect, error_body, error_headers
from .examples import example_of
from .exchange import ClientGoneError, Exchange

log = logging.getLogger(__name__)


async def fail(
    exchange: Exchange, error: Exception, context: ServerContext, dialect: Dialect, operation: str = ""
) -> None:
    """Answer with an error, if the client is still there and no answer has begun; `operation` is the path of the
    operation that was asked for, as it was declared."""
    if isinstance(error, ClientGoneError):
        return
    path = exchange.scope["path"]
    if not isinstance(error, PenstockError):
        log.error("request failed", extra={"method": exchange.method, "path": path}, exc_info=error)
        error = PenstockError(ErrorKind.INTERNAL, "an error inside the server; its log says more")
    elif exchange.started:
        log.warning("an answer was cut short: %s", error.message, extra={"path": path})
    if exchange.started:
        return
    example = example_of(exchange.method, operation) if isinstance(error, BodyError) else None
    body = error_body(error.kind, error.message, dialect, example)
    await exchange.answer(body, error.kind.codes.status, *error_headers(error, context.challenges))

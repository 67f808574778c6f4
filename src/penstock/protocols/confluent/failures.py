"""Errors as Confluent's clients read them: `{"error_code", "message"}`, where the code without a number of its own is the status."""

import logging
from collections.abc import Mapping
from typing import Final

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import error_headers, to_json
from penstock.protocols.http.exchange import Exchange

log = logging.getLogger(__name__)

_STORE: Final = 50001


async def failed(
    exchange: Exchange,
    error: Exception,
    context: ServerContext,
    media: str,
    codes: Mapping[ErrorKind, ConfluentCode] = {},  # it is not changed
    retriable: int = _STORE,
) -> None:
    """Answer with what went wrong, unless an answer has begun. `codes` are those of errors of the broker; of others the status is the
    code, or `retriable` for those of the server that may pass."""
    headers = [(b"content-type", media.encode())]
    if isinstance(error, ConfluentError):
        status, code, message = error.code.status, error.code.code, error.message
    else:
        if not isinstance(error, PenstockError):
            log.error(
                "request failed",
                extra={"method": exchange.method, "path": exchange.scope["path"]},
                exc_info=error,
            )
            error = PenstockError(ErrorKind.INTERNAL, "an error inside the server; its log says more")
        status, message = error.kind.codes.status, error.message
        code = retriable if status >= 500 and error.retriable else status
        if error.kind in codes:
            status, code = codes[error.kind].status, codes[error.kind].code
        headers += error_headers(error, context.challenges)
    if not exchange.started:
        body: dict[str, int | str] = {"error_code": code, "message": message}
        if isinstance(error, ConfluentError) and error.detail:
            body["detail"] = error.detail
        await exchange.whole(status, headers, to_json(body))

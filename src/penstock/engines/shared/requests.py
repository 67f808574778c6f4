"""Request-reply (PIP-371): what holds for the waits of every engine."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.broker.producer import Producer, Reply, ReplyOrError, Request, Result
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage

REPLY_BYTES_MAX: Final = 5 * 1024 * 1024  # a reply may be as large as a message


def check_timeout(timeout_ms: int, timeout_ms_max: int) -> None:
    """Raise BAD_PARAMETER for a request's timeout out of bounds."""
    if not 1 <= timeout_ms <= timeout_ms_max:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"a request's timeout must be within 1 and {timeout_ms_max} ms, not {timeout_ms}",
        )


def check_size(reply: Reply) -> None:
    """Raise TOO_LARGE for a reply above the bound."""
    size = len(reply.content)
    if size > REPLY_BYTES_MAX:
        raise PenstockError(ErrorKind.TOO_LARGE, f"a reply of {size} bytes; the most is {REPLY_BYTES_MAX}")


def no_reply(timeout_ms: int) -> PenstockError:
    """What a wait ends with whose time is over."""
    return PenstockError(ErrorKind.REQUEST_TIMEOUT, f"no reply within {timeout_ms} ms")


def shutting_down() -> PenstockError:
    """What every wait ends with when the server stops; the messages stay."""
    return PenstockError(
        ErrorKind.UNAVAILABLE,
        "the server is shutting down; the request is stored, nobody waits for its reply",
    )


async def reply_of(request: Request) -> Reply:
    """`broker.Request.reply`, for a wait that has `call_when_ended`."""
    future: asyncio.Future[ReplyOrError] = asyncio.get_running_loop().create_future()
    request.call_when_ended(partial(_complete, future))
    ended = await future
    if isinstance(ended, PenstockError):
        raise ended
    return ended


def _complete(future: asyncio.Future[ReplyOrError], _: Request, ended: ReplyOrError) -> None:
    if not future.done():  # else its task is being cancelled
        future.set_result(ended)


def settle_all(requests: Sequence[Request | None], results: Sequence[Result]) -> None:
    """Let the waits know what became of their messages."""
    for request, result in zip(requests, results, strict=True):
        if request is not None:
            if isinstance(result, PenstockError):
                request.fail(result)
            else:
                request.placed(result)


async def request_reply(producer: Producer, message: OutMessage, timeout_ms: int) -> Reply:
    """`broker.Requesting.request`, for a producer that has the rest. Cancelling withdraws the wait."""
    (request,) = producer.ask((message,), (timeout_ms,))
    assert request is not None
    try:
        await producer.publish((message,), batch=False, requests=(request,))
        return await request.reply()
    finally:
        request.withdraw()

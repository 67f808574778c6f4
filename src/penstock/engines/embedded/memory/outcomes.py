"""Awaitables of what has taken place already, and the errors that calls share."""

import asyncio
from typing import Any, TypeVar

from penstock.model.errors import ErrorKind, PenstockError

T = TypeVar("T")


def done(value: T) -> asyncio.Future[T]:
    """A call that has returned `value`."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def failed(error: PenstockError) -> asyncio.Future[Any]:
    """A call that has raised `error`."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def no_log(ledger: int) -> PenstockError:
    """What is raised for a ledger that is not open."""
    return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"there is no log with ledger {ledger}")
